"""The shapes of pods and DaemonSets: the properties of a pod that decide where it fits. A shape is
computed once for all pods with the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dnm.demand.pod_request import count_rules, effective_request, with_counted_names
from dnm.host.fault_points import fault_point
from dnm.kube.objects import Metadata
from dnm.kube.pod_fields import Spec, Status, has_value
from dnm.kube.pod_reading import (
    is_infeasible,
    read_constraints,
    read_host_ports,
    read_request,
    request_key,
    short_key,
)
from dnm.kube.requests import ApiRequests, List
from dnm.model.errors import KubeError
from dnm.model.kubelet import Amounts
from dnm.model.pod import DaemonSet, PodShape
from dnm.model.quantity import QuantityError
from dnm.model.value import Unreadable

MOST_CACHED = 4096  # cached entries: lists are sorted, with equal pods in sequence
MOST_CONTAINERS = 100  # of a pod that is not bound
MOST_RULES = 100  # of a pod, by `count_rules`; of claims too
_LONGEST_RULES = 16 * 1024  # bytes of a pod's rules that dnm reads


class ShapeCache:
    """A cache of the shapes so far. Equal shapes are one object, so that code may group pods by
    identity. The methods raise msgspec.MsgspecError or QuantityError."""

    def __init__(self) -> None:
        self._requested: dict[object, tuple[PodShape, bool]] = {}
        self._constrained: dict[object, PodShape] = {}
        self._shapes: dict[bytes, PodShape] = {}

    def find_request(self, spec: Spec, status: Status) -> PodShape:
        """Returns the pod's shape with its request only. A bound pod needs no constraints."""
        containers = len(spec.containers) + len(spec.init_containers or ())
        if containers > MOST_CONTAINERS and not spec.node_name:
            return self.cut(PodShape(request={"pods": 1}))
        key = request_key(spec, status)
        shape, is_resized = self._requested.get(key) or self._learn(key, spec, status, False)
        if is_resized and is_infeasible(status):
            key = ("infeasible", key)
            shape, _ = self._requested.get(key) or self._learn(key, spec, status, True)
        return shape

    def _learn(
        self, key: object, spec: Spec, status: Status, infeasible: bool
    ) -> tuple[PodShape, bool]:
        """Computes and caches a pod's shape. Returns it, and whether the pod is being resized."""
        requested = read_request(spec, status, infeasible)
        counted = with_counted_names(requested)
        request = counted or requested
        amounts = effective_request(request)
        for name, amount in amounts.items():
            if amount < 0:
                raise QuantityError(f"it asks for {amount} of {name}")
        before = effective_request(request, sidecars_twice=True) if request.init_containers else {}
        shape = PodShape(
            request=amounts,
            request_sidecars_twice=before if before != amounts else {},
            is_cut=counted is not None,
        )
        learnt = self._intern(shape), bool(request.states)
        if len(self._requested) >= MOST_CACHED:
            self._requested.clear()
        self._requested[key] = learnt
        return learnt

    def find_constrained(
        self,
        spec: Spec,
        shape: PodShape,
        labels: dict[str, str],
        aligned: tuple[Amounts, Amounts] | None = None,
    ) -> PodShape:
        """Returns the shape of an unbound pod, with its constraints. `labels` matter if other pods
        may keep the pod from a node, `aligned` if a kubelet may align the pod to a NUMA node."""
        rules = spec.node_selector, spec.tolerations, spec.affinity
        raws = (*rules, spec.topology_spread_constraints)
        parts = [bytes(raw) if has_value(raw) else b"" for raw in raws]
        ports = [
            bytes(container.ports) if has_value(container.ports) else b""
            for container in spec.containers
        ]
        own = tuple(sorted(labels.items()))
        if shape.is_cut or sum(map(len, (*parts, *ports))) > _LONGEST_RULES:
            return self.cut(shape)
        key = (id(shape), *map(short_key, (*parts, msgspec.json.encode((ports, own)))), aligned)
        constrained = self._constrained.get(key)
        if constrained is None:
            limits = read_constraints(*parts)
            constrained = self._intern(msgspec.structs.replace(
                limits, request=shape.request, request_sidecars_twice=shape.request_sidecars_twice,
                host_ports=read_host_ports(ports), aligned=aligned,
                labels=own if limits.pod_affinity or limits.spread_keys else (),
            ))  # fmt: skip
            constrained = self.cut(shape) if count_rules(constrained) > MOST_RULES else constrained
            self._constrained[key] = constrained
        return constrained

    def cut(self, shape: PodShape) -> PodShape:
        """Returns the shape, marked as having more rules or containers than dnm counts."""
        return self._intern(msgspec.structs.replace(shape, is_cut=True))

    def _intern(self, shape: PodShape) -> PodShape:
        """Returns the cached shape that equals this one, so that equal shapes are one object."""
        return self._shapes.setdefault(short_key(msgspec.json.encode(shape, order="sorted")), shape)


# --- DaemonSets -------------------------------------------------------------------------------


class _Template(msgspec.Struct, frozen=True):
    spec: Spec = Spec()


class _DaemonSpec(msgspec.Struct, frozen=True):
    template: _Template = _Template()


class _DaemonSet(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _DaemonSpec = _DaemonSpec()


class _Page(msgspec.Struct, frozen=True):
    items: list[_DaemonSet]


_decode_page = msgspec.json.Decoder(_Page).decode


def read_daemon_sets(requests: ApiRequests) -> tuple[DaemonSet, ...] | Unreadable:
    """Returns the DaemonSets with pods that dnm can count. Pods of other DaemonSets count as
    ordinary pods, since a tenant may write a DaemonSet that dnm cannot count."""
    task = "list the DaemonSets"
    try:
        with requests.asking(task, "list daemonsets"), fault_point("kube.list_daemon_sets"):
            daemon_sets = List("/apis/apps/v1/daemonsets", "DaemonSetList")
            return tuple(requests.collect(daemon_sets, _reduce_page))
    except KubeError as error:
        return Unreadable(subject="DaemonSets", error=str(error))


def _reduce_page(page: memoryview) -> Iterator[DaemonSet]:
    shapes = ShapeCache()
    for item in _decode_page(page).items:
        spec = item.spec.template.spec
        try:
            shape = shapes.find_constrained(spec, shapes.find_request(spec, Status()), {})
        except (msgspec.MsgspecError, QuantityError, ValueError):
            continue
        if not shape.is_cut:
            # The controller ignores other pods.
            shape = msgspec.structs.replace(shape, pod_affinity=(), spread_keys=(), host_ports=())
            yield DaemonSet(
                namespace=item.metadata.namespace, name=item.metadata.name,
                uid=item.metadata.uid, shape=shape,
            )  # fmt: skip
