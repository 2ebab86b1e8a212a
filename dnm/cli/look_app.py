"""The verbs that look at what is there: options, and which module answers."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dnm.cli import completion
from dnm.cli.options import (
    ConfigOption,
    HistoryOutput,
    HistoryOutputOption,
    NamesOutput,
    NamesOutputOption,
    Output,
    OutputOption,
    StatusOutput,
    TypeOption,
)
from dnm.cli.verbs import LOOK, SET_UP, load_named_config
from dnm.model.errors import ExitCode


def add_verbs(app: typer.Typer) -> None:
    """Adds them to the app, in the order in which its help shows them."""
    for verb in (plan, status, nodes, history, report, explain):
        app.command(rich_help_panel=LOOK)(verb)
    app.command(rich_help_panel=SET_UP)(check)


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
    from dnm.cli.one_run import shown_at_work
    from dnm.cli.output import print_document
    from dnm.cli.report import plan_document, print_plan
    from dnm.cli.stopping import reader_may_leave
    from dnm.run.planning import plan_pass

    moment = None
    if at:
        from dnm.config.events import moment_at

        try:
            moment = moment_at(at, config.events_zone)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--at") from error
    with shown_at_work("planning", config):
        result = plan_pass(config, os.environ, foreseen_at=moment)
    with reader_may_leave():
        if output is not Output.text:
            print_document(plan_document(result.plan), output)
        else:
            print_plan(result.plan, config.events_zone)
    would_act = is_detailed and result.plan.actions and result.exit_code == ExitCode.OK
    raise typer.Exit(ExitCode.WOULD_ACT if would_act else result.exit_code)


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


def nodes(
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    node_type: TypeOption = "",
) -> None:
    """Show which batch nodes could be lent now."""
    config = load_named_config(config_path)
    from dnm.cli.one_run import shown_at_work
    from dnm.cli.supply import print_batch_nodes, supply_now
    from dnm.converter.contract import given_to_converter
    from dnm.converter.node_list import list_batch_nodes
    from dnm.model.errors import ConverterError
    from dnm.model.value import Unreadable
    from dnm.plan.rule import nodes_kept_out
    from dnm.run.registry import load_registry

    with shown_at_work("asking for nodes", None):
        listed = list_batch_nodes(config, given_to_converter(config, os.environ))
    if isinstance(listed, Unreadable):
        raise ConverterError(listed.error)
    shown = [
        node
        for node in listed.nodes.values()
        if not node_type or config.type_of(node.name) == node_type
    ]
    now = datetime.now(UTC)
    registry = load_registry(config, now)
    out = nodes_kept_out(config, registry, listed.nodes, now)
    supplies = supply_now(config, registry, listed.nodes, now)
    asked = [one for one in supplies if node_type in ("", one.node_type)]
    print_batch_nodes(config, shown, out, output, asked)


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
    from dnm.cli.stopping import reader_may_leave

    config = load_named_config(config_path)
    with reader_may_leave():
        show_history(config, about, (since, until), kind, output.value)


def report(
    since: Annotated[str, typer.Option(help="36h, 30d, 52w, or a time in events_zone.")] = "30d",
    html: Annotated[Path | None, typer.Option(help="Write a page with charts instead.")] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="What sacct has printed of that time: what jobs paid.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="The bill: csv, json or sacct.")] = "",
    against: Annotated[str, typer.Option(help="sreport: whether it has the same hours.")] = "",
    until: Annotated[str, typer.Option(help="Of these two, as --since; else now.")] = "",
    config_path: ConfigOption = None,
    output: HistoryOutputOption = HistoryOutput.text,
) -> None:
    """Show what was lent, for whom, how long pods waited, and what held nodes back."""
    config = load_named_config(config_path)
    from dnm.cli.show_report import show_report
    from dnm.cli.stopping import reader_may_leave

    with reader_may_leave():
        if not form and not against:
            show_report(config, since, html, jobs, output.value)
            return
        from dnm.cli.bill import bill_of

        raise typer.Exit(bill_of(config, (since, until), form, against))


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
    from dnm.cli.simulation import Question, simulate_question
    from dnm.cli.stopping import reader_may_leave

    question = Question(config_path, against, tuple(changes or ()), since, workload, jobs, seed)
    with reader_may_leave(), told_with("a simulation changes nothing"):
        simulate_question(question, output)


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
