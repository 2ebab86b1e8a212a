"""Pods and volume claims as the API prints them, reduced to `model.Pod` page by page.

Only the fields named here are decoded. What many pods share is computed once: the bytes of the
resources are the key of a request, the bytes of the constraints the key of a shape. Constraints are
looked at for unbound pods only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dnm.kube_constraints import read_constraints, read_host_ports
from dnm.model import Pod, PodShape, TaskGroup
from dnm.quantity import QuantityError
from dnm.request import (
    APP_ID_KEY,
    QUEUE_KEY,
    ContainerRequest,
    ContainerState,
    PodRequest,
    application_id,
    effective_request,
    requested_queue,
    task_groups,
)

EMPTY = msgspec.Raw()
_NULL = b"null"
_YUNIKORN = "yunikorn"
_NOT_A_KEY = "/"  # no annotation can be called that
_ANNOTATIONS = {
    "queue_path": QUEUE_KEY,
    "app_id": APP_ID_KEY,
    "task_group": "yunikorn.apache.org/task-group-name",
    "task_groups": "yunikorn.apache.org/task-groups",
    "placeholder": "internal.yunikorn.apache.org/placeholder",
    "placeholder_before_1_6": "yunikorn.apache.org/placeholder",
    "mirror": "kubernetes.io/config.mirror",
}


class _Lean(msgspec.Struct, gc=False, frozen=True):
    """Parent of what is decoded; nothing in it can be part of a cycle."""


class _Owner(_Lean, frozen=True):
    kind: str = ""


class _Labels(
    _Lean,
    frozen=True,
    rename={
        "queue_path": QUEUE_KEY,
        "app_id": APP_ID_KEY,
        "application": "applicationId",
        "spark": "spark-app-selector",
    },
):
    queue_path: str | None = None
    app_id: str | None = None
    application: str | None = None
    spark: str | None = None
    queue: str | None = None
    placeholder: str | None = None


class _Container(_Lean, frozen=True, rename={"restart_policy": "restartPolicy"}):
    name: str = ""
    resources: msgspec.Raw = EMPTY
    ports: msgspec.Raw = EMPTY
    restart_policy: str | None = None


class _ContainerStatus(_Lean, frozen=True, rename={"allocated": "allocatedResources"}):
    name: str = ""
    allocated: msgspec.Raw = EMPTY
    resources: msgspec.Raw = EMPTY


class _Spec(_Lean, frozen=True, rename="camel"):
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    overhead: msgspec.Raw = EMPTY
    resources: msgspec.Raw = EMPTY
    node_selector: msgspec.Raw = EMPTY
    tolerations: msgspec.Raw = EMPTY
    affinity: msgspec.Raw = EMPTY
    topology_spread_constraints: msgspec.Raw = EMPTY
    volumes: msgspec.Raw = EMPTY
    scheduling_gates: msgspec.Raw = EMPTY


class _Status(_Lean, frozen=True, rename="camel"):
    phase: str | None = None
    reason: str | None = None
    resize: str | None = None
    conditions: msgspec.Raw = EMPTY
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _Requests(_Lean, frozen=True):
    requests: dict[str, str] | None = None


class _Condition(_Lean, frozen=True):
    type: str = ""
    reason: str | None = None


class _ClaimName(_Lean, frozen=True, rename={"name": "claimName"}):
    name: str = ""


class _Volume(_Lean, frozen=True, rename={"claim": "persistentVolumeClaim"}):
    name: str = ""
    claim: _ClaimName | None = None
    ephemeral: msgspec.Raw = EMPTY


class _Identity(_Lean, frozen=True):
    """What labels and annotations say of a pod."""

    app_id: str = ""
    queue: str = ""
    task_group: str = ""
    task_groups: tuple[TaskGroup, ...] = ()
    is_placeholder: bool = False
    is_mirror: bool = False
    is_own: bool = False  # made of the pod's uid: nobody else's


_NOBODY = _Identity()
_UNKNOWN_SHAPE = PodShape(request={"pods": 1})
_decode_requests = msgspec.json.Decoder(_Requests).decode
_decode_strings = msgspec.json.Decoder(dict[str, str]).decode
_decode_conditions = msgspec.json.Decoder(list[_Condition]).decode
_decode_volumes = msgspec.json.Decoder(list[_Volume]).decode
_decode_labels = msgspec.json.Decoder(_Labels).decode


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a field is there with a value."""
    return raw is not EMPTY and bytes(raw) not in (_NULL, b"[]", b"{}")


def make_page_decoder(queue_annotation: str) -> Callable[[Any], Any]:
    """The decoder of a PodList that also knows the site's own name of the queue annotation."""
    site_key = _NOT_A_KEY if queue_annotation in _ANNOTATIONS.values() else queue_annotation
    names = {**_ANNOTATIONS, "site_queue": site_key}
    annotations = msgspec.defstruct(
        "_Annotations",
        [(field, str | None, None) for field in names],
        frozen=True,
        gc=False,
        rename=names,
    )
    metadata = msgspec.defstruct(
        "_Metadata",
        [
            ("name", str),
            ("namespace", str, ""),
            ("uid", str, ""),
            ("creation_timestamp", str | None, None),
            ("deletion_timestamp", str | None, None),
            ("labels", msgspec.Raw, EMPTY),
            ("annotations", annotations | None, None),
            ("owner_references", list[_Owner] | None, None),
        ],
        frozen=True,
        gc=False,
        rename="camel",
    )
    pod = msgspec.defstruct(
        "_Pod",
        [("metadata", metadata), ("spec", _Spec), ("status", _Status, _Status())],
        frozen=True,
        gc=False,
    )
    items: Any = list[pod] | None  # type: ignore[valid-type]
    page = msgspec.defstruct("_PodPage", [("items", items, None)], frozen=True, gc=False)
    return msgspec.json.Decoder(page).decode


class PodReducer:
    """Collects the pods of a LIST. What it has seen before it does not compute again.

    `unreadable` has the namespaces in which a pod's request or constraints could not be read; the
    pod itself stays in `pods`, for it may be at work on its node.
    """

    def __init__(self, queue_annotation: str = QUEUE_KEY) -> None:
        self.pods: list[Pod] = []
        self.unreadable: dict[str, str] = {}
        self._decode = make_page_decoder(queue_annotation)
        self._strings: dict[str, str] = {}
        self._requests: dict[object, tuple[PodShape, bool]] = {}
        self._constrained: dict[object, PodShape] = {}
        self._shapes: dict[object, PodShape] = {}
        self._identities: dict[object, _Identity] = {}

    def clear(self) -> None:
        """Forgets the pods, for a LIST that starts over; what was computed stays."""
        self.pods.clear()
        self.unreadable.clear()

    def add(self, page: memoryview | bytes) -> None:
        """One page; raises msgspec.MsgspecError if it is no PodList."""
        share = self._strings.setdefault
        append = self.pods.append
        for item in self._decode(page).items or ():
            metadata, spec, status = item.metadata, item.spec, item.status
            is_yunikorn = spec.scheduler_name == _YUNIKORN
            identity = self._identify(metadata, is_yunikorn)
            node = spec.node_name or ""
            created = metadata.creation_timestamp or ""
            shape, claims = self._place(item, node)
            append(
                Pod(
                    namespace=share(metadata.namespace, metadata.namespace),
                    name=metadata.name,
                    shape=shape,
                    uid=metadata.uid,
                    created=share(created, created),
                    node=share(node, node),
                    running=status.phase == "Running",
                    app_id=identity.app_id,
                    queue=identity.queue,
                    is_yunikorn=is_yunikorn,
                    is_daemonset=any(
                        owner.kind == "DaemonSet" for owner in metadata.owner_references or ()
                    ),
                    is_mirror=identity.is_mirror,
                    is_terminating=metadata.deletion_timestamp is not None,
                    is_gated=is_given(spec.scheduling_gates),
                    is_placeholder=identity.is_placeholder,
                    is_rejected=status.reason == "ApplicationRejected",
                    priority=spec.priority or 0,
                    task_group=identity.task_group,
                    task_groups=identity.task_groups,
                    claims=claims,
                )
            )

    # --- whose it is --------------------------------------------------------------------------

    def _identify(self, metadata: Any, is_yunikorn: bool) -> _Identity:
        if not is_yunikorn and metadata.annotations is None:
            return _NOBODY
        labels = _decode_labels(metadata.labels) if metadata.labels is not EMPTY else None
        key = (metadata.namespace, labels, metadata.annotations, is_yunikorn)
        known = self._identities.get(key)
        if known is None:
            known = _read_identity(metadata, labels or _Labels(), is_yunikorn)
            if not known.is_own:
                self._identities[key] = known
        return known

    # --- where it fits ------------------------------------------------------------------------

    def _place(self, item: Any, node: str) -> tuple[PodShape, tuple[str, ...]]:
        """The shape, and the claims of an unbound pod. What can't be read spoils the namespace."""
        try:
            shape, is_resized = self._request(item.spec, item.status, False)
            if is_resized and _is_infeasible(item.status):
                shape, _ = self._request(item.spec, item.status, True)
            if node:
                return shape, ()
            return self._constrain(item, shape), _read_claims(item)
        except (msgspec.MsgspecError, QuantityError) as error:
            metadata = item.metadata
            self.unreadable.setdefault(
                metadata.namespace, f"pod {metadata.name} can't be read: {error}"
            )
            return _UNKNOWN_SHAPE, ()

    def _request(self, spec: _Spec, status: _Status, infeasible: bool) -> tuple[PodShape, bool]:
        """The shape without constraints, and whether a resize is under way."""
        key = _request_key(spec, status, infeasible)
        known = self._requests.get(key)
        if known is None:
            request = _read_request(spec, status, infeasible)
            amounts = effective_request(request)
            for name, amount in amounts.items():
                if amount < 0:
                    raise QuantityError(f"it asks for {amount} of {name}")
            known = self._intern(PodShape(request=amounts)), bool(request.states)
            self._requests[key] = known
        return known

    def _constrain(self, item: Any, shape: PodShape) -> PodShape:
        spec = item.spec
        parts = (
            bytes(spec.node_selector),
            bytes(spec.tolerations),
            bytes(spec.affinity),
            bytes(spec.topology_spread_constraints),
        )
        ports = tuple(bytes(container.ports) for container in spec.containers)
        has_peers = bool(parts[2] or parts[3])  # only then do its own labels matter
        key = (id(shape), parts, ports, bytes(item.metadata.labels) if has_peers else b"")
        known = self._constrained.get(key)
        if known is None:
            limits = read_constraints(*parts)
            with_labels = limits.pod_affinity or limits.spread_keys
            labels = _decode_strings(item.metadata.labels) if with_labels and key[3] else {}
            known = self._intern(
                PodShape(
                    request=shape.request,
                    node_selector=limits.node_selector,
                    tolerations=limits.tolerations,
                    node_affinity=limits.node_affinity,
                    pod_affinity=limits.pod_affinity,
                    spread_keys=limits.spread_keys,
                    host_ports=read_host_ports(ports),
                    labels=tuple(sorted(labels.items())),
                )
            )
            self._constrained[key] = known
        return known

    def _intern(self, shape: PodShape) -> PodShape:
        """Equal shapes are one object; keyed by their text, for a mapping can't be a key."""
        return self._shapes.setdefault(msgspec.json.encode(shape, order="sorted"), shape)


def _read_identity(metadata: Any, labels: _Labels, is_yunikorn: bool) -> _Identity:
    annotations = metadata.annotations
    notes = {
        key: getattr(annotations, field)
        for field, key in _ANNOTATIONS.items()
        if annotations is not None and getattr(annotations, field) is not None
    }
    names = {
        field.encode_name: getattr(labels, field.name)
        for field in msgspec.structs.fields(_Labels)
        if getattr(labels, field.name) is not None
    }
    app_id = ""
    if is_yunikorn:
        app_id = application_id(names, notes, metadata.namespace, metadata.uid)
    site_queue = getattr(annotations, "site_queue", None)
    return _Identity(
        app_id=app_id,
        queue=requested_queue(names, {**notes, _NOT_A_KEY: site_queue or ""}, _NOT_A_KEY),
        task_group=notes.get(_ANNOTATIONS["task_group"], ""),
        task_groups=task_groups(notes.get(_ANNOTATIONS["task_groups"], "")),
        is_placeholder="true"
        in (
            notes.get(_ANNOTATIONS["placeholder"]),
            notes.get(_ANNOTATIONS["placeholder_before_1_6"]),
            names.get("placeholder"),
        ),
        is_mirror=_ANNOTATIONS["mirror"] in notes,
        is_own=bool(metadata.uid) and app_id.endswith(metadata.uid),
    )


def _request_key(spec: _Spec, status: _Status, infeasible: bool) -> object:
    """All bytes that decide the request. Mostly one container without a resize in its status."""
    states = status.container_statuses or ()
    if not (spec.init_containers or status.init_container_statuses):
        containers = tuple(bytes(container.resources) for container in spec.containers)
        if spec.overhead is EMPTY and spec.resources is EMPTY:
            for state in states:
                if state.allocated is not EMPTY or state.resources is not EMPTY:
                    break
            else:
                return containers
    return (
        infeasible,
        bytes(spec.overhead),
        bytes(spec.resources),
        tuple((c.name, bytes(c.resources)) for c in spec.containers),
        tuple((c.name, bytes(c.resources), c.restart_policy) for c in spec.init_containers or ()),
        tuple(
            (s.name, bytes(s.allocated), bytes(s.resources))
            for s in (*states, *(status.init_container_statuses or ()))
        ),
    )


def _read_request(spec: _Spec, status: _Status, infeasible: bool) -> PodRequest:
    """`states` holds only containers whose status says something else than their spec."""
    containers = tuple(
        ContainerRequest(name=container.name, requests=_requests(container.resources))
        for container in spec.containers
    )
    init_containers = tuple(
        ContainerRequest(
            name=container.name,
            requests=_requests(container.resources),
            is_sidecar=container.restart_policy == "Always",
        )
        for container in spec.init_containers or ()
    )
    wanted = {container.name: container.requests for container in (*containers, *init_containers)}
    states: dict[str, ContainerState] = {}
    for state in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        allocated = _strings(state.allocated)
        requests = _requests(state.resources) if state.resources is not EMPTY else None
        if allocated or requests:
            wish = wanted.get(state.name, {})
            if not (allocated in ({}, wish) and requests in (None, {}, wish)):
                states[state.name] = ContainerState(allocated=allocated, requests=requests)
    return PodRequest(
        containers=containers,
        init_containers=init_containers,
        pod_level=_requests(spec.resources),
        overhead=_strings(spec.overhead),
        states=states,
        resize_infeasible=infeasible,
    )


def _requests(raw: msgspec.Raw) -> dict[str, str]:
    return (_decode_requests(raw).requests or {}) if is_given(raw) else {}


def _strings(raw: msgspec.Raw) -> dict[str, str]:
    return _decode_strings(raw) if is_given(raw) else {}


def _is_infeasible(status: _Status) -> bool:
    """A resize that the node can't grant: `status.resize`, since Kubernetes 1.33 a condition."""
    if status.resize == "Infeasible":
        return True
    conditions = _decode_conditions(status.conditions) if is_given(status.conditions) else ()
    return any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in conditions
    )


def _read_claims(item: Any) -> tuple[str, ...]:
    """Names of the pod's claims; that of a generic ephemeral volume is made of pod and volume."""
    volumes = _decode_volumes(item.spec.volumes) if is_given(item.spec.volumes) else ()
    names = []
    for volume in volumes:
        if volume.claim is not None:
            names.append(volume.claim.name)
        elif volume.ephemeral is not EMPTY:
            names.append(f"{item.metadata.name}-{volume.name}")
    return tuple(sorted(names))
