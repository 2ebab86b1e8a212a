"""The input of the packing of pods onto nodes, made of a snapshot's pods and nodes.

The rule: nodes with the same taints, and with the same values of all labels that a pending pod
selects, are one node class. So constraints are evaluated once per group of pods and class of
nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import ge

from dnm.demand.constraints import (
    NodeTraits,
    describe_misfit,
    has_anti_affinity,
    needs_single_domain,
)
from dnm.demand.demand import NO_USE, Demand
from dnm.demand.pending import PendingGroup
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.pod import NodeSelectorTerm
from dnm.model.value import Resources, Value
from dnm.sizing.node_supply import (
    ExpectedNode,
    NodeSupply,
    accepts_pods,
    expected_nodes,
    lent_as,
    numa_capacities,
    traits_of,
)
from dnm.sizing.packing_problem import Bin, Item, Vector


class NodeClasses:
    """A numbering of node classes. A pending pod may run on all nodes of a class, or on none."""

    def __init__(self, groups: Sequence[PendingGroup], labels: Iterable[Mapping[str, str]]) -> None:
        """Starts without classes. `labels` are those of all nodes; other label keys are ignored."""
        keys = {key for group in groups for key in _keys(group)}
        self._keys = tuple(sorted(keys & set().union(*labels))) if keys else ()
        self._with_name = any(term.fields for group in groups for term in _terms(group))
        self._numbers: dict[object, int] = {}
        self.traits: list[NodeTraits] = []

    def add(self, traits: NodeTraits) -> int:
        """Returns the number of the class to which a node with these traits belongs. It is a new
        class if no earlier node was like it."""
        labels = tuple([traits.labels.get(key) for key in self._keys])
        # The name of a Node matters only if a pod selects one.
        name = traits.name if self._with_name else bool(traits.name)
        signature = (labels, traits.taints, name, traits.numa)
        number = self._numbers.setdefault(signature, len(self.traits))
        if number == len(self.traits):
            self.traits.append(traits)
        return number


class PackingInput(Value):
    """The nodes and pods of the packing problem, as vectors over the resources in `axes`.

    The first `existing` bins are Nodes, except those that no pending pod fits; the others are
    incoming nodes. `options` has the new nodes that each queue may get, best first. `items` are
    groups of pods, by fingerprint, without a count and node types. `incoming_sizes`: by how much
    each incoming node raises its queue's limit; empty if its type is no longer configured."""

    axes: tuple[str, ...]
    bins: tuple[Bin, ...]
    existing: int
    options: Mapping[str, tuple[ExpectedNode, ...]]
    node_classes: NodeClasses
    items: Mapping[str, Item]
    incoming_sizes: tuple[Resources, ...]

    def vector(self, resources: Resources) -> Vector:
        """Returns the amounts of the resources in `axes`, in that order; 0 for a missing one."""
        return tuple([resources.get(name, 0) for name in self.axes])


def make_packing_input(config: Config, demand: Demand, node_supply: NodeSupply) -> PackingInput:
    """Returns the packing input: nodes and pending pods, with the resources that pods request."""
    expected_ones = expected_nodes(config, demand, node_supply)
    options = _options(config, expected_ones)
    groups = demand.groups
    bins: list[Bin] = []
    names: list[str] = []
    present = _by_preference(node_supply) if groups else []
    offered = {"pods"}.union(
        *(node.allocatable for node in present), *(node.free for node in expected_ones.values())
    )
    # A resource that no node offers needs no axis: tenants can invent any number of names.
    unplaceable = {group.fingerprint for group in groups if _lacks_resource(group, offered)}
    placeable = [group for group in groups if group.fingerprint not in unplaceable]
    requested = {name for group in placeable for name in group.request} & offered
    # Nodes are compared by these amounts in turn: memory decides before cores.
    axes = tuple(sorted(requested, key=lambda name: (name == "cpu", name)))
    least = [min(group.request.get(name, 0) for group in placeable) for name in axes]
    labels = [node.labels for node in present]
    labels += [node.traits.labels for node in expected_ones.values()]
    classes, numa = NodeClasses(placeable, labels), numa_capacities(config)
    for node in present if placeable else ():
        used, have = demand.nodes.get(node.name, NO_USE).used, node.allocatable
        vector = tuple([have.get(name, 0) - used.get(name, 0) for name in axes])
        # Most nodes of a busy cluster are too full for any pod: they are skipped.
        if all(map(ge, vector, least)):
            capacity = numa.get(lent_as(node, node_supply)[0]) if numa else None
            bins.append(Bin(free=vector, node_class=classes.add(traits_of(node, capacity))))
            names.append(node.name)
    existing = len(bins)
    for expected in (node for many in options.values() for node in many):
        classes.add(expected.traits)
    sizes: list[Resources] = []
    for incoming in node_supply.incoming:
        brought = expected_ones.get((incoming.namespace, incoming.node_type))
        sizes.append(brought.size if brought else {})
        if placeable and brought is not None:
            vector = tuple(brought.free.get(name, 0) for name in axes)
            bins.append(Bin(free=vector, node_class=classes.add(brought.traits)))
            names.append(incoming.name)
    return PackingInput(
        axes=axes,
        bins=tuple(bins),
        existing=existing,
        options=options,
        node_classes=classes,
        items={
            group.fingerprint: Item(request=(0,) * len(axes), count=0, node_classes=frozenset())
            if group.fingerprint in unplaceable
            else _item(group, axes, classes, names)
            for group in groups
        },
        incoming_sizes=tuple(sizes),
    )


def _lacks_resource(group: PendingGroup, offered: Set[str]) -> bool:
    """Returns whether the pods request a resource that no node and no node type offers."""
    return any(amount > 0 and name not in offered for name, amount in group.request.items())


def _options(
    config: Config, expected: Mapping[tuple[str, str], ExpectedNode]
) -> dict[str, tuple[ExpectedNode, ...]]:
    """Returns the kinds of new nodes that each queue may get. They are in the order of its
    namespaces' node types; for the same rank, the namespace of the higher priority is first."""
    policies = sorted(
        config.namespaces.values(), key=lambda namespace: (-namespace.priority, namespace.name)
    )
    options: dict[str, list[tuple[int, ExpectedNode]]] = {}
    for policy in policies:
        for rank, type_name in enumerate(policy.node_types):
            ranked_nodes = options.setdefault(policy.queue, [])
            ranked_nodes.append((rank, expected[policy.name, type_name]))
    return {
        queue: tuple(node for _, node in sorted(ranked_nodes, key=lambda ranked: ranked[0]))
        for queue, ranked_nodes in options.items()
    }


def _by_preference(node_supply: NodeSupply) -> list[Node]:
    """Returns the nodes that accept pods, lent ones first, since only few pods may use these."""
    incoming = {incoming.name for incoming in node_supply.incoming if incoming.name}
    nodes = (node for node in node_supply.nodes if accepts_pods(node, node_supply))
    present = (node for node in nodes if node.name not in incoming)
    return sorted(present, key=lambda node: node.name not in node_supply.lent)


def _terms(group: PendingGroup) -> Iterable[NodeSelectorTerm]:
    return chain(group.shape.node_affinity, *group.volumes)


def _keys(group: PendingGroup) -> Iterable[str]:
    """Yields the keys of node labels that decide where the pods of a group may run."""
    shape = group.shape
    yield from (key for key, _ in shape.node_selector)
    yield from (expression.key for term in _terms(group) for expression in term.expressions)
    yield from shape.spread_keys
    yield from (affinity.topology_key for affinity in shape.pod_affinity)


def _item(
    group: PendingGroup, axes: Sequence[str], classes: NodeClasses, names: Sequence[str]
) -> Item:
    shape = group.shape
    exclusive = {f"port {port}" for port in shape.host_ports}
    if has_anti_affinity(shape, group.namespace):
        exclusive.add(group.fingerprint)
    named = enumerate(names) if group.siblings else ()
    return Item(
        request=tuple(group.request.get(name, 0) for name in axes),
        count=0,
        node_classes=frozenset(
            number
            for number, traits in enumerate(classes.traits)
            if not describe_misfit(shape, group.volumes, traits)
        ),
        exclusive=frozenset(exclusive),
        blocked_bins=frozenset(number for number, name in named if name in group.siblings),
        single_new_bin=needs_single_domain(shape, group.namespace),
    )
