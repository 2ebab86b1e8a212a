"""`dnm event`: its verbs and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from dnm.cli import completion
from dnm.cli.options import (
    ConfigOption,
    NamesOutput,
    NamesOutputOption,
    NamespaceOption,
    Output,
    OutputOption,
    ReasonOption,
)
from dnm.cli.verbs import load_named_config, sub_app

event_app = sub_app("Events that are known beforehand, and when they begin to matter.")

NameArgument = Annotated[str, typer.Argument(autocompletion=completion.events)]


@event_app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="a-z, 0-9 and -, e.g. stars-workshop.")],
    namespace: NamespaceOption,
    begins: Annotated[str, typer.Option("--from", help="E.g. '2026-12-01 09:00'.")],
    until: Annotated[str, typer.Option(help="The same, or a time alone: the next one.")],
    zone: Annotated[str, typer.Option(help="Of these times; else events_zone.")] = "",
    pods: Annotated[str, typer.Option(help="So many at the most.")] = "",
    cpu: Annotated[str, typer.Option(help="What one pod asks for.")] = "",
    memory: Annotated[str, typer.Option(help="What one pod asks for.")] = "",
    resource: Annotated[
        list[str] | None, typer.Option(help="The same, e.g. nvidia.com/gpu=1; may be repeated.")
    ] = None,
    nodes: Annotated[str, typer.Option(help="So many nodes, in place of pods.")] = "",
    weekly: Annotated[str, typer.Option(help="On these days, e.g. Mon,Wed.")] = "",
    last: Annotated[str, typer.Option(help="The last day of a series.")] = "",
    without: Annotated[str, typer.Option("--except", help="Days of a series without it.")] = "",
    charge_account: Annotated[
        str, typer.Option(help="Whom its lends are charged to; else the namespace's.")
    ] = "",
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Add an event to the record; the next runs act on it."""
    from dnm.cli import events
    from dnm.cli.output import print_answer

    given = {
        "namespace": namespace, "from": begins, "until": until, "zone": zone, "pods": pods,
        "cpu": cpu, "memory": memory, "nodes": nodes, "weekly": weekly, "last": last,
        "except": without, "charge_account": charge_account,
    }  # fmt: skip
    entries = {key: text for key, text in given.items() if text}
    for text in resource or ():
        key, equals, amount = text.partition("=")
        if not equals:
            raise typer.BadParameter("write e.g. nvidia.com/gpu=1", param_hint="--resource")
        entries[key.strip()] = amount.strip()
    print_answer([events.add(load_named_config(config_path), name, entries, reason)], output)


@event_app.command("move")
def move(
    name: NameArgument,
    begins: Annotated[str, typer.Option("--from", help="E.g. '2026-12-01 09:00'.")],
    until: Annotated[str, typer.Option(help="The same, or a time alone: the next one.")],
    zone: Annotated[str, typer.Option(help="Of these times; else as before.")] = "",
    weekly: Annotated[str, typer.Option(help="On these days; else as before.")] = "",
    last: Annotated[str, typer.Option(help="The last day of a series; else as before.")] = "",
    without: Annotated[str, typer.Option("--except", help="Days without it; else as before.")] = "",
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Give an event that was added other times; what it needs stays."""
    from dnm.cli import events
    from dnm.cli.output import print_answer

    given = {
        "from": begins, "until": until, "zone": zone, "weekly": weekly, "last": last,
        "except": without,
    }  # fmt: skip
    entries = {key: text for key, text in given.items() if text}
    print_answer([events.move(load_named_config(config_path), name, entries, reason)], output)


@event_app.command("remove")
def remove(
    name: NameArgument,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Remove an event that was added; nodes that it brought go back when they are idle."""
    from dnm.cli import events
    from dnm.cli.output import print_answer

    print_answer([events.remove(load_named_config(config_path), name, reason)], output)


@event_app.command("list")
def list_(config_path: ConfigOption = None, output: NamesOutputOption = NamesOutput.text) -> None:
    """List all events, from wherever they are, the next one first."""
    from dnm.cli import events

    events.print_events(load_named_config(config_path), output)


@event_app.command("show")
def show(
    name: NameArgument, config_path: ConfigOption = None, output: OutputOption = Output.text
) -> None:
    """Show one event: its next windows, and when its nodes are lent."""
    from dnm.cli import events

    events.show_event(load_named_config(config_path), name, output)
