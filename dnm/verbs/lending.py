"""`lend`, `extend` and `return`: nodes that a person asks for, keeps for longer, or wants out. Each
is written into the record; the next run does it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec.structs import replace

from dnm.model.config import Config, NamespacePolicy
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import (
    TOLD_TO_GO,
    ConversionRequest,
    Emptying,
    Leaving,
    LentNode,
    Phase,
)  # fmt: skip
from dnm.model.node import Node
from dnm.model.orders import LendOrder
from dnm.model.printable import count_of
from dnm.model.registry import Registry, run_name
from dnm.model.value import Value
from dnm.sizing.caps import why_never_so_many
from dnm.verbs.refusal import Refusal, policy_of, why_kept_out

E = TypeVar("E", LentNode, ConversionRequest)

USUAL = timedelta(hours=4)
"""For how long a person gets nodes who does not say for how long."""

_STAYS = (Phase.JOINING, Phase.SERVING, Phase.RELEASING, Phase.MOVING)


class Wanted(Value):
    """The words of `dnm lend`. `count` 0: as many as nodes are named."""

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
    config: Config, registry: Registry, wanted: Wanted, who: str, now: datetime
) -> tuple[LendOrder, ...] | Refusal:
    """Returns the orders that it makes, one a node type; refused is what no run could ever do."""
    named = _nodes_by_type(config, wanted)
    if isinstance(named, Refusal):
        return named
    for name in wanted.nodes:
        if refusal := _why_not_free(config, registry, name, now):
            return refusal
    counts = {node_type: len(nodes) or wanted.count for node_type, nodes in named.items()}
    each = [(name, wanted.namespace) for name, count in counts.items() for _ in range(count)]
    if why := why_never_so_many(config, each):
        return Refusal(f"{count_of(len(each), 'node')} can never be had: {why}")
    return tuple(
        LendOrder(
            id=f"lend-{run_name(now + timedelta(microseconds=number))}",
            node_type=node_type,
            namespace=wanted.namespace,
            count=counts[node_type],
            since=now,
            until=wanted.until or now + USUAL,
            nodes=tuple(nodes),
            who=who,
            reason=wanted.reason,
            is_forced=wanted.is_forced,
            account=wanted.account,
        )
        for number, (node_type, nodes) in enumerate(named.items())
    )


def lend(config: Config, registry: Registry, order: LendOrder) -> Registry | Refusal:
    """Writes an order down, as long as the nodes that it names are still free."""
    for name in order.nodes:
        if refusal := _why_not_free(config, registry, name, order.since):
            return refusal
    return replace(registry, orders=(*registry.orders, order))


def _nodes_by_type(config: Config, wanted: Wanted) -> dict[str, list[str]] | Refusal:
    """The node types, each with the nodes of it that are named."""
    policy = policy_of(config, wanted.namespace)
    if isinstance(policy, Refusal):
        return policy
    count = wanted.count or len(wanted.nodes)
    if count < 1:
        return Refusal("say how many nodes, or which: dnm lend 2, or --node a001")
    if wanted.nodes and count != len(wanted.nodes):
        asked = f"{count_of(count, 'node')} {'is' if count == 1 else 'are'} asked for"
        return Refusal(f"{asked}, and {len(wanted.nodes)} named")
    named: dict[str, list[str]] = {}
    for name in wanted.nodes:
        named.setdefault(config.type_of(name) or "", []).append(name)
    named = named or {wanted.node_type or policy.node_types[0]: []}
    return _why_not_of_type(policy, wanted, named) or named


def _why_not_of_type(
    policy: NamespacePolicy, wanted: Wanted, named: dict[str, list[str]]
) -> Refusal | None:
    if wanted.node_type and set(named) - {wanted.node_type}:
        others = [name for of, many in named.items() if of != wanted.node_type for name in many]
        names, verb = fold_hostlist(others), "is" if len(others) == 1 else "are"
        return Refusal(
            f"{names} {verb} not of type {wanted.node_type}; leave --type out where nodes are named"
        )
    for node_type, of in named.items():
        if node_type not in policy.node_types:
            kind = f"type {node_type}" if node_type else "no known type"
            what = f"{fold_hostlist(of)}: nodes" if of else "nodes"
            types = ", ".join(policy.node_types)
            return Refusal(f"{what} of {kind} are not lent to {policy.name}; its types are {types}")
    return None


def _why_not_free(config: Config, registry: Registry, name: str, now: datetime) -> Refusal | None:
    entry = registry.nodes.get(name)
    if entry is not None:
        how = f"`dnm extend {name}` keeps it there"
        return Refusal(f"{name} is lent to {entry.namespace} already: {how}")
    if refusal := why_kept_out(config, registry, None, name, now):
        return refusal
    for order in registry.orders:
        if name in order.nodes and now < order.until:
            return Refusal(
                f"{name} is asked for already, by {order.id} of {order.who or 'somebody'}: `dnm "
                f"extend {order.id}` keeps it for longer"
            )
    return None


# --- extend ----------------------------------------------------------------------------------


def extend(config: Config, registry: Registry, name: str, until: datetime) -> Registry | Refusal:
    """Keeps a lent node until then, idle or not; of an order what is on its way for it and what
    serves it, but for what leaves, and it asks for what is missing until then."""
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
    if entry.leaves in TOLD_TO_GO or entry.phase not in _STAYS:
        return Refusal(f"{name} is on its way back ({entry.phase.value})")
    return _with_node(registry, name, replace(entry, stays_until=until))


def lent_entry(config: Config, registry: Registry, name: str) -> LentNode | Refusal:
    """Returns the entry of a node that this instance has lent."""
    entry = registry.nodes.get(name)
    if entry is not None and entry.owner == config.instance_id:
        return entry
    lent = fold_hostlist(registry.nodes) or "none"
    return Refusal(f"{name!r} is not a node that this dnm has lent; lent are: {lent}")


def _with_node(registry: Registry, name: str, entry: LentNode) -> Registry:
    return replace(registry, nodes={**registry.nodes, name: entry})


# --- return ----------------------------------------------------------------------------------


class Returning(Value):
    """What of the words goes back: these nodes, and then these orders. `left`: why nodes of the
    orders don't; one that can't be returned keeps nobody from ending its order."""

    nodes: tuple[str, ...]
    orders: tuple[str, ...]
    left: tuple[Refusal, ...]


def what_goes_back(
    config: Config, registry: Registry, orders: Sequence[str], nodes: Sequence[str]
) -> Returning | Refusal:
    """Returns what `give_back` is to be said of, the orders last: a command that was interrupted
    still finds them. Each of the nodes that are named must go."""
    for name in nodes:
        entry = lent_entry(config, registry, name)
        if isinstance(entry, Refusal):
            return entry
        if refusal := _why_not_returned(registry, name, entry):
            return refusal
    came = {name: entry for name, entry in registry.nodes.items() if entry.order in orders}
    left = {name: _why_not_returned(registry, name, entry) for name, entry in came.items()}
    going = dict.fromkeys([*nodes, *(name for name, why in left.items() if why is None)])
    return Returning(
        nodes=tuple(going), orders=tuple(orders), left=tuple(filter(None, left.values()))
    )


def give_back(
    config: Config, registry: Registry, name: str, now: datetime, emptying: Emptying | None = None
) -> Registry | Refusal:
    """Fences a lent node from the next run on, to go back when it is empty: it is asked for no
    more, so its order shrinks by it. Of an order: nothing more comes of it."""
    if _is_order(registry, name):
        return _order_ended(registry, name, now)
    entry = registry.nodes.get(name)
    if entry is None:
        return Refusal(f"{name} is lent no more")
    if refusal := _why_not_returned(registry, name, entry):
        return refusal
    gone = replace(entry, leaves=Leaving.BY_HAND, emptying=emptying, stays_until=None, order="")
    orders = [
        replace(
            order, count=order.count - 1, nodes=tuple(node for node in order.nodes if node != name)
        )
        if order.id == entry.order
        else order
        for order in registry.orders
    ]
    left = tuple(order for order in orders if order.count > 0)
    return replace(_with_node(registry, name, gone), orders=left)


def _is_order(registry: Registry, name: str) -> bool:
    """Whether there is such an order, or anything that came of one."""
    named = {order.id for order in registry.orders} | {
        request.order for request in registry.requests
    }
    return name in named | {node.order for node in registry.nodes.values()}


def _why_not_returned(registry: Registry, name: str, entry: LentNode) -> Refusal | None:
    if name in registry.held:
        return Refusal(f"{name} is held: `dnm unhold {name}` first")
    if entry.phase is Phase.FAILED:
        return Refusal(f"{name} has failed: `dnm reset {name}` returns it; {entry.error}")
    if entry.phase is Phase.RETURNING:
        return Refusal(f"{name} is on its way back already")
    return None


def why_not_emptied(name: str, node: Node | None) -> Refusal | None:
    """Says why nobody is evicted from a node, as Kubernetes has it."""
    if node is None or not node.is_cordoned_by_another:
        return None
    return Refusal(
        f"{name} is cordoned by an administrator, so dnm does not fence it and evicts nobody: "
        f"`kubectl uncordon {name}` first, or `kubectl drain {name}`"
    )


def _order_ended(registry: Registry, name: str, now: datetime) -> Registry:
    """What is on its way for it comes, and what could not be returned may mend: neither stays."""

    def ended(node: E) -> E:
        return replace(node, stays_until=now) if node.order == name else node

    return replace(
        registry,
        orders=tuple(order for order in registry.orders if order.id != name),
        requests=tuple(map(ended, registry.requests)),
        nodes={node: ended(entry) for node, entry in registry.nodes.items()},
    )
