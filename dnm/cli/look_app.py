"""The verbs that look at what is there: options, and which module answers."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from dnm.cli.terminal import completion
from dnm.cli.terminal.options import (
    ConfigOption,
    NamesOption,
    OutputOption,
    PathOption,
)
from dnm.model.errors import ExitCode


def plan(
    config: ConfigOption,
    output: OutputOption = "text",
    at: Annotated[
        str, typer.Option("--at", help="With the events of then, e.g. '2026-12-01 08:45'.")
    ] = "",
    is_detailed: Annotated[
        bool, typer.Option("--detailed-exitcode", help="3 where a run would do anything.")
    ] = False,
) -> int:
    """Show what a run would do and why; writes nothing."""
    from dnm.cli.look.one_run import shown_at_work
    from dnm.cli.look.report import plan_document, print_plan
    from dnm.cli.terminal.output import print_document
    from dnm.run.looking import plan_pass

    moment = None
    if at:
        from dnm.config.events import moment_at

        try:
            moment = moment_at(at, config.events_zone)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--at") from error
    with shown_at_work("planning", config):
        result = plan_pass(config, os.environ, foreseen_at=moment)
    if output != "text":
        print_document(plan_document(result.plan), output)
    else:
        print_plan(result.plan, config.events_zone)
    would_act = is_detailed and result.plan.actions and result.exit_code == ExitCode.OK
    return ExitCode.WOULD_ACT if would_act else result.exit_code


def status(
    config: ConfigOption,
    output: Annotated[
        Literal["text", "json", "yaml", "name", "prometheus"],
        typer.Option("--output", "-o", help="text, json, yaml, name or prometheus."),
    ] = "text",
    live: Annotated[bool, typer.Option("--live", help="Ask the cluster too.")] = False,
    wide: Annotated[bool, typer.Option("--wide", "-w", help="All columns.")] = False,
    sort: Annotated[
        Literal["node", "type", "namespace", "queue", "phase", "since", "idle"],
        typer.Option(help="By which of them."),
    ] = "node",
    health: Annotated[
        bool, typer.Option("--health", help="One word for a monitor; 0, 1 or 2.")
    ] = False,
    is_watched: Annotated[
        bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")
    ] = False,
) -> int:
    """Show lent nodes, queues, brakes and the last run."""
    if is_watched and (output != "text" or health or not sys.stdout.isatty()):
        raise typer.BadParameter("it is for people at a terminal", param_hint="--watch")
    if health and output != "text":
        raise typer.BadParameter("it is one word for a monitor", param_hint="--health")
    if health:
        from dnm.cli.look.health import print_health

        return print_health(config, datetime.now(UTC))
    from dnm.cli.look.status import show_status, watch

    def show() -> int:
        return show_status(config, output, live, wide, sort)

    return watch(show) if is_watched else show()


def check(
    config_path: PathOption = None,
    output: OutputOption = "text",
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare what is kept of the cluster with full lists.")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", "-w", help="Show what is fine too.")] = False,
) -> int:
    """Try now what could go wrong at 3 a.m."""
    from dnm.cli.set_up.check import run_checks

    return run_checks(config_path, os.environ, output, deep, wide)


def nodes(
    config: ConfigOption,
    output: NamesOption = "text",
    node_type: Annotated[str, typer.Option("--type", help="Only nodes of this type.")] = "",
) -> None:
    """Show which batch nodes could be lent now."""
    from dnm.cli.look.one_run import shown_at_work
    from dnm.cli.look.report import print_batch_nodes
    from dnm.converter.node_convert import NodeConvert
    from dnm.model.errors import ConverterError
    from dnm.model.value import Unreadable
    from dnm.plan.rule import nodes_kept_out
    from dnm.plan.supply import supply_now
    from dnm.run.registry import load_registry

    if node_type and node_type not in config.node_types:
        there = ", ".join(config.node_types)
        raise typer.BadParameter(
            f"there is no {node_type!r}; there are {there}", param_hint="--type"
        )
    with shown_at_work("asking for nodes", None):
        listed = NodeConvert(config, os.environ).list_nodes()
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
    config: ConfigOption,
    about: Annotated[
        str,
        typer.Argument(
            help="A node, a queue, a node type or a request; none: all.",
            autocompletion=completion.resettable,
        ),
    ] = "",
    since: Annotated[str, typer.Option(help="90m, 36h, 7d, or a time in events_zone.")] = "7d",
    until: Annotated[str, typer.Option(help="The same.")] = "",
    kind: Annotated[
        str,
        typer.Option(
            help="Only these, by commas: node, request, queue, limit, breaker, backoff, pause, "
            "hold, exclusion, calendar, order, jobs, verb."
        ),
    ] = "",
    output: OutputOption = "text",
) -> None:
    """Show what happened, and why; newest last."""
    from dnm.cli.look.history import show_history

    show_history(config, about, (since, until), kind, output)


def report(
    config: ConfigOption,
    since: Annotated[str, typer.Option(help="36h, 30d, 52w, or a time in events_zone.")] = "30d",
    form: Annotated[str, typer.Option("--format", help="The bill: csv or json.")] = "",
    until: Annotated[str, typer.Option(help="The end of the bill, with --format; else now.")] = "",
    output: OutputOption = "text",
) -> int:
    """Show what was lent, for whom, how long pods waited, and what held nodes back."""
    from dnm.cli.look.lending_report import show_report

    if not form:
        if until:
            raise typer.BadParameter("it needs --format", param_hint="--until")
        return show_report(config, since, output)
    if output != "text":
        raise typer.BadParameter("write --format or --output, not both")
    from dnm.cli.look.bill import bill_of

    return bill_of(config, (since, until), form)


def simulate(
    config_path: PathOption = None,
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
    output: OutputOption = "text",
) -> None:
    """Play the record, or a workload, under this configuration and another one."""
    from dnm.cli.look.simulation import Question, simulate_question

    question = Question(config_path, against, tuple(changes or ()), since, workload, jobs, seed)
    simulate_question(question, output)


def explain(
    config: ConfigOption,
    name: Annotated[
        str,
        typer.Argument(
            help="A node, queue, namespace, event or order, or NAMESPACE/POD.",
            autocompletion=completion.explainable,
        ),
    ],
    output: OutputOption = "text",
    wide: Annotated[
        bool, typer.Option("--wide", "-w", help="Numbers and last transitions too.")
    ] = False,
) -> int:
    """Say what is decided of a node, a queue, a pod and others, why, what would change it."""
    from dnm.cli.look.explain import explain_name

    return explain_name(config, os.environ, name, output, wide)
