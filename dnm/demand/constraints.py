"""May a pod of this shape be on a node with these labels and taints? As kube-scheduler decides.

Room is not asked here. Where a snapshot knows too little, the answer errs as each docstring says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dnm.model.kubelet import NumaRoom
from dnm.model.node_type import Taint
from dnm.model.pod import NodeSelectorTerm, PodAffinityTerm, PodShape, Requirement, Toleration
from dnm.model.quantity import format_amount
from dnm.model.value import Value

HOSTNAME = "kubernetes.io/hostname"
_REPELLING = ("NoSchedule", "NoExecute")


class NodeTraits(Value):
    """Holds what of a node decides whether a pod may be there. An empty `name`: a node to come."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    name: str = ""
    numa: NumaRoom | None = None  # None: pods are not aligned to one NUMA node


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Returns whether a taint admits a pod; PreferNoSchedule always does."""
    if taint.effect not in _REPELLING:
        return True
    return any(_matches_taint(toleration, taint) for toleration in tolerations)


def _matches_taint(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Returns whether labels meet one expression of a selector, as apimachinery's
    labels.Requirement.Matches decides."""
    key, operator, values = requirement.key, requirement.operator, requirement.values
    value = labels.get(key)
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None and len(values) == 1:
        try:
            left, right = int(value), int(values[0])
        except ValueError:
            return False
        return left > right if operator == "Gt" else left < right
    return False


def _meets_term(term: NodeSelectorTerm, traits: NodeTraits) -> bool:
    fields = {"metadata.name": traits.name}
    met = [meets(expression, traits.labels) for expression in term.expressions]
    met += [meets(field, fields) for field in term.fields]
    return bool(met) and all(met)  # an empty term selects nothing


def why_unfit(
    shape: PodShape, volumes: Sequence[Sequence[NodeSelectorTerm]], traits: NodeTraits
) -> str | None:
    """Returns why a pod can't be on a node with these traits; the text follows "the pod ".

    Topology spread and affinity ask for a node that carries their topology key; beyond that, spread
    is not looked at (errs towards "it fits"). Affinity to other pods than its like is refused on a
    node to come and granted on one that is there: it errs towards no conversion.
    """
    for key, value in shape.node_selector:
        if traits.labels.get(key) != value:
            return f"selects {key}={value}"
    if shape.node_affinity and not any(_meets_term(term, traits) for term in shape.node_affinity):
        return "has a node affinity that asks for another node"
    for taint in traits.taints:
        if not tolerates(shape.tolerations, taint):
            return f"does not tolerate the taint {describe_taint(taint)}"
    if any(not any(_meets_term(term, traits) for term in terms) for terms in volumes):
        return "has a volume that is bound to other nodes"
    for key in shape.spread_keys:
        if key != HOSTNAME and key not in traits.labels:
            return f"spreads over {key}, a label that such a node lacks"
    for affinity in shape.pod_affinity:
        if affinity.anti:
            continue
        if affinity.topology_key != HOSTNAME and affinity.topology_key not in traits.labels:
            return f"has a pod affinity over {affinity.topology_key}, a label such a node lacks"
        if not traits.name and not _is_like_itself(shape, affinity):
            return "must be beside other pods"
    return _why_no_numa_node(shape, traits.numa)


def _why_no_numa_node(shape: PodShape, numa: NumaRoom | None) -> str | None:
    """Returns why no NUMA node can take a pod that its kubelet aligns to one."""
    if numa is None or shape.aligned is None:
        return None
    zones, asked = [dict(zone) for zone in numa.zones], shape.aligned[numa.by_pod]
    if any(all(amount <= zone.get(name, amount) for name, amount in asked) for zone in zones):
        return None
    for name, amount in asked:
        most = max(zone.get(name, amount) for zone in zones)
        if amount > most:
            what = f"{format_amount(name, amount)} of {name} on one NUMA node"
            return f"asks for {what}, where the largest has {format_amount(name, most)}"
    what = ", ".join(f"{format_amount(name, amount)} of {name}" for name, amount in asked)
    return f"asks for {what} on one NUMA node, where none has all of it"


def describe_taint(taint: Taint) -> str:
    """As kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _is_like_itself(shape: PodShape, affinity: PodAffinityTerm) -> bool:
    """Returns whether a term selects the pod's own labels. A term without expressions does."""
    labels = dict(shape.labels)
    return all(meets(expression, labels) for expression in affinity.expressions)


def keeps_apart(shape: PodShape, namespace: str) -> bool:
    """Returns whether two pods of this shape can't share a node: a host port, or they repel their
    like."""
    return bool(shape.host_ports) or any(
        affinity.anti
        and (not affinity.namespaces or namespace in affinity.namespaces)
        and _is_like_itself(shape, affinity)
        for affinity in shape.pod_affinity
    )


def needs_one_domain(shape: PodShape, namespace: str) -> bool:
    """Returns whether more than one new node can't help: all must be together on one host, or all
    apart in wider domains (zones, racks), of which new nodes are taken to be one."""
    for affinity in shape.pod_affinity:
        if affinity.namespaces and namespace not in affinity.namespaces:
            continue
        if not _is_like_itself(shape, affinity):
            continue
        if (affinity.topology_key == HOSTNAME) != affinity.anti:
            return True
    return False
