"""The verbs by which a person says what shall become of nodes: options and words alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from dnm.cli import completion
from dnm.cli.one_run import pass_once, print_run
from dnm.cli.options import (
    ConfigOption,
    NamesOutput,
    NamesOutputOption,
    NamespaceOption,
    Output,
    ReasonOption,
)
from dnm.cli.stopping import reader_may_leave
from dnm.cli.verbs import BY_HAND, load_named_config

if TYPE_CHECKING:
    from dnm.model.config import Config

LentNodes = Annotated[
    list[str],
    typer.Argument(
        metavar="NODE...",
        help="Names or host lists: a[001-004].",
        autocompletion=completion.nodes,
        show_default=False,
    ),
]
NodesOrOrders = Annotated[
    list[str],
    typer.Argument(
        metavar="NODE...",
        help="Lent nodes, host lists, or the name that `dnm lend` printed.",
        autocompletion=completion.nodes,
        show_default=False,
    ),
]
AnyNodes = Annotated[
    list[str],
    typer.Argument(metavar="NODE...", help="Names or host lists: a[001-004].", show_default=False),
]
ForOption = Annotated[str, typer.Option("--for", help="90m, 2h, 1d, or minutes.")]
UntilOption = Annotated[
    str,
    typer.Option("--until", help="17:00 or 2026-12-01T17:00, in events_zone, or an offset."),
]


def add_verbs(app: typer.Typer) -> None:
    """Adds them to the app, in the order in which its help shows them."""
    for verb in (lend, extend, adopt, hold, unhold, exclude, unexclude):
        app.command(rich_help_panel=BY_HAND)(verb)
    app.command("return", rich_help_panel=BY_HAND)(give_back)


def _say(lines: list[str], output: str) -> None:
    from dnm.cli.output import print_answer

    print_answer(lines, output)


def deadline_of(config: Config, length: str, until: str) -> datetime | None:
    """Returns what `--for` or `--until` says; raises BadParameter."""
    from dnm.cli.deadline import parse_deadline

    return parse_deadline(length, until, datetime.now(UTC), config.events_zone)


NowOption = Annotated[bool, typer.Option("--now", help="Make a run at once.")]


def lend(
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
        typer.Option("--force", help="Past cooldown, back-off, breaker and jobs that wait."),
    ] = False,
    account: Annotated[
        str, typer.Option(help="Whom they are charged to; - for nobody, but as planned.")
    ] = "",
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
) -> None:
    """Lend N more nodes, which stay until their time is over (4h), idle or not."""
    from dnm.cli.by_hand import lend, named_nodes
    from dnm.verbs.lending import Wanted

    config = load_named_config(config_path)
    wanted = Wanted(
        namespace=namespace,
        count=count or 0,
        node_type=node_type,
        nodes=named_nodes(node or ()),
        until=deadline_of(config, length, until),
        reason=reason,
        is_forced=is_forced,
        account=_account(account),
    )
    said = lend(config, wanted)
    if is_now:
        answer_and_run(config, said, output)
    _say(said, output)


def _account(text: str) -> str:
    from dnm.config.names import charged_account

    try:
        return charged_account(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--account") from error


def extend(
    nodes: NodesOrOrders,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> None:
    """Keep lent nodes, or an order and what came of it, until then, idle or not."""
    from dnm.cli.by_hand import extend

    config = load_named_config(config_path)
    deadline = deadline_of(config, length, until)
    if deadline is None:
        raise typer.BadParameter("say how long: --for 2h or --until 17:00")
    _say(extend(config, nodes, deadline, reason), output)


def give_back(
    nodes: NodesOrOrders,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    waits: Annotated[
        bool, typer.Option("--when-empty", help="Their pods run on; so it is without any.")
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
) -> None:
    """Fence lent nodes; each goes back once its pods have ended, or were evicted."""
    from dnm.cli.give_back import Evict, give_back, make_sure

    if waits and evicts:
        raise typer.BadParameter("write --when-empty or --evict, not both")
    if grace and not evicts:
        raise typer.BadParameter("it is for --evict; without, pods run on", param_hint="--grace")
    length = _grace(grace)
    config = load_named_config(config_path)
    evict = Evict(length, make_sure(yes)) if evicts else None
    said = give_back(config, nodes, reason, evict)
    if is_now:
        answer_and_run(config, said, output)
    _say(said, output)


def _grace(text: str) -> timedelta:
    from dnm.model.quantity import parse_span

    length = parse_span(text or "0m", "m")
    if length is None or length > timedelta(days=7):
        raise typer.BadParameter("write 10m or 2h, a week at most", param_hint="--grace")
    return length


def adopt(
    node: Annotated[str, typer.Argument(show_default=False)],
    namespace: NamespaceOption,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Take in a node that came to Kubernetes by hand."""
    from dnm.cli.by_hand import adopt

    _say([adopt(load_named_config(config_path), os.environ, node, namespace, reason)], output)


def hold(
    nodes: LentNodes,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> None:
    """Keep nodes as they are: lent ones stay, others are not taken."""
    from dnm.cli import by_hand

    config = load_named_config(config_path)
    _say(by_hand.hold(config, nodes, deadline_of(config, length, until), reason), output)


def unhold(
    nodes: LentNodes,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Let held nodes go back, or be lent, again."""
    from dnm.cli import by_hand

    _say(by_hand.unhold(load_named_config(config_path), nodes, reason), output)


def exclude(
    nodes: AnyNodes,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    length: ForOption = "",
    until: UntilOption = "",
    reason: ReasonOption = "",
) -> None:
    """Keep nodes out of lending; lent ones serve on, and are not lent again."""
    from dnm.cli import by_hand

    config = load_named_config(config_path)
    _say(by_hand.exclude(config, nodes, deadline_of(config, length, until), reason), output)


def unexclude(
    nodes: AnyNodes,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Let excluded nodes be lent again."""
    from dnm.cli import by_hand

    _say(by_hand.unexclude(load_named_config(config_path), nodes, reason), output)


def answer_and_run(config: Config, lines: Sequence[str], output: str) -> NoReturn:
    """Prints what a verb has to say, makes the run that acts on it, and says what came of it, with
    what its orders wait for; ends with the run's exit code."""
    from dnm.cli.logs import deeds
    from dnm.cli.output import print_answer, print_line
    from dnm.cli.report import order_lines, run_document

    said = tuple(deeds)  # the run has its own
    if output == Output.text:
        print_answer(lines, output)
    result = pass_once(config, False)
    with reader_may_leave():
        if output == Output.text:
            print_run(result, config.events_zone)
            registry = result.outcome.registry if result.outcome else result.plan.registry
            orders = [one for one in registry.orders if one.id in {deed.object for deed in said}]
            for line in order_lines(orders, registry):
                print_line(line)
        else:
            print_answer(lines, output, run=run_document(result))
    raise typer.Exit(result.exit_code)
