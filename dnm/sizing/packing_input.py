"""What packing needs to know, taken from the values of a snapshot.

The rule: nodes that are equal to all pending pods (same taints, same values of the labels that any
of them asks for) are one node class, so that constraints are looked at once per group of pods and
class of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import ge

from dnm.demand.constraints import NodeTraits, keeps_apart, needs_one_domain, why_unfit
from dnm.demand.demand import NO_USE, Demand
from dnm.demand.pending import PendingGroup
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.pod import NodeSelectorTerm
from dnm.model.value import Resources, Value
from dnm.sizing.node_supply import (
    ExpectedNode,
    NodeSupply,
    expected_nodes,
    lent_as,
    numa_rooms,
    takes_pods,
    traits_of,
)
from dnm.sizing.packing_problem import Bin, Item, Vector


class NodeClasses:
    """Numbers the node classes: nodes that no pending pod can tell apart."""

    def __init__(self, groups: Sequence[PendingGroup], labels: Iterable[Mapping[str, str]]) -> None:
        """`labels`: of the nodes; a key that none of them has tells none apart."""
        keys = {key for group in groups for key in _keys(group)}
        self._keys = tuple(sorted(keys & set().union(*labels))) if keys else ()
        self._with_name = any(term.fields for group in groups for term in _terms(group))
        self._numbers: dict[object, int] = {}
        self.traits: list[NodeTraits] = []

    def add(self, traits: NodeTraits) -> int:
        """Returns the number of the class that a node with these traits belongs to; it is a new one
        where no node before was like it."""
        labels = tuple([traits.labels.get(key) for key in self._keys])
        # The name of a Node tells it apart only where a pod asks for one.
        name = traits.name if self._with_name else bool(traits.name)
        signature = (labels, traits.taints, name, traits.numa)
        number = self._numbers.setdefault(signature, len(self.traits))
        if number == len(self.traits):
            self.traits.append(traits)
        return number


class PackingInput(Value):
    """Holds bins and new nodes as vectors over `axes`.

    The first `existing` of the bins are Nodes (without those that no pending pod fits), the others
    are on their way. `options` are the new nodes that a queue may
    get, by queue, best first. `items` (by fingerprint) have neither count nor bin types yet.
    `incoming_sizes`: what each node of NodeSupply.incoming will raise its queue by; nothing, where
    the configuration no longer knows it.
    """

    axes: tuple[str, ...]
    bins: tuple[Bin, ...]
    existing: int
    options: Mapping[str, tuple[ExpectedNode, ...]]
    node_classes: NodeClasses
    items: Mapping[str, Item]
    incoming_sizes: tuple[Resources, ...]

    def vector(self, resources: Resources) -> Vector:
        """Returns the amounts along `axes`; 0 for what is not there."""
        return tuple([resources.get(name, 0) for name in self.axes])


def make_packing_input(config: Config, demand: Demand, node_supply: NodeSupply) -> PackingInput:
    """Reduces nodes, nodes on their way and nodes to be had to what the pending pods ask about."""
    expected_ones = expected_nodes(config, demand, node_supply)
    options = _options(config, expected_ones)
    groups = demand.groups
    bins: list[Bin] = []
    names: list[str] = []
    there = _by_preference(node_supply) if groups else []
    offered = {"pods"}.union(
        *(node.allocatable for node in there), *(node.free for node in expected_ones.values())
    )
    # Of what nobody offers nobody gets anything: tenants can invent any number of names.
    hopeless = {group.fingerprint for group in groups if _lacks_one(group, offered)}
    helped = [group for group in groups if group.fingerprint not in hopeless]
    axes = tuple(sorted({name for group in helped for name in group.request} & offered))
    least = [min(group.request.get(name, 0) for group in helped) for name in axes]
    carried = [node.labels for node in there]
    carried += [node.traits.labels for node in expected_ones.values()]
    classes, rooms = NodeClasses(helped, carried), numa_rooms(config)
    for node in there if helped else ():
        used, have = demand.nodes.get(node.name, NO_USE).used, node.allocatable
        vector = tuple([have.get(name, 0) - used.get(name, 0) for name in axes])
        # Most nodes of a busy cluster are too full for any pod, and are not looked at again.
        if all(map(ge, vector, least)):
            room = rooms.get(lent_as(node, node_supply)[0]) if rooms else None
            bins.append(Bin(free=vector, node_class=classes.add(traits_of(node, room))))
            names.append(node.name)
    existing = len(bins)
    for expected in (node for many in options.values() for node in many):
        classes.add(expected.traits)
    sizes: list[Resources] = []
    for incoming in node_supply.incoming:
        brought = expected_ones.get((incoming.namespace, incoming.node_type))
        sizes.append(brought.size if brought else {})
        if helped and brought is not None:
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
            if group.fingerprint in hopeless
            else _item(group, axes, classes, names)
            for group in groups
        },
        incoming_sizes=tuple(sizes),
    )


def _lacks_one(group: PendingGroup, offered: Set[str]) -> bool:
    """Whether it asks for something that no node and no node type has."""
    return any(amount > 0 and name not in offered for name, amount in group.request.items())


def _options(
    config: Config, expected: Mapping[tuple[str, str], ExpectedNode]
) -> dict[str, tuple[ExpectedNode, ...]]:
    """Returns per monitored queue the new nodes it may get: by each namespace's order of types, the
    namespaces of high priority first."""
    policies = sorted(
        config.namespaces.values(), key=lambda namespace: (-namespace.priority, namespace.name)
    )
    options: dict[str, list[tuple[int, ExpectedNode]]] = {}
    for policy in policies:
        for rank, type_name in enumerate(policy.node_types):
            found = options.setdefault(policy.queue, [])
            found.append((rank, expected[policy.name, type_name]))
    return {
        queue: tuple(node for _, node in sorted(found, key=lambda ranked: ranked[0]))
        for queue, found in options.items()
    }


def _by_preference(node_supply: NodeSupply) -> list[Node]:
    """Returns the nodes that take pods: lent ones first, since they are reserved for few."""
    incoming = {incoming.name for incoming in node_supply.incoming if incoming.name}
    nodes = (node for node in node_supply.nodes if takes_pods(node, node_supply))
    there = (node for node in nodes if node.name not in incoming)
    return sorted(there, key=lambda node: node.name not in node_supply.lent)


def _terms(group: PendingGroup) -> Iterable[NodeSelectorTerm]:
    return chain(group.shape.node_affinity, *group.volumes)


def _keys(group: PendingGroup) -> Iterable[str]:
    """Yields the label keys that decide where a group may go."""
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
    if keeps_apart(shape, group.namespace):
        exclusive.add(group.fingerprint)
    named = enumerate(names) if group.siblings else ()
    return Item(
        request=tuple(group.request.get(name, 0) for name in axes),
        count=0,
        node_classes=frozenset(
            number
            for number, traits in enumerate(classes.traits)
            if not why_unfit(shape, group.volumes, traits)
        ),
        exclusive=frozenset(exclusive),
        blocked_bins=frozenset(number for number, name in named if name in group.siblings),
        at_most_one_new=needs_one_domain(shape, group.namespace),
    )
