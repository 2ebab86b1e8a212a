"""The facts about one pod, read from the bytes of its fields.

These are the requests of its containers, the parts that a kubelet aligns, its application, queue
and gang from labels and annotations, and its constraints. dnm reads constraints only of unbound
pods. It ignores preferences, since they never keep a pod pending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from dnm.demand.pod_request import (
    ContainerRequest,
    ContainerState,
    PodRequest,
)
from dnm.kube.pod_fields import (
    EMPTY,
    GROUP_ANNOTATION,
    GROUP_LABEL,
    Container,
    ContainerStatus,
    Spec,
    Status,
    has_value,
)
from dnm.model.pod import (
    LONGEST_GROUP,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodShape,
    Requirement,
    Toleration,
)
from dnm.model.pod_waits import GROUPS

_LONGEST_KEY = 256  # bytes of a key


class _Requests(msgspec.Struct, frozen=True):
    requests: dict[str, str] | None = None


class _PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None


_decode_requests = msgspec.json.Decoder(_Requests).decode
_decode_strings = msgspec.json.Decoder(dict[str, str]).decode
decode_conditions = msgspec.json.Decoder(list[_PodCondition]).decode


def short_key(text: bytes) -> bytes:
    """Returns the text, or its hash if it is long, as a key of a cache. A tenant can make any
    number of texts, each as long as Kubernetes accepts."""
    return text if len(text) <= _LONGEST_KEY else sha256(text).digest()


def request_key(spec: Spec, status: Status) -> object:
    """Returns the bytes on which a pod's request depends: equal ones mean an equal request."""
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


def read_request(spec: Spec, status: Status, infeasible: bool) -> PodRequest:
    """Returns a pod's request. `states` has the containers with other amounts in their status."""
    containers = tuple(container_request_of(container) for container in spec.containers)
    init_containers = tuple(container_request_of(item) for item in spec.init_containers or ())
    wanted = {container.name: container.requests for container in (*containers, *init_containers)}
    states: dict[str, ContainerState] = {}
    for state in _all_states(status):
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


def container_request_of(container: Container) -> ContainerRequest:
    return ContainerRequest(
        name=container.name,
        requests=_requests(container.resources),
        is_sidecar=container.restart_policy == "Always",
    )


def _requests(raw: msgspec.Raw) -> dict[str, str]:
    return (_decode_requests(raw).requests or {}) if has_value(raw) else {}


def _strings(raw: msgspec.Raw) -> dict[str, str]:
    return _decode_strings(raw) if has_value(raw) else {}


def is_infeasible(status: Status) -> bool:
    """Returns whether the pod has requested a resize that its node cannot grant. Kubernetes before
    1.33 reports that in `status.resize`, later releases in a condition."""
    if status.resize == "Infeasible":
        return True
    conditions = decode_conditions(status.conditions) if has_value(status.conditions) else ()
    return any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in conditions
    )


def read_group(notes: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """Returns API group and name of the PodGroup to which a pod belongs, or an empty text."""
    if label := labels.get(GROUP_LABEL):
        return f"{GROUPS[1]}/{label}"
    note = notes.get(GROUP_ANNOTATION)
    return f"{GROUPS[2]}/{note[:LONGEST_GROUP]}" if note else ""


def rare_fields(metadata: Any, spec: Any, status: Any) -> dict[str, Any]:
    """Returns the fields of `Pod` that matter only for unbound, terminating or grouped pods."""
    named: dict[str, Any] = {}
    if has_value(spec.resource_claims) or has_value(spec.scheduling_group):
        from dnm.kube.pod_groups import named_in_spec  # few pods have any

        named = named_in_spec(spec)
    return {
        "is_terminating": metadata.deletion_timestamp is not None,
        "is_gated": has_value(spec.scheduling_gates),
        "is_rejected": status.reason == "ApplicationRejected",
        **named,
    }


# --- constraints ---------------------------------------------------------------------------------

_REQUIRED = {"required": "requiredDuringSchedulingIgnoredDuringExecution"}


class _NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class VolumeAffinity(msgspec.Struct, frozen=True):
    """The node affinity of a PersistentVolume (`spec.nodeAffinity`)."""

    required: _NodeSelector = _NodeSelector()

    @property
    def terms(self) -> tuple[NodeSelectorTerm, ...]:
        """Returns the alternative terms. A term without requirements matches no node."""
        return self.required.node_selector_terms


class _NodeAffinity(VolumeAffinity, frozen=True, rename=_REQUIRED):
    required: _NodeSelector = _NodeSelector()


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """A label selector with the fields that the API has."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None

    def requirements(self) -> tuple[Requirement, ...]:
        """Returns all requirements. An entry of matchLabels becomes an `In` with one value."""
        equal = (
            Requirement(key=key, operator="In", values=(value,))
            for key, value in sorted((self.match_labels or {}).items())
        )
        return (*equal, *(self.match_expressions or ()))


class _PodTerm(msgspec.Struct, frozen=True, rename="camel"):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()


class _PodAffinity(msgspec.Struct, frozen=True, rename=_REQUIRED):
    required: list[_PodTerm] = []


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity = _NodeAffinity()
    pod_affinity: _PodAffinity = _PodAffinity()
    pod_anti_affinity: _PodAffinity = _PodAffinity()


class NodeRules(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's spec that decides on which nodes it may run."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: _Affinity = _Affinity()

    def shape(self) -> PodShape:
        """Returns a pod's shape with these node rules, but without requests and pod affinity."""
        return PodShape(
            request={},
            node_selector=tuple(sorted(self.node_selector.items())),
            tolerations=self.tolerations,
            node_affinity=self.affinity.node_affinity.terms,
        )


class _Spread(msgspec.Struct, frozen=True, rename="camel"):
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    host_port: int = 0


_decode_tolerations = msgspec.json.Decoder(tuple[Toleration, ...]).decode
_decode_affinity = msgspec.json.Decoder(_Affinity).decode
_decode_spread = msgspec.json.Decoder(list[_Spread]).decode
_decode_ports = msgspec.json.Decoder(list[_Port]).decode


def read_constraints(
    selector: bytes, tolerations: bytes, affinity: bytes, spread: bytes
) -> PodShape:
    """Returns a shape with the pod's constraints and no requests. The parameters are the JSON of
    four fields of its spec, each empty if the field is absent.

    Raises msgspec.MsgspecError."""
    rules = NodeRules(
        node_selector=_decode_strings(selector) if selector else {},
        tolerations=_decode_tolerations(tolerations) if tolerations else (),
        affinity=_decode_affinity(affinity) if affinity else _Affinity(),
    )
    spreads = _decode_spread(spread) if spread else []
    keys = {
        spread.topology_key for spread in spreads if spread.when_unsatisfiable == "DoNotSchedule"
    }
    return msgspec.structs.replace(
        rules.shape(),
        pod_affinity=(
            *_pod_terms(rules.affinity.pod_affinity, anti=False),
            *_pod_terms(rules.affinity.pod_anti_affinity, anti=True),
        ),
        spread_keys=tuple(sorted(keys)),
    )


def read_host_ports(ports: Iterable[bytes]) -> tuple[int, ...]:
    """Returns the distinct host ports of all containers, sorted. Raises msgspec.MsgspecError."""
    numbers = {port.host_port for raw in ports if raw for port in _decode_ports(raw)}
    return tuple(sorted(numbers - {0}))


def _pod_terms(affinity: _PodAffinity, anti: bool) -> Sequence[PodAffinityTerm]:
    """Returns (anti-)affinity terms of a pod, but no anti-affinity term without a selector."""
    return [
        PodAffinityTerm(
            topology_key=term.topology_key,
            anti=anti,
            expressions=(term.label_selector or LabelSelector()).requirements(),
            namespaces=term.namespaces,
        )
        for term in affinity.required
        if term.label_selector is not None or not anti
    ]
