"""`dnm lend`, `extend` and `return`: what a person asks for, keeps for longer, or wants out. Each
writes it into the registry, with who and why; the next run does it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from dnm.cli.admin import change_told
from dnm.cli.by_hand import named_nodes
from dnm.cli.output import shown, told_together
from dnm.cli.person import a_deed
from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.history import Deed
from dnm.model.hostlist import fold_hostlist
from dnm.model.printable import count_of
from dnm.model.registry import (
    ConversionRequest,
    Half,
    Leaving,
    LendOrder,
    LentNode,
    Phase,
    Registry,
    run_name,
)
from dnm.plan.rules.kept_out import kept_out
from dnm.run.registry import load_registry
from dnm.sizing.budget import why_never_so_many

E = TypeVar("E", LentNode, ConversionRequest)

USUAL = timedelta(hours=4)
"""For how long a person gets nodes who does not say for how long."""


_NEXT = "the next run asks for it"


class RefusedError(DnmError):
    """What a person has asked for can't be had, whatever happens."""

    exit_code = ExitCode.NEEDS_PERSON


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The words of `dnm lend`. `count` 0: as many as nodes are named."""

    namespace: str
    count: int = 0
    node_type: str = ""
    nodes: tuple[str, ...] = ()
    until: datetime | None = None
    reason: str = ""
    is_forced: bool = False


def lend(config: Config, wanted: Wanted) -> list[str]:
    """Writes the orders down, one a node type; refuses what no run could ever do."""
    now = datetime.now(UTC)
    registry = load_registry(config, now)
    until = wanted.until or now + USUAL
    orders: list[tuple[LendOrder, Deed]] = []
    for node_type, count, nodes in _judged(config, wanted, registry, now):
        name = f"lend-{run_name(now + timedelta(microseconds=len(orders)))}"
        deed = a_deed(
            "lend",
            name,
            wanted.reason,
            namespace=wanted.namespace,
            node_type=node_type,
            count=str(count),
            nodes=",".join(nodes),
            until=until.isoformat(timespec="seconds"),
            force="yes" if wanted.is_forced else "",
        )
        order = LendOrder(
            id=name,
            node_type=node_type,
            namespace=wanted.namespace,
            count=count,
            since=now,
            until=until,
            nodes=nodes,
            who=f"{deed.who} on {deed.host}",
            reason=deed.reason,
            is_forced=wanted.is_forced,
        )
        orders.append((order, deed))
    for order, deed in orders:
        change_told(config, partial(_ordered, order), deed)
    return [_answer(config, order, registry, now) for order, _ in orders]


def _ordered(order: LendOrder, registry: Registry) -> Registry:
    return _with(registry, orders=(*registry.orders, order))


def _answer(config: Config, order: LendOrder, registry: Registry, now: datetime) -> str:
    nodes = f"{count_of(order.count, 'node')} of type {order.node_type}"
    what = fold_hostlist(order.nodes) or nodes
    is_paused = registry.pause is not None and registry.pause.stops(Half.LENDING, now)
    when = "dnm is paused, and asks for it after `dnm resume`" if is_paused else _NEXT
    until = shown(order.until, config.events_zone)
    return (
        f"{what} for {order.namespace} until {until}: {when}; `dnm return {order.id}` takes it back"
    )


def _judged(
    config: Config, wanted: Wanted, registry: Registry, now: datetime
) -> list[tuple[str, int, tuple[str, ...]]]:
    """Of each node type how many, and which; raises RefusedError for what can't be."""
    policy = config.namespaces.get(wanted.namespace)
    if policy is None:
        raise RefusedError(
            f"namespace {wanted.namespace!r} is not monitored; there are "
            f"{', '.join(sorted(config.namespaces))}"
        )
    count = wanted.count or len(wanted.nodes)
    if count < 1:
        raise RefusedError("say how many nodes, or which: dnm lend 2, or --node a001")
    if wanted.nodes and count != len(wanted.nodes):
        raise RefusedError(f"{count} nodes are asked for, and {len(wanted.nodes)} named")
    named: dict[str, list[str]] = {}
    for name in wanted.nodes:
        named.setdefault(config.type_of(name) or "", []).append(name)
    if wanted.node_type and set(named) - {wanted.node_type}:
        others = [name for of, many in named.items() if of != wanted.node_type for name in many]
        raise RefusedError(
            f"{fold_hostlist(others)} {'is' if len(others) == 1 else 'are'} not of type "
            f"{wanted.node_type}; leave --type out where nodes are named"
        )
    for node_type in named or (wanted.node_type or policy.node_types[0],):
        if node_type not in policy.node_types:
            raise RefusedError(
                f"nodes of {'type ' + node_type if node_type else 'no known type'} are not lent "
                f"to {policy.name}; its types are {', '.join(policy.node_types)}"
            )
    for name in wanted.nodes:
        _check_free(config, registry, name, now)
    if not named:
        named = {wanted.node_type or policy.node_types[0]: []}
    kinds = [(of, len(many) or count, tuple(many)) for of, many in named.items()]
    _check_caps(config, [(of, policy.name) for of, number, _ in kinds for _ in range(number)])
    return kinds


def _check_free(config: Config, registry: Registry, name: str, now: datetime) -> None:
    entry = registry.nodes.get(name)
    if entry is not None:
        raise RefusedError(
            f"{name} is lent to {entry.namespace} already: `dnm extend {name}` keeps it there"
        )
    if why := kept_out(config, registry, None, now).get(name):
        raise RefusedError(f"{name} is kept out of lending: {why}")
    for order in registry.orders:
        if name in order.nodes and now < order.until:
            raise RefusedError(
                f"{name} is asked for already, by {order.id} of {order.who or 'somebody'}: "
                f"`dnm extend {order.id}` keeps it for longer"
            )


def _check_caps(config: Config, wanted: Sequence[tuple[str, str]]) -> None:
    if why := why_never_so_many(config, wanted):
        raise RefusedError(f"{count_of(len(wanted), 'node')} can never be had: {why}")


# --- extend ----------------------------------------------------------------------------------


def extend(config: Config, words: Sequence[str], until: datetime, reason: str = "") -> list[str]:
    """Keeps lent nodes until then, idle or not; of an order, all that came of it, and it asks for
    what is missing until then."""
    registry = load_registry(config, datetime.now(UTC))
    known = {order.id for order in registry.orders}
    orders = list(dict.fromkeys(word for word in words if word in known))
    nodes = named_nodes(word for word in words if word not in known)
    for name in nodes:
        entry = lent_entry(config, registry, name)
        if entry.leaves in (Leaving.BY_HAND, Leaving.KEPT_OUT) or entry.phase not in _STAYS:
            raise RefusedError(f"{name} is on its way back ({entry.phase.value})")
    told = until.isoformat(timespec="seconds")
    for name in orders:
        ordered = partial(_order_extended, name, until)
        change_told(config, ordered, a_deed("extend", name, reason, until=told))
    for name in nodes:
        extended = partial(_extended, name, until)
        change_told(config, extended, a_deed("extend", name, reason, until=told))
    end = shown(until, config.events_zone)
    of_orders = [f"{name} holds until {end}, with all that came of it" for name in orders]
    each = told_together((name, f"NODE stays until {end}, idle or not") for name in nodes)
    return [*of_orders, *each]


def _order_extended(name: str, until: datetime, registry: Registry) -> Registry:
    """The order, what is on its way for it, and what serves it, but for what leaves."""

    def longer(one: E) -> E:
        stays = one.order == name and one.stays_until is not None
        return msgspec.structs.replace(one, stays_until=until) if stays else one

    return _with(
        registry,
        orders=tuple(
            msgspec.structs.replace(one, until=until) if one.id == name else one
            for one in registry.orders
        ),
        requests=tuple(map(longer, registry.requests)),
        nodes={node: longer(entry) for node, entry in registry.nodes.items()},
    )


_STAYS = (Phase.JOINING, Phase.SERVING, Phase.RELEASING, Phase.MOVING)


def _extended(name: str, until: datetime, registry: Registry) -> Registry:
    entry = registry.nodes.get(name)
    if entry is None:
        return registry
    return with_node(registry, name, msgspec.structs.replace(entry, stays_until=until))


def lent_entry(config: Config, registry: Registry, name: str) -> LentNode:
    """The entry of a node that this instance has lent. Raises RefusedError."""
    entry = registry.nodes.get(name)
    if entry is None or entry.owner != config.instance_id:
        lent = fold_hostlist(registry.nodes) or "none"
        raise RefusedError(f"{name!r} is not a node that this dnm has lent; lent are: {lent}")
    return entry


def with_node(registry: Registry, name: str, entry: LentNode) -> Registry:
    """The registry with that entry in place of the one before."""
    return _with(registry, nodes={**registry.nodes, name: entry})


def _with(registry: Registry, **changes: object) -> Registry:
    return msgspec.structs.replace(registry, **changes)
