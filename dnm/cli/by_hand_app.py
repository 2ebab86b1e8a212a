"""The verbs that change something: those that stop, go on, and mend what is recorded, and those by
which a person says what shall become of nodes. Options, and which function answers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, NoReturn

import typer

from dnm.cli.look.one_run import pass_once, print_run
from dnm.cli.terminal import completion
from dnm.cli.terminal.options import (
    ConfigOption,
    ForOption,
    NamesOption,
    NamespaceOption,
    PathOption,
    ReasonOption,
    UntilOption,
    YesOption,
)
from dnm.model.config import Config
from dnm.model.printable import printable

_YEAR = timedelta(days=366)
NodeArgument = Annotated[str, typer.Argument(autocompletion=completion.nodes)]


def _nodes(text: str = "Names or host lists: a[001-004].", **more: Any) -> Any:
    return typer.Argument(metavar="NODE...", help=text, show_default=False, **more)


AnyNodes = Annotated[list[str], _nodes()]
LentNodes = Annotated[list[str], _nodes(autocompletion=completion.nodes)]
NodesOrOrders = Annotated[
    list[str],
    _nodes(
        "Lent nodes, host lists, or the name that `dnm lend` printed.",
        autocompletion=completion.nodes,
    ),
]
NowOption = Annotated[bool, typer.Option("--now", help="Make a run at once.")]


def asks(is_told: bool) -> Callable[[str], bool]:
    """Returns what asks a person whether he is sure, unless he has said `--yes`."""
    return lambda text: is_told or typer.confirm(text, err=True)


# --- stop, go on, mend -----------------------------------------------------------------------


def pause(
    config: ConfigOption,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: Annotated[str, typer.Option(help="Shown by status; kept in the history.")] = "",
    lending: Annotated[
        bool, typer.Option("--lending", help="Lend nothing; go on returning.")
    ] = False,
    returning: Annotated[
        bool, typer.Option("--returning", help="Return nothing; go on lending.")
    ] = False,
    is_forced: Annotated[
        bool, typer.Option("--force", help="In place of a pause that stops more, or for longer.")
    ] = False,
) -> str:
    """Stop lending and returning until resumed or for a while, or one of them."""
    from dnm.cli.act import admin
    from dnm.model.orders import Way

    half = None if lending is returning else Way.LENDING if lending else Way.RETURNING
    end = deadline_of(config, length, until)
    return admin.pause(config, end, reason, half, is_forced=is_forced)


def resume(config: ConfigOption, output: NamesOption = "text", reason: ReasonOption = "") -> str:
    """End the pause."""
    from dnm.cli.act import admin

    return admin.resume(config, reason)


def reset(
    config: ConfigOption,
    name: Annotated[str, typer.Argument(autocompletion=completion.resettable)],
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> list[str]:
    """Reset a breaker, a back-off or failed nodes.

    NAME is a queue (closes its breaker), a node type (ends its back-off), or a failed node or a
    host list of them (tries to return them again).
    """
    from dnm.cli.act import admin

    return admin.reset(config, name, reason)


def forget(
    config: ConfigOption,
    node: NodeArgument,
    output: NamesOption = "text",
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> str:
    """Drop a node that a person has returned to Slurm."""
    from dnm.cli.act import admin

    return admin.forget(config, node, asks(yes), reason)


def takeover(
    config: ConfigOption,
    output: NamesOption = "text",
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> str:
    """Act for the instance from here, in another host's place.

    Only one host's record acts for an instance_id. Stop dnm on the other host first.
    """
    from dnm.cli.act import admin

    return admin.take_over(config, asks(yes), reason)


def convert_test(
    node: Annotated[str, typer.Argument(help="Drained in Slurm by a person.")],
    rounds: Annotated[int, typer.Option(help="How often.", min=1, max=1000)] = 1,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The namespace that hooks are told.")
    ] = "",
    config_path: PathOption = None,
) -> int:
    """Move a node that is out of service to Kubernetes and back, and name what is left over."""
    from dnm.cli.set_up import convert_test

    return convert_test.convert_test(config_path, node, rounds, namespace)


# --- what shall become of nodes --------------------------------------------------------------


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
    from dnm.cli.by_hand import nodes as by_hand
    from dnm.verbs.lending import Wanted

    wanted = Wanted(
        namespace=namespace,
        count=count or 0,
        node_type=node_type,
        nodes=by_hand.named_nodes(node or ()),
        until=deadline_of(config, length, until),
        reason=reason,
        is_forced=is_forced,
        account=_account(account),
    )
    said = by_hand.lend(config, wanted)
    return answer_and_run(config, said, output) if is_now else said


def _account(text: str) -> str:
    from dnm.config.names import charged_account

    try:
        return charged_account(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--account") from error


def extend(
    config: ConfigOption,
    nodes: NodesOrOrders,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Keep lent nodes, or an order and what came of it, until then, idle or not."""
    from dnm.cli.by_hand import nodes as by_hand

    deadline = deadline_of(config, length, until)
    if deadline is None:
        raise typer.BadParameter("say how long: --for 2h or --until 17:00")
    return by_hand.extend(config, nodes, deadline, reason)


def give_back(
    config: ConfigOption,
    nodes: NodesOrOrders,
    output: NamesOption = "text",
    waits: Annotated[
        bool, typer.Option("--when-empty", help="Their pods run on, as without this option.")
    ] = False,
    evicts: Annotated[
        bool, typer.Option("--evict", help="Ask their pods to go, within disruption budgets.")
    ] = False,
    grace: Annotated[
        str, typer.Option("--grace", help="With --evict: pods are asked after that: 10m, 2h.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="With --evict: do not ask.")] = False,
    reason: ReasonOption = "",
    is_now: NowOption = False,
) -> list[str]:
    """Fence lent nodes; each goes back once its pods have ended, or were evicted."""
    from dnm.cli.by_hand.nodes import Evict, give_back, make_sure

    if waits and evicts:
        raise typer.BadParameter("write --when-empty or --evict, not both")
    if grace and not evicts:
        raise typer.BadParameter("it is for --evict; without, pods run on", param_hint="--grace")
    length = _grace(grace)
    said = give_back(config, nodes, reason, Evict(length, make_sure(yes)) if evicts else None)
    return answer_and_run(config, said, output) if is_now else said


def _grace(text: str) -> timedelta:
    from dnm.model.quantity import parse_span

    length = parse_span(text or "0m")
    if length is None or length > timedelta(days=7):
        wrong = "has no unit" if text.isdecimal() else "is no duration"
        hint = f"'{printable(text, 40)}' {wrong}; write 10m or 2h, a week at most"
        raise typer.BadParameter(hint, param_hint="--grace")
    return length


def adopt(
    config: ConfigOption,
    node: Annotated[str, typer.Argument(show_default=False)],
    namespace: NamespaceOption,
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Take in a node that came to Kubernetes by hand."""
    from dnm.cli.by_hand import nodes as by_hand

    return by_hand.adopt(config, os.environ, node, namespace, reason)


def hold(
    config: ConfigOption,
    nodes: LentNodes,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Keep nodes as they are: lent ones stay, others are not taken."""
    from dnm.cli.by_hand import nodes as by_hand

    return by_hand.hold(config, nodes, deadline_of(config, length, until), reason)


def unhold(
    config: ConfigOption, nodes: LentNodes, output: NamesOption = "text", reason: ReasonOption = ""
) -> list[str]:
    """Let held nodes go back, or be lent, again."""
    from dnm.cli.by_hand import nodes as by_hand

    return by_hand.unhold(config, nodes, reason)


def exclude(
    config: ConfigOption,
    nodes: AnyNodes,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> list[str]:
    """Keep nodes out of lending; lent ones serve on, and are not lent again."""
    from dnm.cli.by_hand import nodes as by_hand

    return by_hand.exclude(config, nodes, deadline_of(config, length, until), reason)


def unexclude(
    config: ConfigOption, nodes: AnyNodes, output: NamesOption = "text", reason: ReasonOption = ""
) -> list[str]:
    """Let excluded nodes be lent again."""
    from dnm.cli.by_hand import nodes as by_hand

    return by_hand.unexclude(config, nodes, reason)


def answer_and_run(config: Config, lines: Sequence[str], output: str) -> NoReturn:
    """Prints what a verb has to say, makes the run that acts on it, and says what came of it, with
    what its orders wait for; ends with the run's exit code."""
    from dnm.cli.look.report import order_lines, run_document
    from dnm.cli.terminal.logs import operations
    from dnm.cli.terminal.output import print_answer, print_line

    said = tuple(operations)  # the run has its own
    if output == "text":
        print_answer(lines, output)
    result = pass_once(config, False)
    if output == "text":
        print_run(result, config.events_zone)
        registry = result.outcome.registry if result.outcome else result.plan.registry
        named = {operation.object for operation in said}
        orders = [one for one in registry.orders if one.id in named]
        for line in order_lines(orders, registry):
            print_line(line)
    else:
        print_answer(lines, output, run=run_document(result))
    raise typer.Exit(result.exit_code)


# --- for how long ----------------------------------------------------------------------------


def deadline_of(config: Config, length: str, until: str) -> datetime | None:
    """Returns what `--for` or `--until` says now; raises BadParameter."""
    return parse_deadline(length, until, datetime.now(UTC), config.events_zone)


def parse_deadline(length: str, until: str, now: datetime, zone: str = "UTC") -> datetime | None:
    """Returns the moment that `--for` or `--until` names; None: neither does. A time without an
    offset is one of `zone`. Raises BadParameter for both, for what is no time, is over, or more
    than a year ahead."""
    if length and until:
        raise typer.BadParameter("write --for or --until, not both")
    if not (length or until):
        return None
    option = "--for" if length else "--until"
    moment = _after(length, now) if length else _moment(until, now, zone)
    if moment is None:
        hint = f"write 17:00 or 2026-12-01T17:00 ({zone}, or with an offset: 17:00+01:00)"
        if length:
            wrong = "has no unit" if length.isdecimal() else "is no duration"
            hint = f"'{printable(length, 40)}' {wrong}; write 90m, 2h or 1d, a year at most"
        raise typer.BadParameter(hint, param_hint=option)
    if not now < moment <= now + _YEAR:
        why = "is over" if moment <= now else "is more than a year ahead"
        # In UTC alone: another clock may have no word for the last hours of 9999.
        raise typer.BadParameter(f"{moment:%Y-%m-%d %H:%M} UTC {why}", param_hint=option)
    return moment


def _after(length: str, now: datetime) -> datetime | None:
    from dnm.model.quantity import parse_span

    span = parse_span(length)
    return None if span is None or not timedelta(0) < span <= _YEAR else now + span


def parse_wait(text: str) -> timedelta:
    """Returns the duration that `--wait` names. Raises BadParameter."""
    from dnm.model.quantity import parse_span

    span = parse_span(text)
    if span is None or not timedelta(0) <= span <= timedelta(days=1):
        raise typer.BadParameter("write e.g. 90s, 5m or 1h, a day at most", param_hint="--wait")
    return span


def _moment(text: str, now: datetime, zone: str) -> datetime | None:
    """A time of the day is the next time that it is so late."""
    from dnm.calendar.windows import begin_in_utc, zone_named

    try:
        if re.match(r"[0-9]{1,2}:", text):
            of_day = time.fromisoformat(text if text[2] == ":" else f"0{text}")
            here = of_day.tzinfo or zone_named(zone)
            wall = datetime.combine(now.astimezone(here).date(), of_day.replace(tzinfo=None))
            moments = (
                (wall + timedelta(days=n)).replace(tzinfo=here, fold=fold)
                for n in (0, 1)
                for fold in (0, 1)
            )
            return next(one for one in (m.astimezone(UTC) for m in moments) if one > now)
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else begin_in_utc(moment, zone)
    except (ValueError, IndexError, OverflowError, StopIteration):
        return None
