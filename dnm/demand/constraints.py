"""The constraints of a pod on the labels and taints of a node, as kube-scheduler evaluates them.

Free capacity is not among them. If facts are missing, each docstring names the assumed answer."""

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
    """The properties of a node that decide whether a pod may run on it. A new one has no name."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    name: str = ""
    numa: NumaRoom | None = None  # None: pods are not aligned to one NUMA node


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Returns whether a pod may run despite a taint. PreferNoSchedule never prevents that."""
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
    """Returns whether a node's labels satisfy one expression of a node selector. It follows
    labels.Requirement.Matches of apimachinery."""
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


def describe_misfit(
    shape: PodShape, volumes: Sequence[Sequence[NodeSelectorTerm]], traits: NodeTraits
) -> str | None:
    """Returns why a pod cannot run on a node, as a text to follow "the pod "; None if it can.

    Topology spread and affinity require that the node has the label of their topology key. dnm does
    not check spread further; it assumes that the pod fits. An affinity to other pods is a misfit on
    a future node and none on an existing one, so that in doubt no node is lent."""
    for key, value in shape.node_selector:
        if traits.labels.get(key) != value:
            return f"selects {key}={value}"
    if shape.node_affinity and not any(_meets_term(term, traits) for term in shape.node_affinity):
        return "has a node affinity for other nodes"
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
    return _describe_numa_misfit(shape, traits.numa)


def _describe_numa_misfit(shape: PodShape, numa: NumaRoom | None) -> str | None:
    """Returns why a pod that must fit on one NUMA node fits on none of them, or None."""
    if numa is None or shape.aligned is None:
        return None
    zones, requested = [dict(zone) for zone in numa.zones], shape.aligned[numa.by_pod]
    if any(all(amount <= zone.get(name, amount) for name, amount in requested) for zone in zones):
        return None
    for name, amount in requested:
        most = max(zone.get(name, amount) for zone in zones)
        if amount > most:
            amounts = f"{format_amount(name, amount)} of {name} on one NUMA node"
            return f"requests {amounts}, and the largest has {format_amount(name, most)}"
    amounts = ", ".join(f"{format_amount(name, amount)} of {name}" for name, amount in requested)
    return f"requests {amounts} on one NUMA node, and none has all of it"


def describe_taint(taint: Taint) -> str:
    """Returns a taint as text in the form `key=value:effect` of kubectl."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _is_like_itself(shape: PodShape, affinity: PodAffinityTerm) -> bool:
    """Returns whether an affinity term selects pods that are equal to this one."""
    labels = dict(shape.labels)
    return all(meets(expression, labels) for expression in affinity.expressions)


def has_anti_affinity(shape: PodShape, namespace: str) -> bool:
    """Returns whether two equal pods cannot share a node, because of a host port or an
    anti-affinity to pods like themselves."""
    return bool(shape.host_ports) or any(
        affinity.anti
        and (not affinity.namespaces or namespace in affinity.namespaces)
        and _is_like_itself(shape, affinity)
        for affinity in shape.pod_affinity
    )


def needs_single_domain(shape: PodShape, namespace: str) -> bool:
    """Returns whether a second new node cannot help, because all these pods must share one host, or
    need different zones or racks. dnm assumes that all new nodes are in the same zone and rack."""
    for affinity in shape.pod_affinity:
        if affinity.namespaces and namespace not in affinity.namespaces:
            continue
        if not _is_like_itself(shape, affinity):
            continue
        if (affinity.topology_key == HOSTNAME) != affinity.anti:
            return True
    return False
