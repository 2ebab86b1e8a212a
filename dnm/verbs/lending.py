"""The changes that `lend`, `extend` and `return` make to the registry: an administrator requests
nodes, keeps them for longer, or returns them. The next run acts on the changes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec.structs import replace

from dnm.model.config import Config, NamespacePolicy
from dnm.model.departure import OVERRIDES_STAY, Departure, Eviction, Leaving
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import ConversionRequest, LentNode, Phase
from dnm.model.node import Node
from dnm.model.orders import LendOrder
from dnm.model.printable import count_of
from dnm.model.registry import Registry, run_name
from dnm.model.value import Value
from dnm.sizing.caps import describe_exceeded_caps
from dnm.verbs.refusal import Refusal, policy_of, refuse_excluded

E = TypeVar("E", LentNode, ConversionRequest)

USUAL = timedelta(hours=4)
"""The time for which nodes are lent by default."""

_STAYS = (Phase.JOINING, Phase.SERVING, Phase.RELEASING, Phase.MOVING)


class LendArguments(Value):
    """The arguments of `dnm lend`. If `count` is 0, `nodes` names all nodes to lend."""

    namespace: str
    count: int = 0
    node_type: str = ""
    nodes: tuple[str, ...] = ()
    until: datetime | None = None
    reason: str = ""
    is_forced: bool = False
    account: str = ""


# --- lend ------------------------------------------------------------------------------------


def orders_of(
    config: Config, registry: Registry, wanted: LendArguments, author: str, now: datetime
) -> tuple[LendOrder, ...] | Refusal:
    """Returns a lend order for each node type, or a refusal if no run could ever fulfil them."""
    named = _nodes_by_type(config, wanted)
    if isinstance(named, Refusal):
        return named
    for name in wanted.nodes:
        if refusal := _refuse_taken(config, registry, name, now):
            return refusal
    counts = {node_type: len(nodes) or wanted.count for node_type, nodes in named.items()}
    each = [(name, wanted.namespace) for name, count in counts.items() for _ in range(count)]
    if limit := describe_exceeded_caps(config, each):
        count = count_of(len(each), "node")
        return Refusal(f"{count} can never be lent: {limit}; request fewer nodes")
    return tuple(
        LendOrder(
            id=f"lend-{run_name(now + timedelta(microseconds=number))}",
            node_type=node_type,
            namespace=wanted.namespace,
            count=counts[node_type],
            since=now,
            until=wanted.until or now + USUAL,
            nodes=tuple(nodes),
            requester=author,
            reason=wanted.reason,
            is_forced=wanted.is_forced,
            account=wanted.account,
        )
        for number, (node_type, nodes) in enumerate(named.items())
    )


def lend(config: Config, registry: Registry, order: LendOrder) -> Registry | Refusal:
    """Records a lend order. Refuses this if a node that it names is not free any more."""
    for name in order.nodes:
        if refusal := _refuse_taken(config, registry, name, order.since):
            return refusal
    return replace(registry, orders=(*registry.orders, order))


def _nodes_by_type(config: Config, wanted: LendArguments) -> dict[str, list[str]] | Refusal:
    """Returns the named nodes by their type, or a refusal. If no node is named, returns the
    requested type with an empty list."""
    policy = policy_of(config, wanted.namespace)
    if isinstance(policy, Refusal):
        return policy
    count = wanted.count or len(wanted.nodes)
    if count < 1:
        return Refusal("write how many nodes, or which: dnm lend 2, or --node a001")
    if wanted.nodes and count != len(wanted.nodes):
        requested = f"{count_of(count, 'node')} {'is' if count == 1 else 'are'} requested"
        return Refusal(
            f"{requested}, but --node names {len(wanted.nodes)}: leave out the number, or name as "
            "many nodes"
        )
    named: dict[str, list[str]] = {}
    for name in wanted.nodes:
        named.setdefault(config.type_of(name) or "", []).append(name)
    named = named or {wanted.node_type or policy.node_types[0]: []}
    return _refuse_type(policy, wanted, named) or named


def _refuse_type(
    policy: NamespacePolicy, wanted: LendArguments, named: dict[str, list[str]]
) -> Refusal | None:
    if wanted.node_type and set(named) - {wanted.node_type}:
        wrong = [name for of, many in named.items() if of != wanted.node_type for name in many]
        names, verb = fold_hostlist(wrong), "is" if len(wrong) == 1 else "are"
        return Refusal(
            f"{names} {verb} not of type {wanted.node_type}; omit --type if you name nodes"
        )
    for node_type, of in named.items():
        if node_type not in policy.node_types:
            kind = f"type {node_type}" if node_type else "no known type"
            nodes = f"{fold_hostlist(of)}: nodes" if of else "nodes"
            types = ", ".join(policy.node_types)
            return Refusal(f"{nodes} of {kind} are not lent to {policy.name}; its types: {types}")
    return None


def _refuse_taken(config: Config, registry: Registry, name: str, now: datetime) -> Refusal | None:
    entry = registry.nodes.get(name)
    if entry is not None:
        how = f"`dnm extend {name}` keeps it there"
        return Refusal(f"{name} is lent to {entry.namespace} already: {how}")
    if refusal := refuse_excluded(config, registry, None, name, now):
        return refusal
    for order in registry.orders:
        if name in order.nodes and now < order.until:
            return Refusal(
                f"{name} is requested already, by {order.id} of {order.requester or 'unknown'}: "
                f"`dnm extend {order.id}` keeps it for longer"
            )
    return None


# --- extend ----------------------------------------------------------------------------------


def extend(config: Config, registry: Registry, name: str, until: datetime) -> Registry | Refusal:
    """Keeps a lent node until a time, even if idle. If `name` is a lend order, keeps its joining
    and serving nodes that are not leaving; until that time, the order also lends missing nodes."""
    if not any(order.id == name for order in registry.orders):
        return _node_extended(config, registry, name, until)

    def longer(node: E) -> E:
        stays = node.order == name and node.stays_until is not None
        return replace(node, stays_until=until) if stays else node

    return replace(
        registry,
        orders=tuple(
            replace(order, until=until) if order.id == name else order for order in registry.orders
        ),
        requests=tuple(map(longer, registry.requests)),
        nodes={node: longer(entry) for node, entry in registry.nodes.items()},
    )


def _node_extended(
    config: Config, registry: Registry, name: str, until: datetime
) -> Registry | Refusal:
    entry = lent_entry(config, registry, name)
    if isinstance(entry, Refusal):
        return entry
    if entry.leaves in OVERRIDES_STAY or entry.phase not in _STAYS:
        return Refusal(f"{name} is being returned already ({entry.phase.value})")
    return _with_node(registry, name, replace(entry, stays_until=until))


def lent_entry(config: Config, registry: Registry, name: str) -> LentNode | Refusal:
    """Returns the registry's entry of a node, or a refusal if this instance has not lent it."""
    entry = registry.nodes.get(name)
    if entry is not None and entry.owner == config.instance_id:
        return entry
    lent = fold_hostlist(registry.nodes) or "none"
    return Refusal(f"{name!r} is not a node that this instance has lent; lent nodes: {lent}")


def _with_node(registry: Registry, name: str, entry: LentNode) -> Registry:
    return replace(registry, nodes={**registry.nodes, name: entry})


# --- return ----------------------------------------------------------------------------------


class NodesToReturn(Value):
    """The nodes to return and the lend orders to end by a `dnm return`. `left` has the refusals for
    nodes of these orders that cannot be returned; the orders end nevertheless."""

    nodes: tuple[str, ...]
    orders: tuple[str, ...]
    left: tuple[Refusal, ...]


def nodes_to_return(
    config: Config, registry: Registry, orders: Sequence[str], nodes: Sequence[str]
) -> NodesToReturn | Refusal:
    """Returns the nodes and lend orders that the command passes to `return_nodes` one by one, or a
    refusal. Orders come last, so that an interrupted command can be repeated."""
    for name in nodes:
        entry = lent_entry(config, registry, name)
        if isinstance(entry, Refusal):
            return entry
        if refusal := _refuse_return(registry, name, entry):
            return refusal
    ordered = {name: entry for name, entry in registry.nodes.items() if entry.order in orders}
    refusals = {name: _refuse_return(registry, name, entry) for name, entry in ordered.items()}
    going = dict.fromkeys([*nodes, *(name for name, r in refusals.items() if r is None)])
    return NodesToReturn(
        nodes=tuple(going), orders=tuple(orders), left=tuple(filter(None, refusals.values()))
    )


def return_nodes(
    config: Config, registry: Registry, name: str, now: datetime, eviction: Eviction | None = None
) -> Registry | Refusal:
    """Marks a lent node to be cordoned by the next run, and returned when it is empty. Its lend
    order then requests one node less. If `name` is a lend order, this ends the order."""
    if _is_order(registry, name):
        return _order_ended(registry, name, now)
    entry = registry.nodes.get(name)
    if entry is None:
        return Refusal(f"{name} is no longer lent")
    if refusal := _refuse_return(registry, name, entry):
        return refusal
    departure = Departure(reason=Leaving.MANUAL, eviction=eviction)
    leaving = replace(entry, departure=departure, stays_until=None, order="")
    orders = [
        replace(
            order, count=order.count - 1, nodes=tuple(node for node in order.nodes if node != name)
        )
        if order.id == entry.order
        else order
        for order in registry.orders
    ]
    remaining = tuple(order for order in orders if order.count > 0)
    return replace(_with_node(registry, name, leaving), orders=remaining)


def _is_order(registry: Registry, name: str) -> bool:
    """Returns whether `name` is a lend order, even an ended one that a request or node names."""
    named = {order.id for order in registry.orders} | {
        request.order for request in registry.requests
    }
    return name in named | {node.order for node in registry.nodes.values()}


def _refuse_return(registry: Registry, name: str, entry: LentNode) -> Refusal | None:
    if name in registry.held:
        return Refusal(f"{name} is held: `dnm unhold {name}` first")
    if entry.phase is Phase.FAILED:
        return Refusal(f"{name} has failed: `dnm reset {name}` returns it; {entry.error}")
    if entry.phase is Phase.RETURNING:
        return Refusal(f"{name} is being returned already")
    return None


def refuse_eviction(name: str, node: Node | None) -> Refusal | None:
    """Returns a refusal to evict pods from a node that an administrator has cordoned, or None."""
    if node is None or not node.is_cordoned_by_another:
        return None
    return Refusal(
        f"{name} is cordoned by an administrator, so dnm does not fence it and evicts no pod: "
        f"`kubectl uncordon {name}` first, or `kubectl drain {name}`"
    )


def _order_ended(registry: Registry, name: str, now: datetime) -> Registry:
    """Ends a lend order. Its joining and lent nodes are then kept only while pods use them."""

    def ended(node: E) -> E:
        return replace(node, stays_until=now) if node.order == name else node

    return replace(
        registry,
        orders=tuple(order for order in registry.orders if order.id != name),
        requests=tuple(map(ended, registry.requests)),
        nodes={node: ended(entry) for node, entry in registry.nodes.items()},
    )
