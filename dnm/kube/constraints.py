"""What binds a pod to some nodes: selectors, tolerations, affinities, spread, host ports.

Decoded from the bytes of the single fields, and only for pods that are not bound. Preferences are
left out: they never keep a pod pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dnm.model.pod import NodeSelectorTerm, PodAffinityTerm, PodShape, Requirement, Toleration

_REQUIRED = {"required": "requiredDuringSchedulingIgnoredDuringExecution"}


class _NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class VolumeAffinity(msgspec.Struct, frozen=True):
    """A PersistentVolume's `spec.nodeAffinity`."""

    required: _NodeSelector = _NodeSelector()

    @property
    def terms(self) -> tuple[NodeSelectorTerm, ...]:
        """The alternatives. One without any requirement matches no node and is kept as it is."""
        return self.required.node_selector_terms


class _NodeAffinity(VolumeAffinity, frozen=True, rename=_REQUIRED):
    required: _NodeSelector = _NodeSelector()


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """As the API has it."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None

    def requirements(self) -> tuple[Requirement, ...]:
        """Returns all of it, a label as In with one value."""
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
    """What of a pod's spec says which nodes it may be on."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: _Affinity = _Affinity()

    def shape(self) -> PodShape:
        """Returns the shape of a pod that asks for nothing, whatever other pods there are."""
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


_decode_selector = msgspec.json.Decoder(dict[str, str]).decode
_decode_tolerations = msgspec.json.Decoder(tuple[Toleration, ...]).decode
_decode_affinity = msgspec.json.Decoder(_Affinity).decode
_decode_spread = msgspec.json.Decoder(list[_Spread]).decode
_decode_ports = msgspec.json.Decoder(list[_Port]).decode


def read_constraints(
    selector: bytes, tolerations: bytes, affinity: bytes, spread: bytes
) -> PodShape:
    """Returns the shape of a pod that asks for nothing, from the JSON of the four fields of its
    spec, each empty where it is absent.

    Raises msgspec.MsgspecError.
    """
    rules = NodeRules(
        node_selector=_decode_selector(selector) if selector else {},
        tolerations=_decode_tolerations(tolerations) if tolerations else (),
        affinity=_decode_affinity(affinity) if affinity else _Affinity(),
    )
    spreads = _decode_spread(spread) if spread else []
    keys = {one.topology_key for one in spreads if one.when_unsatisfiable == "DoNotSchedule"}
    return msgspec.structs.replace(
        rules.shape(),
        pod_affinity=(
            *_pod_terms(rules.affinity.pod_affinity, anti=False),
            *_pod_terms(rules.affinity.pod_anti_affinity, anti=True),
        ),
        spread_keys=tuple(sorted(keys)),
    )


def read_host_ports(ports: Iterable[bytes]) -> tuple[int, ...]:
    """Of all containers' `ports`, sorted, each once. Raises msgspec.MsgspecError."""
    found = {port.host_port for raw in ports if raw for port in _decode_ports(raw)}
    return tuple(sorted(found - {0}))


def _pod_terms(affinity: _PodAffinity, anti: bool) -> Sequence[PodAffinityTerm]:
    """A term without a label selector matches no pod: it keeps nothing apart."""
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
