"""Verbs, options and exit codes; a few lines a verb. The only place that catches DnmError.

Every verb imports what it needs itself: `dnm status` must not load a Kubernetes client.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from dnm.cli import completion
from dnm.cli.by_hand_app import ForOption, UntilOption, add_verbs, deadline_of
from dnm.cli.event_app import event_app
from dnm.cli.load_app import load_app
from dnm.cli.node_types_app import node_types_app
from dnm.cli.one_run import make_run
from dnm.cli.options import (
    ConfigOption,
    ConsoleOption,
    DnmConfigOption,
    HistoryOutput,
    HistoryOutputOption,
    NamesOutput,
    NamesOutputOption,
    Output,
    OutputOption,
    ReasonOption,
    StatusOutput,
    TypeOption,
    load_named_config,
)
from dnm.cli.queues_app import queues_app
from dnm.cli.state_app import state_app
from dnm.cli.verbs import ACT, BY_HAND, LOOK, SET_UP, Verbs, sub_app, verb_in
from dnm.model.errors import DnmError, ExitCode
from dnm.model.printable import printable

app = typer.Typer(
    name="dnm",
    help="Lends idle Slurm nodes to Kubernetes when a YuniKorn queue runs out of room.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Verbs,
    suggest_commands=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(queues_app, name="queues", rich_help_panel=SET_UP)
app.add_typer(node_types_app, name="node-types", rich_help_panel=SET_UP)
app.add_typer(load_app, name="test-load", rich_help_panel=SET_UP)
app.add_typer(state_app, name="state", rich_help_panel=SET_UP)
app.add_typer(event_app, name="event", rich_help_panel=BY_HAND)

NodeArgument = Annotated[str, typer.Argument(autocompletion=completion.nodes)]
_YEAR = timedelta(days=366)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"dnm {version('dnm')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    config_path: DnmConfigOption = None,
) -> None:
    """Lends idle Slurm nodes to Kubernetes when a YuniKorn queue runs out of room."""


@app.command(rich_help_panel=ACT)
def run(
    config_path: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; write nothing anywhere.")
    ] = False,
    log_console: ConsoleOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Make one pass: look, decide, do a little, record."""
    if dry_run:
        plan(config_path, output)
    make_run(load_named_config(config_path), output, log_console)


@app.command(rich_help_panel=LOOK)
def plan(
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
    at: Annotated[
        str, typer.Option("--at", help="With the events of then, e.g. '2026-12-01 08:45'.")
    ] = "",
    is_detailed: Annotated[
        bool, typer.Option("--detailed-exitcode", help="3 where a run would do anything.")
    ] = False,
) -> None:
    """Show what a run would do and why; writes nothing."""
    config = load_named_config(config_path)
    from dnm.cli.output import print_document, reader_may_leave
    from dnm.cli.report import plan_document, print_plan
    from dnm.run.planning import plan_pass

    moment = None
    if at:
        from dnm.config.events import moment_at

        try:
            moment = moment_at(at, config.events_zone)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--at") from error
    result = plan_pass(config, os.environ, foreseen_at=moment)
    with reader_may_leave():
        if output is not Output.text:
            print_document(plan_document(result.plan), output)
        else:
            print_plan(result.plan, config.events_zone)
    would_act = is_detailed and result.plan.actions and result.exit_code == ExitCode.OK
    raise typer.Exit(ExitCode.WOULD_ACT if would_act else result.exit_code)


@app.command(rich_help_panel=LOOK)
def status(
    config_path: ConfigOption = None,
    output: Annotated[
        StatusOutput, typer.Option("--output", "-o", help="text, json, yaml, name or prometheus.")
    ] = StatusOutput.text,
    live: Annotated[bool, typer.Option("--live", help="Ask the cluster too.")] = False,
    wide: Annotated[bool, typer.Option("--wide", "-w", help="All columns.")] = False,
    sort: Annotated[
        str, typer.Option(help="By node, type, namespace, queue, phase, since or idle.")
    ] = "node",
    health: Annotated[
        bool, typer.Option("--health", help="One word for a monitor; 0, 1 or 2.")
    ] = False,
    is_watched: Annotated[
        bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")
    ] = False,
) -> None:
    """Show lent nodes, queues, brakes and the last run."""
    config = load_named_config(config_path)
    if is_watched and (output is not StatusOutput.text or health or not sys.stdout.isatty()):
        raise typer.BadParameter("it is for people at a terminal", param_hint="--watch")
    if health:
        from dnm.cli.health import print_health

        raise typer.Exit(print_health(config, datetime.now(UTC)))
    from dnm.cli.status import show_status
    from dnm.cli.status_view import SortBy

    if sort not in tuple(SortBy):
        raise typer.BadParameter(f"one of {', '.join(SortBy)}", param_hint="--sort")
    if is_watched:
        from dnm.cli.watch import watch

        watch(lambda: show_status(config, output, live, wide, SortBy(sort)))
        raise typer.Exit
    raise typer.Exit(show_status(config, output, live, wide, SortBy(sort)))


@app.command(rich_help_panel=SET_UP)
def check(
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare what is kept of the cluster with full lists.")
    ] = False,
) -> None:
    """Try now what could go wrong at 3 a.m."""
    from dnm.cli.check import run_checks

    raise typer.Exit(run_checks(config_path, os.environ, output.value, is_deep=deep))


@app.command(rich_help_panel=LOOK)
def nodes(
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    node_type: TypeOption = "",
) -> None:
    """Show which batch nodes could be lent now."""
    config = load_named_config(config_path)
    from dnm.cli.report import print_batch_nodes
    from dnm.converter.contract import given_to_converter
    from dnm.converter.node_list import list_batch_nodes
    from dnm.model.errors import ConverterError
    from dnm.model.value import Unreadable
    from dnm.plan.rules.kept_out import kept_out
    from dnm.run.registry import load_registry

    listed = list_batch_nodes(config, given_to_converter(config, os.environ))
    if isinstance(listed, Unreadable):
        raise ConverterError(listed.error)
    shown = [
        node
        for node in listed.nodes.values()
        if not node_type or config.type_of(node.name) == node_type
    ]
    now = datetime.now(UTC)
    out = kept_out(config, load_registry(config, now), listed.nodes, now)
    print_batch_nodes(config, shown, out, output)


@app.command(rich_help_panel=ACT)
def pause(
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
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
) -> None:
    """Stop lending and returning until resumed or for a while, or one of them."""
    from dnm.cli import admin
    from dnm.cli.output import print_answer
    from dnm.model.orders import Way

    config = load_named_config(config_path)
    half = None if lending is returning else Way.LENDING if lending else Way.RETURNING
    end = deadline_of(config, length, until)
    print_answer([admin.pause(config, end, reason, half, is_forced=is_forced)], output)


@app.command(rich_help_panel=ACT)
def resume(
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """End the pause."""
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    print_answer([admin.resume(load_named_config(config_path), reason)], output)


add_verbs(app)


@app.command(rich_help_panel=ACT)
def reset(
    name: Annotated[str, typer.Argument(autocompletion=completion.resettable)],
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Reset a breaker, a back-off or a failed node.

    NAME is a queue (closes its breaker), a node type (ends its back-off), or a failed node (tries
    to give it back again).
    """
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    print_answer([admin.reset(load_named_config(config_path), name, reason)], output)


@app.command(rich_help_panel=ACT)
def forget(
    node: NodeArgument,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    reason: ReasonOption = "",
) -> None:
    """Drop a node that a person has returned to Slurm."""
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    config = load_named_config(config_path)
    print_answer(
        [admin.forget(config, node, lambda text: yes or typer.confirm(text, err=True), reason)],
        output,
    )


@app.command(rich_help_panel=ACT)
def takeover(
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    reason: ReasonOption = "",
) -> None:
    """Act for the instance from here, in another host's place.

    Only one host's record acts for an instance_id. Stop dnm on the other host first.
    """
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    config = load_named_config(config_path)
    print_answer(
        [admin.take_over(config, lambda text: yes or typer.confirm(text, err=True), reason)], output
    )


@app.command(rich_help_panel=LOOK)
def history(
    about: Annotated[
        str,
        typer.Argument(
            help="A node, a queue, a node type or a request; none: all.",
            autocompletion=completion.resettable,
        ),
    ] = "",
    since: Annotated[str, typer.Option(help="90m, 36h, 7d, or a time in events_zone.")] = "7d",
    until: Annotated[str, typer.Option(help="The same.")] = "",
    kind: Annotated[str, typer.Option(help="Only these, by commas: node, queue, verb, ….")] = "",
    config_path: ConfigOption = None,
    output: HistoryOutputOption = HistoryOutput.text,
) -> None:
    """Show what happened, and why; newest last."""
    from dnm.cli.history import show_history
    from dnm.cli.output import reader_may_leave

    config = load_named_config(config_path)
    with reader_may_leave():
        show_history(config, about, (since, until), kind, output.value)


@app.command(rich_help_panel=LOOK)
def report(
    since: Annotated[str, typer.Option(help="36h, 30d, 52w, or a time in events_zone.")] = "30d",
    html: Annotated[Path | None, typer.Option(help="Write a page with charts instead.")] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="What sacct has printed of that time: what jobs paid.")
    ] = None,
    config_path: ConfigOption = None,
    output: HistoryOutputOption = HistoryOutput.text,
) -> None:
    """Show what was lent, for whom, how long pods waited, and what held nodes back."""
    config = load_named_config(config_path)
    from dnm.cli.output import reader_may_leave
    from dnm.cli.show_report import show_report

    with reader_may_leave():
        show_report(config, since, html, jobs, output.value)


def simulate(
    config_path: ConfigOption = None,
    against: Annotated[
        Path | None, typer.Option(help="Another configuration, played beside it.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of [settings], in the other one; may be repeated."),
    ] = None,
    since: Annotated[
        str, typer.Option(help="Of the record: 30d, 52w, or a time in events_zone.")
    ] = "30d",
    workload: Annotated[
        Path | None, typer.Option(help="Play this workload instead of the record.")
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="What sacct has printed: the jobs beside the record.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn: how long conversions take.")] = 1,
    output: OutputOption = Output.text,
) -> None:
    """Play the record, or a workload, under this configuration and another one."""
    from dnm.cli.interrupted import told_with
    from dnm.cli.output import reader_may_leave
    from dnm.cli.simulation import Question, simulate_question

    question = Question(config_path, against, tuple(changes or ()), since, workload, jobs, seed)
    with reader_may_leave(), told_with("a simulation changes nothing"):
        simulate_question(question, output)


@app.command(rich_help_panel=LOOK)
def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="A node, queue, namespace, event or order, or NAMESPACE/POD.",
            autocompletion=completion.explainable,
        ),
    ],
    config_path: ConfigOption = None,
    output: OutputOption = Output.text,
    wide: Annotated[
        bool, typer.Option("--wide", "-w", help="Numbers and last transitions too.")
    ] = False,
) -> None:
    """Say what is decided of a node, a queue, a pod and others, why, what would change it."""
    from dnm.cli.explain import explain_name

    config = load_named_config(config_path)
    raise typer.Exit(explain_name(config, os.environ, name, output, wide))


def _offer_wings() -> None:
    """Adds the verbs of the wings that are here; a production host has no lab."""
    if find_spec("dnm.simulate"):
        app.command(rich_help_panel=LOOK)(simulate)
    if find_spec("dnm.lab"):
        from dnm.lab import verbs

        sandbox = sub_app(verbs.SANDBOX_HELP)
        verbs.add_to_sandbox(sandbox)
        app.add_typer(sandbox, name="sandbox", rich_help_panel=SET_UP)
        app.command("demo", rich_help_panel=SET_UP)(verbs.demo)


_offer_wings()


def named_app(word: str) -> typer.Typer:
    """Returns the app with no verb but the one that is named: typer would build them all, 15 ms.
    All of them where none is named by its whole name, and for the shell's completion."""
    verbs = [
        one
        for one in app.registered_commands
        if one.callback and word == (one.name or one.callback.__name__.replace("_", "-"))
    ]
    groups = [one for one in app.registered_groups if one.name == word]
    if not (verbs or groups) or any(name.endswith("_COMPLETE") for name in os.environ):
        return app
    chosen = copy(app)
    chosen.registered_commands, chosen.registered_groups = verbs, groups
    return chosen


def main() -> None:
    """The `dnm` command: every foreseen failure is a sentence and an exit code."""
    try:
        named_app(verb_in(sys.argv[1:]))()
    except DnmError as error:
        if error.exit_code is not ExitCode.LOCKED or sys.stderr.isatty():
            # cron mails what is printed, and a long conversion locks out many runs.
            said = "\n".join(map(printable, str(error).split("\n")))  # it may name an argument
            print(f"dnm: {said}", file=sys.stderr)
        if "logging" in sys.modules:
            logger = sys.modules["logging"].getLogger("dnm")
            if logger.handlers:  # set up by `run` alone; without any, stderr would have it twice
                logger.error("error=%r", str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
