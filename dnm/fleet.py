"""The nodes a decision counts with: those that are there, those on their way, those to be had.

The rule: a node to come is expected to be like the nodes of its type that are there (allocatable,
labels, taints, what DaemonSets take of it); only where there is none does the configuration speak.
So a promise that the first node did not keep does not bring a second one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from dnm.constraints import HOSTNAME, Place
from dnm.demand import NO_USE, Demand
from dnm.model import (
    Config,
    LentNode,
    NamespacePolicy,
    Node,
    NodeType,
    Resources,
    Taint,
    Value,
)

_PODS_OF_A_KUBELET = 110  # --max-pods, the kubelet's default
_PLENTY = 2**62
_OWN_TAINTS = "node.kubernetes.io/"  # set and removed by Kubernetes itself, e.g. unschedulable
_COMMON_LABELS = ("kubernetes.io/os", "kubernetes.io/arch")


class Incoming(Value):
    """One lent node on its way (requested or joining): counted as there, empty. `name` where the
    converter has named it; its Node, if there is one yet, then gives no room of its own."""

    node_type: str
    namespace: str
    queue: str
    name: str = ""


class Fleet(Value):
    """`nodes`: all Nodes of the cluster. `lent`: the registry's entries that serve, whose `counted`
    is in the limits. `leaving`: nodes that are fenced or on their way back: they have no room, and
    the limits do not count them."""

    nodes: tuple[Node, ...]
    lent: Mapping[str, LentNode] = {}
    incoming: tuple[Incoming, ...] = ()
    leaving: frozenset[str] = frozenset()


class Supply(Value):
    """How many nodes may still be lent now: by `max_converted_nodes`, by the caps of types and of
    namespaces, and by the batch nodes at hand of each type. None or absent: no such bound, or not
    known."""

    total: int | None = None
    per_type: Mapping[str, int] = {}
    per_namespace: Mapping[str, int] = {}
    batch: Mapping[str, int | None] = {}


class Expected(Value):
    """A new node of a type, lent to a namespace: what its queue grows by (`size`), what pods can use
    of it when it is empty (`room`), and what it carries."""

    namespace: str
    queue: str
    node_type: str
    size: Resources
    room: Resources
    place: Place


def has_room(node: Node, fleet: Fleet) -> bool:
    """Whether the scheduler may put pods on it, now."""
    return (
        node.is_ready
        and not node.is_cordoned
        and not node.is_deleting
        and node.name not in fleet.leaving
    )


def place_of(node: Node) -> Place:
    """What the node carries; a taint that Kubernetes sets by itself says nothing about pods."""
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(_OWN_TAINTS))
    return Place(labels=node.labels, taints=taints, name=node.name)


def expected_node(
    config: Config, demand: Demand, fleet: Fleet, policy: NamespacePolicy, type_name: str
) -> Expected:
    """What one more node of a type would be for a namespace."""
    node_type = config.node_types[type_name]
    like_it = [
        node
        for node in fleet.nodes
        if node.mark is not None
        and node.mark.node_type == type_name
        and has_room(node, fleet)
        and all(node.allocatable.get(name, 0) > 0 for name in node_type.size)
    ]
    size = _least([node.allocatable for node in like_it]) if like_it else _promised(node_type)
    room = dict(size) if like_it else {"ephemeral-storage": _PLENTY, **size}
    for name, amount in _overhead(demand, fleet, like_it).items():
        room[name] = room.get(name, 0) - amount
    return Expected(
        namespace=policy.name,
        queue=policy.queue,
        node_type=type_name,
        size=size,
        room=room,
        place=_expected_place(node_type, policy.name, fleet, like_it),
    )


def _promised(node_type: NodeType) -> dict[str, int]:
    return {"pods": _PODS_OF_A_KUBELET, **node_type.size}


def _least(many: Iterable[Resources]) -> dict[str, int]:
    """Resource by resource the least; what one of them lacks, none is expected to have."""
    return reduce(
        lambda left, right: {
            name: min(amount, right[name]) for name, amount in left.items() if name in right
        },
        (dict(one) for one in many),
    )


def _overhead(demand: Demand, fleet: Fleet, like_it: list[Node]) -> Resources:
    """What DaemonSets will take: the most on a node like it; where there is none, the least on any
    node. The first errs towards a node that is too small, the second towards one that proves it."""
    use = demand.nodes
    if like_it:
        most: dict[str, int] = {}
        for node in like_it:
            for name, amount in use.get(node.name, NO_USE).daemonsets.items():
                most[name] = max(most.get(name, 0), amount)
        return most
    ready = [node.name for node in fleet.nodes if has_room(node, fleet)]
    return _least(use.get(name, NO_USE).daemonsets for name in ready) if ready else {}


def _expected_place(
    node_type: NodeType, namespace: str, fleet: Fleet, like_it: list[Node]
) -> Place:
    same = [node for node in like_it if node.mark is not None and node.mark.namespace == namespace]
    if same:
        common = set.intersection(*(set(node.labels.items()) for node in same))
        taints = dict.fromkeys(taint for node in same for taint in place_of(node).taints)
        return Place(labels={**dict(common), HOSTNAME: ""}, taints=tuple(taints))
    ready = [node.labels for node in fleet.nodes if has_room(node, fleet)]
    labels = {"kubernetes.io/os": "linux", HOSTNAME: ""}
    for key in _COMMON_LABELS:
        values = {one.get(key, "") for one in ready}
        if len(values) == 1 and "" not in values:
            labels[key] = values.pop()
    for key, value in node_type.labels.items():
        labels[_named(key, namespace)] = _named(value, namespace)
    labels[namespace] = "true"
    return Place(
        labels=labels,
        taints=tuple(
            Taint(
                key=_named(taint.key, namespace),
                value=_named(taint.value, namespace),
                effect=taint.effect,
            )
            for taint in node_type.taints
        ),
    )


def _named(text: str, namespace: str) -> str:
    return text.replace("{namespace}", namespace)
