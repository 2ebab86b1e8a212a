"""What packing needs to know, taken from the values of a snapshot.

The rule: nodes that are equal to all pending pods (same taints, same values of the labels that any
of them asks for) are one place, so that constraints are looked at once per kind of pod and place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import ge

from dnm.demand.constraints import Place, keeps_apart, needs_one_domain, why_not
from dnm.demand.demand import NO_USE, Demand
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import Node
from dnm.model.config import Config
from dnm.model.value import Resources, Value
from dnm.sizing.node_supply import Expected, Fleet, expected_nodes, has_room, place_of
from dnm.sizing.packing import Item, Room, Vector


class Survey(Value):
    """Rooms and node kinds as vectors over `axes`.

    `names` are the rooms' nodes (without those that no pending pod fits); the first `there` of them
    are Nodes, the others are on their way.
    `kinds` are the new nodes that a queue may get, by queue, best first. `items` (by fingerprint)
    have neither count nor kinds yet. `coming`: what each node of Fleet.incoming will raise its
    queue by; nothing, where the configuration no longer knows it.
    """

    axes: tuple[str, ...]
    rooms: tuple[Room, ...]
    names: tuple[str, ...]
    there: int
    kinds: Mapping[str, tuple[Expected, ...]]
    places: tuple[Place, ...]
    place_numbers: Mapping[object, int]
    keys: tuple[str, ...]
    items: Mapping[str, Item]
    coming: tuple[Resources, ...]

    def vector(self, resources: Resources) -> Vector:
        return tuple(resources.get(name, 0) for name in self.axes)

    def place_number(self, place: Place) -> int:
        """The number of an expected node's place."""
        return self.place_numbers[_signature(place, self.keys, with_name=False)]


def survey(config: Config, demand: Demand, fleet: Fleet) -> Survey:
    """Look at the cluster through the eyes of the pending pods."""
    expected_ones = expected_nodes(config, demand, fleet)
    kinds = _kinds(config, expected_ones)
    groups = demand.groups
    axes = tuple(sorted({name for group in groups for name in group.request}))
    keys = tuple(sorted({key for group in groups for key in _keys(group)}))
    with_name = any(_asks_for_name(group) for group in groups)
    numbers: dict[object, int] = {}
    places: list[Place] = []

    def number(place: Place, named: bool) -> int:
        signature = _signature(place, keys, with_name=named)
        if signature not in numbers:
            numbers[signature] = len(places)
            places.append(place)
        return numbers[signature]

    rooms: list[Room] = []
    names: list[str] = []
    least = [min(group.request.get(name, 0) for group in groups) for name in axes]
    for node in _by_preference(fleet) if groups else ():
        used, have = demand.nodes.get(node.name, NO_USE).used, node.allocatable
        vector = tuple([have.get(name, 0) - used.get(name, 0) for name in axes])
        # Most nodes of a busy cluster are too full for any pod, and are not looked at again.
        if all(map(ge, vector, least)):
            rooms.append(Room(free=vector, place=number(place_of(node), with_name)))
            names.append(node.name)
    there = len(rooms)
    for expected in (one for many in kinds.values() for one in many):
        number(expected.place, False)
    sizes: list[Resources] = []
    for coming in fleet.incoming:
        brought = expected_ones.get((coming.namespace, coming.node_type))
        sizes.append(brought.size if brought else {})
        if groups and brought is not None:
            vector = tuple(brought.room.get(name, 0) for name in axes)
            rooms.append(Room(free=vector, place=number(brought.place, False)))
            names.append(coming.name)
    return Survey(
        axes=axes,
        rooms=tuple(rooms),
        names=tuple(names),
        there=there,
        kinds=kinds,
        places=tuple(places),
        place_numbers=numbers,
        keys=keys,
        items={group.fingerprint: _item(group, axes, places, names) for group in groups},
        coming=tuple(sizes),
    )


def _kinds(
    config: Config, expected: Mapping[tuple[str, str], Expected]
) -> dict[str, tuple[Expected, ...]]:
    """Per monitored queue the nodes it may get: by each namespace's order of types, the namespaces
    of high priority first."""
    policies = sorted(config.namespaces.values(), key=lambda one: (-one.priority, one.name))
    kinds: dict[str, list[tuple[int, Expected]]] = {}
    for policy in policies:
        for rank, type_name in enumerate(policy.node_types):
            found = kinds.setdefault(policy.queue, [])
            found.append((rank, expected[policy.name, type_name]))
    return {
        queue: tuple(one for _, one in sorted(found, key=lambda ranked: ranked[0]))
        for queue, found in kinds.items()
    }


def _by_preference(fleet: Fleet) -> list[Node]:
    """Nodes with room: lent ones first, since they are reserved for few, then the others."""
    coming = {one.name for one in fleet.incoming if one.name}
    nodes = [node for node in fleet.nodes if has_room(node, fleet) and node.name not in coming]
    nodes.sort(key=lambda node: node.name not in fleet.lent)
    return nodes


def _keys(group: PendingGroup) -> Iterable[str]:
    """The label keys that decide where a group may go."""
    shape = group.shape
    terms = [*shape.node_affinity, *(term for terms in group.volumes for term in terms)]
    yield from (key for key, _ in shape.node_selector)
    yield from (one.key for term in terms for one in term.expressions)
    yield from shape.spread_keys
    yield from (affinity.topology_key for affinity in shape.pod_affinity)


def _asks_for_name(group: PendingGroup) -> bool:
    terms = [*group.shape.node_affinity, *(term for terms in group.volumes for term in terms)]
    return any(term.fields for term in terms)


def _signature(place: Place, keys: Sequence[str], with_name: bool) -> object:
    """What tells places apart; the name of a Node only where a pod asks for one."""
    labels = tuple(place.labels.get(key) for key in keys)
    return (labels, place.taints, place.name if with_name else bool(place.name))


def _item(
    group: PendingGroup, axes: Sequence[str], places: Sequence[Place], names: Sequence[str]
) -> Item:
    shape = group.shape
    tokens = {f"port {port}" for port in shape.host_ports}
    if keeps_apart(shape, group.namespace):
        tokens.add(group.fingerprint)
    return Item(
        request=tuple(group.request.get(name, 0) for name in axes),
        count=0,
        places=frozenset(
            number
            for number, place in enumerate(places)
            if not why_not(shape, group.volumes, place)
        ),
        tokens=frozenset(tokens),
        blocked=frozenset(number for number, name in enumerate(names) if name in group.siblings)
        if group.siblings
        else frozenset(),
        one_new=needs_one_domain(shape, group.namespace),
    )
