"""What binds a pod to some nodes: selectors, tolerations, affinities, spread, host ports.

Decoded from the bytes of the single fields, and only for pods that are not bound. Preferences are
left out: they never keep a pod pending.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dnm.model.pod import NodeSelectorTerm, PodAffinityTerm, Requirement, Toleration


class Constraints(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a `PodShape` that come from the pod's spec."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_affinity: tuple[NodeSelectorTerm, ...] = ()
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    spread_keys: tuple[str, ...] = ()


class _Toleration(msgspec.Struct, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Expression(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


class _NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _VolumeAffinity(msgspec.Struct, frozen=True):
    required: _NodeSelector | None = None


class _NodeAffinity(
    msgspec.Struct,
    frozen=True,
    rename={"required": "requiredDuringSchedulingIgnoredDuringExecution"},
):
    required: _NodeSelector | None = None


class _LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _PodTerm(msgspec.Struct, frozen=True, rename="camel"):
    topology_key: str
    label_selector: _LabelSelector | None = None
    namespaces: list[str] | None = None


class _PodAffinity(
    msgspec.Struct,
    frozen=True,
    rename={"required": "requiredDuringSchedulingIgnoredDuringExecution"},
):
    required: list[_PodTerm] | None = None


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Spread(msgspec.Struct, frozen=True, rename="camel"):
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    host_port: int | None = None


_decode_selector = msgspec.json.Decoder(dict[str, str] | None).decode
_decode_tolerations = msgspec.json.Decoder(list[_Toleration] | None).decode
_decode_affinity = msgspec.json.Decoder(_Affinity | None).decode
_decode_spread = msgspec.json.Decoder(list[_Spread] | None).decode
_decode_ports = msgspec.json.Decoder(list[_Port] | None).decode
_decode_volume_affinity = msgspec.json.Decoder(_VolumeAffinity | None).decode


def read_constraints(
    selector: bytes, tolerations: bytes, affinity: bytes, spread: bytes
) -> Constraints:
    """From the JSON of the four fields of a pod's spec, each empty where it is absent.

    Raises msgspec.MsgspecError.
    """
    wants = _decode_affinity(affinity) if affinity else None
    node_affinity = wants.node_affinity if wants else None
    return Constraints(
        node_selector=tuple(
            sorted(((_decode_selector(selector) if selector else None) or {}).items())
        ),
        tolerations=tuple(
            Toleration(
                key=entry.key or "",
                operator=entry.operator or "Equal",
                value=entry.value or "",
                effect=entry.effect or "",
            )
            for entry in (_decode_tolerations(tolerations) if tolerations else None) or ()
        ),
        node_affinity=_terms(node_affinity.required if node_affinity else None),
        pod_affinity=(
            *_pod_terms(wants.pod_affinity if wants else None, anti=False),
            *_pod_terms(wants.pod_anti_affinity if wants else None, anti=True),
        ),
        spread_keys=tuple(
            sorted(
                {
                    entry.topology_key
                    for entry in (_decode_spread(spread) if spread else None) or ()
                    if entry.when_unsatisfiable == "DoNotSchedule"
                }
            )
        ),
    )


def read_host_ports(ports: Iterable[bytes]) -> tuple[int, ...]:
    """Of all containers' `ports`, sorted, each once. Raises msgspec.MsgspecError."""
    found = {
        port.host_port
        for raw in ports
        if raw
        for port in _decode_ports(raw) or ()
        if port.host_port
    }
    return tuple(sorted(found))


def read_volume_affinity(raw: bytes) -> tuple[NodeSelectorTerm, ...]:
    """A PersistentVolume's `spec.nodeAffinity`. Raises msgspec.MsgspecError."""
    affinity = _decode_volume_affinity(raw) if raw else None
    return _terms(affinity.required if affinity else None)


def _terms(selector: _NodeSelector | None) -> tuple[NodeSelectorTerm, ...]:
    """The alternatives. One without any requirement matches no node and is kept as it is."""
    return tuple(
        NodeSelectorTerm(
            expressions=_requirements(term.match_expressions),
            fields=_requirements(term.match_fields),
        )
        for term in (selector.node_selector_terms if selector else None) or ()
    )


def _requirements(expressions: list[_Expression] | None) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(key=entry.key, operator=entry.operator, values=tuple(entry.values or ()))
        for entry in expressions or ()
    )


def _pod_terms(affinity: _PodAffinity | None, anti: bool) -> tuple[PodAffinityTerm, ...]:
    """A term without a label selector matches no pod: it keeps nothing apart."""
    return tuple(
        PodAffinityTerm(
            topology_key=term.topology_key,
            anti=anti,
            expressions=_label_requirements(term.label_selector or _LabelSelector()),
            namespaces=tuple(term.namespaces or ()),
        )
        for term in (affinity.required if affinity else None) or ()
        if term.label_selector is not None or not anti
    )


def _label_requirements(selector: _LabelSelector) -> tuple[Requirement, ...]:
    equal = tuple(
        Requirement(key=key, operator="In", values=(value,))
        for key, value in sorted((selector.match_labels or {}).items())
    )
    return equal + _requirements(selector.match_expressions)
