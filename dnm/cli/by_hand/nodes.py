"""`dnm lend` and `dnm extend`: the next run acts on what they record."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

from dnm.cli.act.run import answer_and_run
from dnm.cli.terminal.deadline import deadline_of
from dnm.cli.terminal.node_words import named_nodes, orders_and_nodes
from dnm.cli.terminal.operation import (
    RefusedError,
    carry_out,
    granted,
    new_operation,
    rehearse,
    said_by,
)
from dnm.cli.terminal.options import (
    ConfigOption,
    ForOption,
    NamesOption,
    NamespaceOption,
    NodesOrOrders,
    NowOption,
    ReasonOption,
    UntilOption,
)
from dnm.cli.terminal.output import shown, told_together
from dnm.config.names import charged_account
from dnm.config.values import suggest
from dnm.converter.node_convert import NodeConvert
from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.orders import LendOrder, Way
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.run.registry import load_registry
from dnm.verbs import lending
from dnm.verbs.lending import Wanted, orders_of


def lend(
    config: ConfigOption,
    namespace: NamespaceOption,
    count: Annotated[
        int | None,
        typer.Argument(metavar="[N]", help="How many.", min=1, max=10_000, show_default=False),
    ] = None,
    node_type: Annotated[str, typer.Option("--type", help="Else the namespace's first.")] = "",
    node: Annotated[
        list[str] | None, typer.Option("--node", help="This one, or a host list; repeatable.")
    ] = None,
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
    is_now: NowOption = False,
    is_forced: Annotated[
        bool,
        typer.Option(
            "--force", help="Past the cooldown, an open breaker, and the back-off as it stood."
        ),
    ] = False,
    account: Annotated[
        str, typer.Option(help="Whom they are charged to; - for nobody, but as planned.")
    ] = "",
    output: NamesOption = "text",
) -> list[str]:
    """Lend N more nodes, which stay until their time is over (4h), idle or not."""
    now, deadline = datetime.now(UTC), deadline_of(config, length, until)
    asked = new_operation("lend", reason=reason)
    wanted = Wanted(
        namespace=namespace, count=count or 0, node_type=node_type,
        nodes=named_nodes(node or ()), until=deadline, reason=asked.reason,
        is_forced=is_forced, account=_account(account),
    )  # fmt: skip
    registry = load_registry(config, now)
    # One order for each node type. What no run could ever do is refused.
    orders = granted(orders_of(config, registry, wanted, said_by(asked), now))
    if wanted.nodes:
        _check_batch_nodes(config, wanted.nodes)
    for order in orders:
        operation = new_operation(
            "lend", order.id, order.reason, namespace=order.namespace,
            node_type=order.node_type, count=str(order.count), nodes=",".join(order.nodes),
            until=order.until.isoformat(timespec="seconds"),
            force="yes" if order.is_forced else "", account=order.account,
        )  # fmt: skip
        carry_out(config, operation, lending.lend, order=order)
    said = [_answer(config, order, registry, now) for order in orders]
    return answer_and_run(config, said, output) if is_now else said


def _account(text: str) -> str:
    try:
        return charged_account(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--account") from error


def _check_batch_nodes(config: Config, names: Iterable[str]) -> None:
    """Raises RefusedError for a name that no batch node has, if the batch nodes can be read."""
    listed = NodeConvert(config, os.environ).list_nodes()
    if isinstance(listed, Unreadable):
        return
    if unknown := [name for name in names if name not in listed.nodes]:
        raise RefusedError(
            f"{fold_hostlist(unknown)}: the batch side has no such node"
            f"{suggest(unknown[0], listed.nodes)}; `dnm nodes` shows those that it has"
        )


def _answer(config: Config, order: LendOrder, registry: Registry, now: datetime) -> str:
    nodes = f"{count_of(order.count, 'node')} of type {order.node_type}"
    what = fold_hostlist(order.nodes) or nodes
    when = "the next run asks for it"
    if registry.paused(now, Way.LENDING):
        when = "dnm is paused, and asks for it after `dnm resume`"
    until = shown(order.until, config.events_zone)
    return (
        f"{what} for {order.namespace} until {until}: {when}; `dnm return {order.id}` takes it back"
    )


def extend(
    config: ConfigOption,
    nodes: NodesOrOrders,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Keep lent nodes, or an order and what came of it, until then, idle or not."""
    deadline = deadline_of(config, length, until)
    if deadline is None:
        raise typer.BadParameter("say how long: --for 2h or --until 17:00")
    registry, zone = load_registry(config, datetime.now(UTC)), config.events_zone
    orders, names = orders_and_nodes(registry, nodes)
    each = ({"name": name, "until": deadline} for name in names)
    rehearse(config, registry, lending.extend, *each)
    end, was = shown(deadline, zone), {}
    for name in (*orders, *names):
        told = deadline.isoformat(timespec="seconds")
        operation = new_operation("extend", name, reason, until=told)
        done = carry_out(config, operation, lending.extend, name=name, until=deadline)
        before = _end_of(done.before, name)
        was[name] = f" ({shown(before, zone)} before)" if before and deadline < before else ""
    return [
        *(f"{name} holds until {end}{was[name]}, with all that came of it" for name in orders),
        *told_together((name, f"NODE stays until {end}{was[name]}, idle or not") for name in names),
    ]


def _end_of(registry: Registry, name: str) -> datetime | None:
    """Until when an order holds or a node stays; None: it goes back when it is idle."""
    order = next((order for order in registry.orders if order.id == name), None)
    return order.until if order else registry.nodes[name].stays_until
