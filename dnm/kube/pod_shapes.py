"""A pod's request and constraints, computed once for all pods whose bytes agree.

Equal shapes are one object, so that a later group-by may go by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from dnm.demand.pod_request import (
    ContainerRequest,
    ContainerState,
    PodRequest,
    effective_request,
    with_counted_names,
)
from dnm.kube.constraints import read_constraints, read_host_ports
from dnm.kube.pod_fields import EMPTY, Container, ContainerStatus, Spec, Status, is_given
from dnm.model.kubelet import Amounts
from dnm.model.pod import PodShape
from dnm.model.quantity import QuantityError, kube_resources, parse_kubernetes

MOST_CONTAINERS = 100  # of a pod that is not bound
MOST_RULES = 100  # of a pod: PodShape.rules; of claims too
_LONGEST_KEY = 256  # bytes of what is kept to know it again
_LONGEST_RULES = 16 * 1024  # bytes of a pod's rules that are looked into
_MOST_KNOWN = 4096  # kept to know them again: a list is sorted, and equal pods stand together


class _Requests(msgspec.Struct, frozen=True):
    requests: dict[str, str] | None = None


class _PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    reason: str | None = None


_decode_requests = msgspec.json.Decoder(_Requests).decode
_decode_strings = msgspec.json.Decoder(dict[str, str]).decode
_decode_conditions = msgspec.json.Decoder(list[_PodCondition]).decode


class ShapeBook:
    """The shapes seen so far. Its methods raise msgspec.MsgspecError or QuantityError."""

    def __init__(self) -> None:
        self._requested: dict[object, tuple[PodShape, bool]] = {}
        self._constrained: dict[object, PodShape] = {}
        self._shapes: dict[bytes, PodShape] = {}

    def find_request(self, spec: Spec, status: Status) -> PodShape:
        """The shape without constraints: all that matters of a bound pod."""
        containers = len(spec.containers) + len(spec.init_containers or ())
        if containers > MOST_CONTAINERS and not spec.node_name:
            return self.cut(PodShape(request={"pods": 1}))
        key = _request_key(spec, status)
        shape, is_resized = self._requested.get(key) or self._learn(key, spec, status, False)
        if is_resized and _is_infeasible(status):
            key = ("infeasible", key)
            shape, _ = self._requested.get(key) or self._learn(key, spec, status, True)
        return shape

    def _learn(
        self, key: object, spec: Spec, status: Status, infeasible: bool
    ) -> tuple[PodShape, bool]:
        """The shape, and whether its containers' status says something else than their spec."""
        whole = _read_request(spec, status, infeasible)
        counted = with_counted_names(whole)
        request = counted or whole
        amounts = effective_request(request)
        for name, amount in amounts.items():
            if amount < 0:
                raise QuantityError(f"it asks for {amount} of {name}")
        before = effective_request(request, is_before_1_9=True) if request.init_containers else {}
        shape = PodShape(
            request=amounts,
            request_before_1_9=before if before != amounts else {},
            is_cut=counted is not None,
        )
        learnt = self._intern(shape), bool(request.states)
        if len(self._requested) >= _MOST_KNOWN:
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
        """The shape of an unbound pod; `labels` are all it has where `has_peers` says so, `aligned`
        what of it a kubelet may align to one NUMA node."""
        parts = (
            bytes(spec.node_selector),
            bytes(spec.tolerations),
            bytes(spec.affinity),
            bytes(spec.topology_spread_constraints),
        )
        ports = tuple(bytes(container.ports) for container in spec.containers)
        own = tuple(sorted(labels.items()))
        if shape.is_cut or sum(map(len, (*parts, *ports))) > _LONGEST_RULES:
            return self.cut(shape)
        key = (id(shape), *map(short_key, (*parts, msgspec.json.encode((ports, own)))), aligned)
        known = self._constrained.get(key)
        if known is None:
            limits = read_constraints(*parts)
            known = self._intern(
                PodShape(
                    request=shape.request,
                    request_before_1_9=shape.request_before_1_9,
                    node_selector=limits.node_selector,
                    tolerations=limits.tolerations,
                    node_affinity=limits.node_affinity,
                    pod_affinity=limits.pod_affinity,
                    spread_keys=limits.spread_keys,
                    host_ports=read_host_ports(ports),
                    labels=own if limits.pod_affinity or limits.spread_keys else (),
                    aligned=aligned,
                )
            )
            known = self.cut(shape) if known.rules > MOST_RULES else known
            self._constrained[key] = known
        return known

    def cut(self, shape: PodShape) -> PodShape:
        """The shape of an unbound pod that asks for more than is counted."""
        return self._intern(msgspec.structs.replace(shape, is_cut=True))

    def _intern(self, shape: PodShape) -> PodShape:
        """Keyed by the text, for a mapping can't be a key."""
        return self._shapes.setdefault(short_key(msgspec.json.encode(shape, order="sorted")), shape)


def short_key(text: bytes) -> bytes:
    """What tells a text from others, in few bytes: a tenant makes as many texts as he likes, each
    as long as Kubernetes takes it."""
    return text if len(text) <= _LONGEST_KEY else sha256(text).digest()


def has_peers(spec: Spec) -> bool:
    """Whether other pods may keep this one from a node, so that its own labels matter."""
    return spec.affinity is not EMPTY or spec.topology_spread_constraints is not EMPTY


def aligned_amounts(spec: Spec, is_guaranteed: bool) -> tuple[Amounts, Amounts] | None:
    """What of a pod's largest container, and of the whole pod without its overhead, a kubelet may
    align to one NUMA node: devices, and of a Guaranteed pod memory, huge pages and CPUs by the
    whole. Where it has resources of its own, the managers leave those out. None: nothing."""
    is_pinned = is_guaranteed and not is_given(spec.resources)

    def kept(containers: Sequence[Container] | None) -> tuple[ContainerRequest, ...]:
        found = map(_container_request, containers or ())
        return tuple(
            msgspec.structs.replace(one, requests={
                name: amount for name, amount in one.requests.items()
                if "/" in name or (is_pinned and _is_pinned(name, amount))
            })
            for one in found
        )  # fmt: skip

    asked = PodRequest(containers=kept(spec.containers), init_containers=kept(spec.init_containers))
    asked = with_counted_names(asked) or asked
    largest: dict[str, int] = {}
    for container in (*asked.containers, *asked.init_containers):
        for name, amount in kube_resources(container.requests).items():
            largest[name] = max(amount, largest.get(name, 0))
    whole = {name: n for name, n in effective_request(asked).items() if name != "pods"}
    return (tuple(sorted(largest.items())), tuple(sorted(whole.items()))) if whole else None


def _is_pinned(name: str, amount: str) -> bool:
    if name == "cpu":
        return parse_kubernetes("cpu", amount) % 1000 == 0
    return name == "memory" or name.startswith("hugepages-")


def _request_key(spec: Spec, status: Status) -> object:
    """All bytes that decide the request. Most pods have one container and nothing else."""
    containers, states = spec.containers, status.container_statuses
    is_plain = (
        len(containers) == 1
        and spec.init_containers is None
        and spec.overhead is EMPTY
        and spec.resources is EMPTY
    )
    if is_plain and not states:
        return bytes(containers[0].resources)
    if is_plain and states and len(states) == 1 and states[0].name == containers[0].name:
        return (
            bytes(containers[0].resources),
            bytes(states[0].allocated_resources),
            bytes(states[0].resources),
        )
    parts = (spec.overhead, spec.resources, containers, spec.init_containers, _all_states(status))
    return short_key(msgspec.json.encode(parts))


def _all_states(status: Status) -> Sequence[ContainerStatus]:
    return [*(status.container_statuses or ()), *(status.init_container_statuses or ())]


def _read_request(spec: Spec, status: Status, infeasible: bool) -> PodRequest:
    """`states` holds only the containers whose status says something else than their spec."""
    containers = tuple(_container_request(container) for container in spec.containers)
    init_containers = tuple(_container_request(item) for item in spec.init_containers or ())
    wanted = {container.name: container.requests for container in (*containers, *init_containers)}
    states: dict[str, ContainerState] = {}
    written = {container.name: bytes(container.resources) for container in spec.containers}
    for state in _all_states(status):
        if _says_the_same(state, written.get(state.name, b"")):
            continue
        allocated = _strings(state.allocated_resources)
        is_reported = state.resources is not EMPTY and bytes(state.resources) != b"null"
        requests = _requests(state.resources) if is_reported else None
        wish = wanted.get(state.name, {})
        if allocated not in ({}, wish) or requests not in (None, wish):
            states[state.name] = ContainerState(allocated=allocated, requests=requests)
    return PodRequest(
        containers=containers,
        init_containers=init_containers,
        pod_level=_requests(spec.resources),
        overhead=_strings(spec.overhead),
        states=states,
        resize_infeasible=infeasible,
    )


def _says_the_same(state: ContainerStatus, written: bytes) -> bool:
    """Whether the status repeats the spec, by its bytes: the API server writes both in one form."""
    allocated = state.allocated_resources
    return bytes(state.resources) == written and (
        allocated is EMPTY or written.endswith(b'"requests":%b}' % bytes(allocated))
    )


def _container_request(container: Container) -> ContainerRequest:
    return ContainerRequest(
        name=container.name,
        requests=_requests(container.resources),
        is_sidecar=container.restart_policy == "Always",
    )


def _requests(raw: msgspec.Raw) -> dict[str, str]:
    return (_decode_requests(raw).requests or {}) if is_given(raw) else {}


def _strings(raw: msgspec.Raw) -> dict[str, str]:
    return _decode_strings(raw) if is_given(raw) else {}


def _is_infeasible(status: Status) -> bool:
    """A resize that the node can't grant: `status.resize`, since Kubernetes 1.33 a condition."""
    if status.resize == "Infeasible":
        return True
    conditions = _decode_conditions(status.conditions) if is_given(status.conditions) else ()
    return any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in conditions
    )
