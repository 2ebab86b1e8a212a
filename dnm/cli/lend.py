"""`dnm lend`, `extend` and `return`: what a person asks for, keeps for longer, or wants out. Each
writes it into the registry, with who and why; the next run does it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from dnm.cli.admin import change_told
from dnm.cli.by_hand import named_nodes
from dnm.cli.deadline import shown
from dnm.cli.output import told_together
from dnm.cli.person import a_deed
from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.history import run_name
from dnm.model.hostlist import fold_hostlist
from dnm.model.printable import count_of
from dnm.model.registry import Half, Leaving, LendOrder, LentNode, Phase, Registry
from dnm.plan.kept_out import kept_out
from dnm.run.registry import load_registry
from dnm.sizing.budget import count_caps

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


def lend(config: Config, wanted: Wanted) -> str:
    """Writes the order down; refuses what no run could ever do."""
    now = datetime.now(UTC)
    registry = load_registry(config, now)
    node_type, count = _judged(config, wanted, registry, now)
    until = wanted.until or now + USUAL
    name = f"lend-{run_name(now)}"
    deed = a_deed(
        "lend",
        name,
        wanted.reason,
        namespace=wanted.namespace,
        node_type=node_type,
        count=str(count),
        nodes=",".join(wanted.nodes),
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
        nodes=wanted.nodes,
        who=f"{deed.who} on {deed.host}",
        reason=deed.reason,
        is_forced=wanted.is_forced,
    )
    change_told(config, lambda one: _with(one, orders=(*one.orders, order)), deed)
    what = fold_hostlist(wanted.nodes) or f"{count_of(count, 'node')} of type {node_type}"
    is_paused = registry.pause is not None and registry.pause.stops(Half.LENDING, now)
    when = "dnm is paused, and asks for it after `dnm resume`" if is_paused else _NEXT
    return (
        f"{what} for {wanted.namespace} until {shown(until)}: {when}; `dnm return {name}` takes it "
        "back"
    )


def _judged(config: Config, wanted: Wanted, registry: Registry, now: datetime) -> tuple[str, int]:
    """The node type and how many, or why not."""
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
    types = {config.type_of(name) or "" for name in wanted.nodes}
    node_type = wanted.node_type or (types.pop() if types else policy.node_types[0])
    if types - {node_type} or node_type not in policy.node_types:
        raise RefusedError(
            f"nodes of {'type ' + node_type if node_type else 'no known type'} are not lent to "
            f"{policy.name}; its types are {', '.join(policy.node_types)}, and an order has one"
        )
    for name in wanted.nodes:
        _check_free(config, registry, name, now)
    _check_caps(config, node_type, policy.name, count)
    return node_type, count


def _check_free(config: Config, registry: Registry, name: str, now: datetime) -> None:
    entry = registry.nodes.get(name)
    if entry is not None:
        raise RefusedError(
            f"{name} is lent to {entry.namespace} already: `dnm extend {name}` keeps it there"
        )
    if why := kept_out(config, registry, None, now).get(name):
        raise RefusedError(f"{name} is kept out of lending: {why}")


def _check_caps(config: Config, node_type: str, namespace: str, count: int) -> None:
    for cap in count_caps(config, [(node_type, namespace)] * count):
        if cap.lent > cap.max:
            raise RefusedError(
                f"{count_of(count, 'node')} can never be had: {cap.bound} is {cap.max}"
            )


# --- extend ----------------------------------------------------------------------------------


def extend(config: Config, words: Sequence[str], until: datetime, reason: str = "") -> list[str]:
    """Keeps lent nodes until then, idle or not."""
    registry, nodes = load_registry(config, datetime.now(UTC)), named_nodes(words)
    for name in nodes:
        entry = lent_entry(config, registry, name)
        if entry.leaves in (Leaving.BY_HAND, Leaving.KEPT_OUT) or entry.phase not in _STAYS:
            raise RefusedError(f"{name} is on its way back ({entry.phase.value})")
    for name in nodes:
        deed = a_deed("extend", name, reason, until=until.isoformat(timespec="seconds"))
        change_told(config, partial(_extended, name, until), deed)
    return told_together((name, f"NODE stays until {shown(until)}, idle or not") for name in nodes)


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
