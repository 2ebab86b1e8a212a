"""`dnm lend` and `dnm extend`. They change the registry; the next run acts on it."""

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
    author_of,
    carry_out,
    granted,
    new_operation,
    rehearse,
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
from dnm.cli.terminal.output import merge_sentences, shown
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
from dnm.verbs.lending import LendArguments, orders_of


def lend(
    config: ConfigOption,
    namespace: NamespaceOption,
    count: Annotated[
        int | None,
        typer.Argument(
            metavar="[N]",
            help="Number of nodes; leave it out with --node.",
            min=1,
            max=10_000,
            show_default=False,
        ),
    ] = None,
    node_type: Annotated[
        str, typer.Option("--type", help="Lend this node type; default: the namespace's first.")
    ] = "",
    node: Annotated[
        list[str] | None,
        typer.Option("--node", help="Lend these nodes: name or host list; repeatable."),
    ] = None,
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
    is_now: NowOption = False,
    is_forced: Annotated[
        bool,
        typer.Option(
            "--force", help="Ignore the cooldown, an open circuit breaker and the current back-off."
        ),
    ] = False,
    account: Annotated[str, typer.Option(help="Charge this Slurm account; - for none.")] = "",
    output: NamesOption = "text",
) -> list[str]:
    """Lend N more nodes and keep them for a time (default 4h), even if idle."""
    now, deadline = datetime.now(UTC), deadline_of(config, length, until)
    asked = new_operation("lend", reason=reason)
    wanted = LendArguments(
        namespace=namespace, count=count or 0, node_type=node_type,
        nodes=named_nodes(node or ()), until=deadline, reason=asked.reason,
        is_forced=is_forced, account=_account(account),
    )  # fmt: skip
    registry = load_registry(config, now)
    # Each node type gets an order. Orders that no run could ever fulfil are refused.
    orders = granted(orders_of(config, registry, wanted, author_of(asked), now))
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
    answers = [_answer(config, order, registry, now) for order in orders]
    return answer_and_run(config, answers, output) if is_now else answers


def _account(text: str) -> str:
    try:
        return charged_account(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--account") from error


def _check_batch_nodes(config: Config, names: Iterable[str]) -> None:
    """Raises RefusedError if Slurm has no node with one of these names. Accepts all names if
    Slurm's nodes cannot be read."""
    listed = NodeConvert(config, os.environ).list_nodes()
    if isinstance(listed, Unreadable):
        return
    if unknown := [name for name in names if name not in listed.nodes]:
        raise RefusedError(
            f"{fold_hostlist(unknown)}: Slurm has no such node"
            f"{suggest(unknown[0], listed.nodes)}; `dnm nodes` lists its nodes"
        )


def _answer(config: Config, order: LendOrder, registry: Registry, now: datetime) -> str:
    nodes = f"{count_of(order.count, 'node')} of type {order.node_type}"
    named = fold_hostlist(order.nodes) or nodes
    when = "the next run starts to lend"
    if registry.paused(now, Way.LENDING):
        when = "dnm is paused, and lends after `dnm resume`"
    until = shown(order.until, config.events_zone)
    return f"{named} for {order.namespace} until {until}: {when}; `dnm return {order.id}` ends it"


def extend(
    config: ConfigOption,
    nodes: NodesOrOrders,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Keep lent nodes, or the nodes of an order, for a longer time."""
    deadline = deadline_of(config, length, until)
    if deadline is None:
        raise typer.BadParameter("write how long: --for 2h or --until 17:00")
    registry, zone = load_registry(config, datetime.now(UTC)), config.events_zone
    orders, names = orders_and_nodes(registry, nodes)
    each = ({"name": name, "until": deadline} for name in names)
    rehearse(config, registry, lending.extend, *each)
    end, was = shown(deadline, zone), {}
    for name in (*orders, *names):
        iso_time = deadline.isoformat(timespec="seconds")
        operation = new_operation("extend", name, reason, until=iso_time)
        done = carry_out(config, operation, lending.extend, name=name, until=deadline)
        before = _end_of(done.before, name)
        was[name] = f" (before: {shown(before, zone)})" if before and deadline < before else ""
    return [
        *(f"{name} and its nodes stay until {end}{was[name]}" for name in orders),
        *merge_sentences(
            (name, f"NODE stays until {end}{was[name]}, idle or not") for name in names
        ),
    ]


def _end_of(registry: Registry, name: str) -> datetime | None:
    """Returns until when an order or node is kept; None: dnm returns the node when it is idle."""
    order = next((order for order in registry.orders if order.id == name), None)
    return order.until if order else registry.nodes[name].stays_until
