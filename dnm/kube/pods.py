"""The reduction of lists of pods to `model.Pod`, page by page. dnm computes a request or
constraints once for all pods with the same bytes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from dnm.kube.errors import clean
from dnm.kube.objects import decode_raw_page
from dnm.kube.pod_fields import (
    EMPTY,
    MIRROR,
    OF_THE_NODE,
    decode_all_labels,
    has_value,
    make_page_decoder,
    present_texts,
)
from dnm.kube.pod_reading import rare_fields, read_group, short_key
from dnm.kube.shapes import MOST_CACHED, MOST_RULES, ShapeCache
from dnm.model.config import Config
from dnm.model.pod import Pod, PodIdentity, PodShape
from dnm.model.quantity import QuantityError
from dnm.queues import pod_reading_of
from dnm.queues.system import PodReading

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"  # the pods that dnm reads
_LONGEST_KEY = 1024  # bytes of a key; Kubernetes accepts 256 KiB for each pod
_UNKNOWN_SHAPE = PodShape(request={"pods": 1})
_NO_LABELS: dict[str, str] = {}


class _ClaimName(msgspec.Struct, frozen=True, rename={"name": "claimName"}):
    name: str = ""


class _PodVolume(msgspec.Struct, frozen=True, rename={"claim": "persistentVolumeClaim"}):
    name: str = ""
    claim: _ClaimName | None = None
    ephemeral: msgspec.Raw = EMPTY


class _PlaceName(msgspec.Struct, frozen=True):
    name: str
    namespace: str


class _PlaceNode(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Place(msgspec.Struct, frozen=True):
    """The name and the node of a pod, which dnm needs even if the rest of the pod is unreadable."""

    metadata: _PlaceName
    spec: _PlaceNode


_decode_place = msgspec.json.Decoder(_Place).decode
_decode_volumes = msgspec.json.Decoder(list[_PodVolume]).decode


class PodReducer:
    """A collector of the pods of a LIST.

    `unreadable` maps the namespace of a pod with unreadable requests or constraints to the error.
    The pod itself stays in `pods`, because it may run on its node."""

    def __init__(self, reading: PodReading, with_qos: bool = False) -> None:
        """`reading` has the labels and annotations of the queue system. With `with_qos`, the
        reducer also reads the amounts that a kubelet aligns to a NUMA node."""
        self.pods: list[Pod] = []
        self.versions = array("q")  # of the pods, in their order; -1: not comparable
        self.unreadable: dict[str, str] = {}
        self._decode = make_page_decoder(reading.labels, reading.annotations)
        self._with_qos, self._reading = with_qos, reading
        self._strings: dict[str, str] = {}
        self._identities: dict[object, PodIdentity] = {}
        self._labels: list[dict[str, str]] = []  # of the page, decoded on use

    @cached_property
    def _shape_cache(self) -> ShapeCache:
        return ShapeCache()

    def clear(self) -> None:
        """Drops the pods, since the LIST starts again, but keeps the cached values."""
        self.pods.clear()
        self.versions = array("q")
        self.unreadable.clear()

    def add(self, page: memoryview | bytes) -> None:
        """Adds a page of pods. Raises msgspec.MsgspecError, ValueError or RecursionError."""
        try:
            items = self._decode(page).items
        except msgspec.ValidationError:
            for alone in decode_raw_page(page).items:
                self._add_alone(alone)
            return
        self._add_items(items, page)

    def _add_alone(self, item: msgspec.Raw) -> None:
        """Adds a pod of a page with unreadable pods. Even an unreadable pod counts on its node."""
        page = b'{"items":[%b]}' % bytes(item)
        try:
            items = self._decode(page).items
        except msgspec.ValidationError as error:
            place = _decode_place(item)
            name, namespace = place.metadata.name, place.metadata.namespace
            why = clean(f"pod {name} can't be read: {error}")
            self.unreadable.setdefault(namespace, why)
            pod = Pod(
                namespace=namespace, name=name, shape=_UNKNOWN_SHAPE, node=place.spec.node_name
            )
            self.pods.append(pod)
            self.versions.append(-1)
            return
        self._add_items(items, page)

    def _add_items(self, items: Sequence[Any], page: memoryview | bytes) -> None:
        share = self._strings.setdefault
        namespaces, scheduler = self._reading.namespaces, self._reading.scheduler
        self._labels = []
        self.versions.extend(_number(item.metadata.resource_version) for item in items)
        for position, item in enumerate(items):
            metadata, spec = item.metadata, item.spec
            is_of_namespace = metadata.namespace in namespaces
            is_managed = is_of_namespace or spec.scheduler_name == scheduler
            identity = self._identify(metadata, is_managed)
            node = spec.node_name or ""
            rare = identity.rare
            is_plain = metadata.deletion_timestamp is None and spec.scheduling_group is EMPTY
            if not (node and is_plain):
                rare = {**rare, **rare_fields(metadata, spec, item.status)}
                if is_of_namespace and not node:
                    from dnm.kube.scheduler_verdict import read_verdict

                    rare |= read_verdict(item.status)
            for owner in metadata.owner_references or ():
                group = OF_THE_NODE.get(owner.kind) if owner.controller else None
                if group == owner.api_version.rpartition("/")[0]:  # not a tenant's own kind
                    owner_uid = share(owner.uid, owner.uid)
                    rare = {**rare, "is_daemonset": True, "owner": owner_uid}
            shape, claims = self._place(item, page, position)
            if claims:
                rare = {**rare, "claims": claims}
            self.pods.append(Pod(
                namespace=share(metadata.namespace, metadata.namespace), name=metadata.name,
                shape=shape, uid=metadata.uid, created=metadata.creation_timestamp or "",
                node=share(node, node), app_id=identity.app_id, queue=identity.queue,
                is_managed=is_managed, **rare,
            ))  # fmt: skip

    def _identify(self, metadata: Any, is_managed: bool) -> PodIdentity:
        key: Any = (metadata.namespace, metadata.labels, metadata.annotations, is_managed)
        identity = self._identities.get(key)
        if identity is not None:
            return identity
        notes, labels = present_texts(metadata.annotations), present_texts(metadata.labels)
        if sum(map(len, (*notes.values(), *labels.values()))) > _LONGEST_KEY:
            key = short_key(msgspec.json.encode(key))
            identity = self._identities.get(key)
        if identity is None:
            key_of_pod = (metadata.namespace, metadata.uid)
            identity = self._reading.identify(key_of_pod, labels, notes, is_managed)
            common = {"group": read_group(notes, labels), "is_mirror": MIRROR in notes}
            if any(common.values()):
                present = {field: value for field, value in common.items() if value}
                identity = replace(identity, rare={**identity.rare, **present})
            if len(self._identities) >= MOST_CACHED:
                self._identities.clear()
            if not (identity.app_id and identity.app_id.endswith(metadata.uid)):
                self._identities[key] = identity  # else it contains the uid and cannot be shared
        return identity

    def _place(
        self, item: Any, page: memoryview | bytes, position: int
    ) -> tuple[PodShape, tuple[str, ...]]:
        """Returns the pod's shape and, if it is unbound, its volume claims. An unreadable field
        makes only the pod's namespace unreadable."""
        spec = item.spec
        try:
            shape = self._shape_cache.find_request(spec, item.status)
            if spec.node_name or shape.is_cut:
                return shape, ()
            labels = _NO_LABELS
            if spec.affinity is not EMPTY or spec.topology_spread_constraints is not EMPTY:
                # Other pods may keep this one from a node, so its own labels matter.
                self._labels = self._labels or decode_all_labels(page)
                labels = self._labels[position]
            aligned = None
            if self._with_qos:
                from dnm.kube.aligned import aligned_amounts

                aligned = aligned_amounts(spec, item.status.qos_class == "Guaranteed")
            claims = _read_claims(item)
            if len(claims) > MOST_RULES:
                return self._shape_cache.cut(shape), ()
            return self._shape_cache.find_constrained(spec, shape, labels, aligned), claims
        except (msgspec.MsgspecError, QuantityError, ValueError) as error:
            why = clean(f"pod {item.metadata.name} can't be read: {error}")
            self.unreadable.setdefault(item.metadata.namespace, why)
            return _UNKNOWN_SHAPE, ()


def _number(version: str) -> int:
    return int(version) if version.isdecimal() and len(version) < 19 else -1


def make_reducer(config: Config) -> PodReducer:
    """Returns a reducer for the queue system and the kubelets of this configuration."""
    return PodReducer(pod_reading_of(config), config.has_aligned_pods)


def _read_claims(item: Any) -> tuple[str, ...]:
    """Returns the pod's volume claims. A generic ephemeral volume has the claim `POD-VOLUME`."""
    names = set()
    for volume in _decode_volumes(item.spec.volumes) if has_value(item.spec.volumes) else ():
        if volume.claim is not None:
            names.add(volume.claim.name)
        elif volume.ephemeral is not EMPTY:
            names.add(f"{item.metadata.name}-{volume.name}")
    return tuple(sorted(names))
