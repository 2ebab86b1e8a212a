"""The commands of `dnm event`, which add, remove and list events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from dnm.calendar.in_force import list_events
from dnm.calendar.windows import event_error, zone_named
from dnm.cli.terminal import completion
from dnm.cli.terminal.operation import RefusedError, carry_out, new_operation, rehearse
from dnm.cli.terminal.options import ConfigOption, NamesOption, NamespaceOption, ReasonOption
from dnm.cli.terminal.output import print_document, print_line, print_table
from dnm.config.events import read_event
from dnm.model.amounts import amounts
from dnm.model.calendar import CalendarEvent, Window
from dnm.model.config import Config
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.plan.rules.event_windows import describe_cap, lead_of, list_problems, stay_of
from dnm.run.calendars import read_calendars
from dnm.run.registry import load_registry
from dnm.verbs import event as verbs
from dnm.verbs.event import next_windows, place_of_event, when_of

_SHOWN = 5  # windows of one event
_LOCAL = "%a %Y-%m-%d %H:%M"


def add(
    config: ConfigOption,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of a-z, 0-9 and -, e.g. stars-workshop.")
    ],
    namespace: NamespaceOption,
    begins: Annotated[str, typer.Option("--from", help="Begin at this time: '2026-12-01 09:00'.")],
    until: Annotated[str, typer.Option(help="End at this time, in the same form or as 17:00.")],
    pods: Annotated[str, typer.Option(help="Expect at most this number of pods at one time.")] = "",
    cpu: Annotated[str, typer.Option(help="CPU request of each pod.")] = "",
    memory: Annotated[str, typer.Option(help="Memory request of each pod.")] = "",
    resource: Annotated[
        list[str] | None,
        typer.Option(help="Other request of each pod, e.g. nvidia.com/gpu=1; repeatable."),
    ] = None,
    nodes: Annotated[
        str, typer.Option(help="Prepare this number of nodes, instead of --pods.")
    ] = "",
    weekly: Annotated[
        str, typer.Option(help="Repeat on these days of the week, e.g. Mon,Wed.")
    ] = "",
    last: Annotated[
        str, typer.Option(help="End the series of --weekly after this day: 2026-12-18.")
    ] = "",
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Add an event to the registry; the next runs act on it."""
    options = {
        "namespace": namespace, "from": begins, "until": until, "pods": pods,
        "cpu": cpu, "memory": memory, "nodes": nodes, "weekly": weekly, "last": last,
    }  # fmt: skip
    entries = {key: text for key, text in options.items() if text}
    for text in resource or ():
        key, equals, amount = text.partition("=")
        if not equals:
            raise typer.BadParameter("write e.g. nvidia.com/gpu=1", param_hint="--resource")
        entries[key.strip()] = amount.strip()
    event = _read(name, entries, config.events_zone)
    needs, when = _needs(event.pods, event.request, event.nodes), when_of(event)
    numbers = {"namespace": event.namespace, "when": when, "needs": needs}
    words = {"event": event, "now": datetime.now(UTC)}
    # An event that can have no effect is refused before the command waits for a run.
    rehearse(config, load_registry(config, datetime.now(UTC)), verbs.add_event, words)
    carry_out(config, new_operation("event add", name, reason, **numbers), verbs.add_event, **words)
    text = f"event {name} is added: {needs} for {event.namespace}, {when}"
    return text + _cap_warning(config, event)


def remove(
    config: ConfigOption,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of an added event.", autocompletion=completion.events
        ),
    ],
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Remove an added event; its nodes are returned when they are idle."""
    carry_out(config, new_operation("event remove", name, reason), verbs.remove_event, name=name)
    return f"event {name} is removed"


def _read(name: str, entries: Mapping[str, str], zone: str) -> CalendarEvent:
    problems: list[str] = []
    event = read_event(name, f"event:{name}", entries, zone, problems)
    if event is None:
        raise RefusedError("\n  ".join(("cannot add the event:", *problems)))
    return event


def _cap_warning(config: Config, event: CalendarEvent) -> str:
    """Returns a warning if a cap is lower than the nodes that the event needs, or else ""."""
    shortage = describe_cap(config, event)
    return f"; but {shortage}: raise the cap, or dnm lends no node above it" if shortage else ""


# --- list --------------------------------------------------------------------------------------


def event_rows(config: Config, registry: Registry, now: datetime) -> list[dict[str, Any]]:
    """Returns all events with their next windows, as rows of the document dnm.events/1: the next
    event first, past events last."""
    rows = [_row(config, registry, event, now) for event in list_events(config, registry)]
    return sorted(rows, key=lambda row: (_first(row), row["name"]))


def _first(row: Mapping[str, Any]) -> datetime:
    windows = row["windows"]
    return windows[0]["begins"] if windows else datetime.max.replace(tzinfo=UTC)


def _row(config: Config, registry: Registry, event: CalendarEvent, now: datetime) -> dict[str, Any]:
    windows = next_windows(event, now)[:_SHOWN]
    problem = event_error(config, event)
    times = (
        None if problem else (lead_of(config, registry, event), stay_of(config, registry, event))
    )
    is_added = event.name in registry.events and event == registry.events[event.name]
    return {
        "name": event.name,
        "namespace": event.namespace,
        "source": "record" if is_added else place_of_event(config, event),
        "when": when_of(event),
        "pods": event.pods,
        "request": dict(event.request),
        "nodes": event.nodes,
        "state": _state(windows, times, now) if times else "of no use",
        "problem": problem or "",
        "windows": [_window(window, times) for window in windows],
    }


def _state(windows: list[Window], times: tuple[timedelta, timedelta], now: datetime) -> str:
    if not windows:
        return "over"
    begins = windows[0].begins
    if begins <= now:
        return "in force"
    if begins - times[0] <= now:
        return "lends"
    return "keeps" if begins - times[1] <= now else "ahead"


def _window(window: Window, times: tuple[timedelta, timedelta] | None) -> dict[str, Any]:
    return {
        "begins": window.begins,
        "ends": window.ends,
        "local": _local(window),
        "zone": f"{window.begins.astimezone(zone_named(window.event.zone)):%Z}",
        "lends_from": window.begins - times[0] if times else None,
        "keeps_from": window.begins - times[1] if times else None,
    }


def _local(window: Window) -> str:
    zone = zone_named(window.event.zone)
    begins, ends = window.begins.astimezone(zone), window.ends.astimezone(zone)
    is_same = begins.date() == ends.date()
    return f"{begins:{_LOCAL} %Z} to {ends:{'%H:%M' if is_same else '%a %H:%M'}}"


def _needs(pods: int, request: Mapping[str, int], nodes: int) -> str:
    if nodes:
        return count_of(nodes, "node")
    asks = amounts(request)
    return f"{count_of(pods, 'pod')}{f' of {asks}' if asks else ''}"


def list_(config: ConfigOption, output: NamesOption = "text") -> None:
    """List the events of all sources, the next event first."""
    now = datetime.now(UTC)
    registry = read_calendars(config, load_registry(config, now))
    rows, troubles = event_rows(config, registry, now), list(list_problems(config, registry, now))
    if output != "text":
        document = {"schema": "dnm.events/1", "events": rows, "troubles": troubles}
        print_document(document, output, (row["name"] for row in rows))
        return
    for text in troubles:
        print_line(("! ", "warning"), text)
    header = ["EVENT", "NAMESPACE", "NEEDS", "NEXT", "IN UTC", "STATE", "FROM"]
    first = [window for row in rows for window in row["windows"][:1]]
    cells = [_cells(row) for row in rows]
    if all(item["zone"] == "UTC" for item in first):
        header, cells = header[:4] + header[5:], [cell[:4] + cell[5:] for cell in cells]
    print_table("Events", header, cells, "there are no events")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    first = row["windows"][0] if row["windows"] else None
    return (
        row["name"],
        row["namespace"],
        _needs(row["pods"], row["request"], row["nodes"]),
        first["local"] if first else "-",
        f"{first['begins']:%m-%d %H:%M}" if first else "-",
        row["state"],
        row["source"],
    )
