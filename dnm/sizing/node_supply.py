"""The nodes on which a decision is based: existing ones, incoming ones, and expected new ones.

A new node is expected to be like most healthy lent nodes of its type, or like the configuration if
there is none. So a declared amount that the first node lacked does not cause a second lend, and a
property of one node among several does not describe its type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from dnm.demand.constraints import HOSTNAME, NodeTraits, describe_misfit
from dnm.demand.demand import NO_USE, Demand
from dnm.model.config import Config
from dnm.model.kubelet import NumaRoom
from dnm.model.lent import LentNode
from dnm.model.node import Node
from dnm.model.node_type import NodeType
from dnm.model.opening import OPENING_TAINT
from dnm.model.pod import DaemonSet
from dnm.model.quantity import add_to
from dnm.model.value import Resources, Unreadable, Value
from dnm.sizing.caps import NodePool

_PODS_OF_A_KUBELET = 110  # --max-pods, the kubelet's default
_PLENTY = 2**62
_OWN_TAINTS = ("node.kubernetes.io/", OPENING_TAINT)  # set and removed by Kubernetes, or by dnm
T = TypeVar("T")
_COMMON_LABELS = ("kubernetes.io/os", "kubernetes.io/arch")


class IncomingNode(Value):
    """A requested or joining node, which counts as existing and empty. `name` is empty until the
    converter has chosen the node. If its Node exists already, it is not counted again."""

    node_type: str
    namespace: str
    queue: str
    name: str = ""


class NodeSupply(Value):
    """The nodes on which a decision is based. `nodes` are all Nodes of the cluster. `lent` are the
    nodes that serve their queues and are in the limits. `leaving` are cordoned or returning nodes,
    without capacity and outside the limits. `daemon_sets` is None if they were not read."""

    nodes: tuple[Node, ...]
    lent: Mapping[str, LentNode] = {}
    incoming: tuple[IncomingNode, ...] = ()
    leaving: frozenset[str] = frozenset()
    daemon_sets: tuple[DaemonSet, ...] | Unreadable | None = None


class ExpectedNode(Value):
    """The expected properties of a new node that is lent to a namespace. `size` is its addition to
    the limit of its queue, `free` is what pods can use on it at first."""

    pool: NodePool
    size: Resources
    free: Resources
    traits: NodeTraits


def accepts_pods(node: Node, node_supply: NodeSupply) -> bool:
    """Returns whether the scheduler may place pods on the node now."""
    return (
        node.is_ready
        and not node.is_cordoned
        and not node.is_deleting
        and node.name not in node_supply.leaving
    )


def is_sound(config: Config, node: Node | None, type_name: str) -> bool:
    """Returns whether the node is Ready and offers some of each resource of its type. Only such
    nodes show what a new node will be like; another one may be replaced at once."""
    if node is None or not node.is_ready or node.is_deleting:
        return False
    node_type = config.node_types.get(type_name)
    return all(node.allocatable.get(name, 0) > 0 for name in (node_type.size if node_type else ()))


def traits_of(node: Node, numa: NumaRoom | None = None) -> NodeTraits:
    """Returns labels, taints and name of a node, without taints that Kubernetes or dnm will remove.
    `numa` is the capacity of the node's NUMA nodes by its type, if pods must fit on one."""
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(_OWN_TAINTS))
    if numa is not None and node.zones:
        declared = {name for zone in numa.zones for name, _ in zone}
        zones = (tuple(pair for pair in zone if pair[0] in declared) for zone in node.zones)
        numa = NumaRoom(zones=tuple(zones), by_pod=numa.by_pod)
    return NodeTraits(labels=node.labels, taints=taints, name=node.name, numa=numa)


def numa_capacities(config: Config) -> dict[str, NumaRoom]:
    """Returns, for node types with kubelets that align pods, the capacity of each NUMA node."""
    if not config.has_aligned_pods:
        return {}
    from dnm.kubelet.reservation import numa_capacity

    capacities = {
        name: numa_capacity(node_type.kubelet, node_type.size)
        for name, node_type in config.node_types.items()
    }
    return {name: capacity for name, capacity in capacities.items() if capacity is not None}


def expected_nodes(
    config: Config, demand: Demand, node_supply: NodeSupply
) -> dict[tuple[str, str], ExpectedNode]:
    """Returns the expected properties of a new node for each (namespace, node type)."""
    ready = [node for node in node_supply.nodes if accepts_pods(node, node_supply)]
    lent: dict[str, list[Node]] = {}
    for node in ready:
        type_name, _ = lent_as(node, node_supply)
        lent.setdefault(type_name, []).append(node)
    plain, numa_by_type = _plain_labels(ready), numa_capacities(config)
    expected: dict[tuple[str, str], ExpectedNode] = {}
    for node_type in config.node_types.values():
        name = node_type.name
        similar = [node for node in lent.get(name, ()) if is_sound(config, node, name)]
        size, free = _size_and_free(node_type, similar)
        used = _usual_overhead(demand, node_supply, similar, ready)
        for policy in config.namespaces.values():
            same = [node for node in similar if lent_as(node, node_supply)[1] == policy.name]
            traits = _expected_traits(node_type, policy.name, same, similar, plain)
            left = dict(free)
            for request in (used, *_daemon_requests(config, node_supply, policy.name, traits)):
                add_to(left, {key: n for key, n in request.items() if key in left}, -1)
            expected[policy.name, name] = ExpectedNode(
                pool=NodePool(policy.queue, policy.name, name),
                size=size,
                free=left,
                traits=msgspec.structs.replace(traits, numa=numa_by_type.get(name)),
            )
    return expected


def lent_as(node: Node, node_supply: NodeSupply) -> tuple[str, str]:
    """Returns type and namespace of a lent node by the registry or its annotations, else empty."""
    entry = node_supply.lent.get(node.name)
    if entry is not None:
        return entry.node_type, entry.namespace
    return (node.mark.node_type, node.mark.namespace) if node.mark else ("", "")


def _size_and_free(node_type: NodeType, similar: Sequence[Node]) -> tuple[Resources, Resources]:
    """Returns by how much a new node raises limits, and what is free for pods on it at first."""
    if similar:
        size = _usual_size(node_type, similar)
        return size, size
    size = {"pods": _PODS_OF_A_KUBELET, **node_type.size}
    return size, {"ephemeral-storage": _PLENTY, **size}


def _usual_overhead(
    demand: Demand, node_supply: NodeSupply, similar: Sequence[Node], ready: Sequence[Node]
) -> dict[str, int]:
    """Returns what DaemonSets' and mirror pods usually request on a node like `similar`; without
    one, the least on any node. If the DaemonSets themselves were read, only mirror pods count."""
    uses = [demand.nodes.get(node.name, NO_USE) for node in similar or ready]
    is_read = isinstance(node_supply.daemon_sets, tuple)
    amounts = [use.mirrors if is_read else use.daemonsets for use in uses]
    return _usual(amounts, largest_first=False) if similar else _least(amounts)


def _daemon_requests(
    config: Config, node_supply: NodeSupply, namespace: str, traits: NodeTraits
) -> Iterator[Resources]:
    """Yields the requests of the DaemonSets that will run a pod on a node with these traits. A
    tenant's DaemonSet, in a monitored namespace, counts only on nodes that are lent to it."""
    daemon_sets = node_supply.daemon_sets
    for daemon_set in daemon_sets if isinstance(daemon_sets, tuple) else ():
        is_of_another = (
            daemon_set.namespace != namespace and daemon_set.namespace in config.namespaces
        )
        if not is_of_another and describe_misfit(daemon_set.shape, (), traits) is None:
            yield daemon_set.shape.request


def _usual_size(node_type: NodeType, similar: Sequence[Node]) -> dict[str, int]:
    """Returns the median of each resource, or the configured amount if any node has that much."""
    size = _usual([node.allocatable for node in similar])
    for name, amount in node_type.size.items():
        if any(node.allocatable.get(name, 0) >= amount for node in similar):
            size[name] = max(size.get(name, 0), amount)
    return size


def _usual(many: Sequence[Resources], largest_first: bool = True) -> dict[str, int]:
    """Returns the median of each resource. `largest_first` decides between two middle amounts."""
    middle = (len(many) - 1) // 2
    return {
        name: sorted((resources.get(name, 0) for resources in many), reverse=largest_first)[middle]
        for name in dict.fromkeys(name for resources in many for name in resources)
    }


def _least(many: Iterable[Resources]) -> dict[str, int]:
    """Returns the smallest amount of each resource, without resources that any of them lacks."""
    least: dict[str, int] | None = None
    for resources in many:
        if least is None:
            least = dict(resources)
        elif least:
            least = {name: min(least[name], resources[name]) for name in least if name in resources}
    return least or {}


def _plain_labels(ready: Sequence[Node]) -> dict[str, str]:
    """Returns the labels that any new node has, and the architecture if all nodes have the same."""
    labels = {"kubernetes.io/os": "linux", HOSTNAME: ""}
    for key in _COMMON_LABELS:
        values = {node.labels.get(key, "") for node in ready}
        if len(values) == 1 and "" not in values:
            labels[key] = values.pop()
    return labels


def _expected_traits(
    node_type: NodeType,
    namespace: str,
    same: Sequence[Node],
    similar: Sequence[Node],
    plain: Mapping[str, str],
) -> NodeTraits:
    """Returns the labels and taints expected on a new node: those of most nodes in `same` (lent to
    the namespace, of the type). If exactly half have one, the configuration decides. A taint that
    is not configured must also be on most nodes in `similar` (all lent nodes of the type)."""
    labels = {**node_type.labels_for(namespace), namespace: "true"}
    taints = node_type.taints_for(namespace)
    if not same:
        return NodeTraits(labels={**plain, **labels}, taints=taints)
    off = {step.name for step in node_type.readiness_checks if step.kind == "taint"}
    shown = Counter(taint for node in similar for taint in set(traits_of(node).taints))
    common = set(_most_common((node.labels.items() for node in same), labels.items()))
    kept = [
        taint
        for taint in _most_common((traits_of(node).taints for node in same), taints)
        if taint.key not in off and (taint in taints or 2 * shown[taint] > len(similar))
    ]
    return NodeTraits(labels={**dict(common), HOSTNAME: ""}, taints=tuple(kept))


def _most_common(many: Iterable[Iterable[T]], configured: Iterable[T]) -> list[T]:
    """Returns the items of more than half of the sets; half is enough for configured items."""
    sets = [dict.fromkeys(iterable) for iterable in many]
    counts = Counter(item for entry in sets for item in entry)
    expected = set(configured)
    return [item for item, count in counts.items() if 2 * count + (item in expected) > len(sets)]
