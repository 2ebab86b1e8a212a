"""The verbs of `dnm event`. What is added stands in the registry, wherever that is; no cluster is
asked for anything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dnm.calendar.in_force import list_events
from dnm.calendar.windows import why_of_no_use, zone_named
from dnm.cli.by_hand.person import RefusedError, carry_out, new_operation, rehearse
from dnm.cli.terminal.output import amounts, print_document, print_line, print_table, print_title
from dnm.config.events import read_event
from dnm.model.calendar import CalendarEvent, Window
from dnm.model.config import Config
from dnm.model.history import Operation
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.plan.rules.foreseen import lead_of, stay_of, why_incomplete, why_short
from dnm.run.calendars import read_calendars
from dnm.run.planning import wall_clock
from dnm.run.registry import load_registry
from dnm.verbs.event import next_windows, place_of_event, when_of

_SHOWN = 5  # windows of one event
_LOCAL = "%a %Y-%m-%d %H:%M"


def add(config: Config, name: str, entries: Mapping[str, str], reason: str) -> str:
    """Adds an event to the registry. Raises RefusedError with all that is wrong with it."""
    event = _read(name, entries, config.events_zone, "added")
    needs, when = _needs(event.pods, event.request, event.nodes), when_of(event)
    numbers = {"namespace": event.namespace, "when": when, "needs": needs}
    _carry_out(config, new_operation("event add", name, reason, **numbers), event=event)
    told = f"event {name} is added: {needs} for {event.namespace}, {when}"
    return told + _but(config, event)


def remove(config: Config, name: str, reason: str) -> str:
    """Takes an event out of the registry. Raises RefusedError where it is not in it."""
    carry_out(config, new_operation("event remove", name, reason), name=name)
    return f"event {name} is removed"


def _read(name: str, entries: Mapping[str, str], zone: str, done: str) -> CalendarEvent:
    problems: list[str] = []
    event = read_event(name, f"event:{name}", entries, zone, problems)
    if event is None:
        raise RefusedError("\n  ".join((f"the event can't be {done}:", *problems)))
    return event


def _carry_out(config: Config, operation: Operation, **words: object) -> None:
    now = words["now"] = wall_clock()
    # What is of no use waits for no run.
    rehearse(config, load_registry(config, now), operation.verb, words)
    carry_out(config, operation, **words)


def _but(config: Config, event: CalendarEvent) -> str:
    """What of it can't be had as the configuration is now."""
    why = why_short(config, event)
    return f"; but {why}: raise the cap before, or what is above it does not come" if why else ""


# --- what there is -----------------------------------------------------------------------------


def event_rows(config: Config, registry: Registry, now: datetime) -> list[dict[str, Any]]:
    """Returns all events with their next windows, the next event first, those that are over last:
    for the document dnm.events/1."""
    rows = [_row(config, registry, event, now) for event in list_events(config, registry)]
    return sorted(rows, key=lambda row: (_first(row), row["name"]))


def _first(row: Mapping[str, Any]) -> datetime:
    windows = row["windows"]
    return windows[0]["begins"] if windows else datetime.max.replace(tzinfo=UTC)


def _row(config: Config, registry: Registry, event: CalendarEvent, now: datetime) -> dict[str, Any]:
    windows = next_windows(event, now)[:_SHOWN]
    problem = why_of_no_use(config, event)
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
        "windows": [_window(one, times) for one in windows],
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


def print_events(config: Config, output: str) -> None:
    """Prints all events."""
    rows, troubles = _read_events(config)
    if output != "text":
        _print_document(rows, troubles, output)
        return
    for text in troubles:
        print_line(("! ", "warning"), text)
    header = ("EVENT", "NAMESPACE", "NEEDS", "NEXT", "IN UTC", "STATE", "FROM")
    first = [one for row in rows for one in row["windows"][:1]]
    _print_times("Events", header, [_cells(row) for row in rows], "there are none", first)


def show_event(config: Config, name: str, output: str) -> None:
    """Prints one event. Raises RefusedError where there is none of the name."""
    rows, troubles = _read_events(config)
    found = [row for row in rows if row["name"] == name]
    if not found:
        known = ", ".join(sorted({row["name"] for row in rows})) or "none"
        raise RefusedError(f"there is no event {name!r}; known are {known}")
    if output != "text":
        _print_document(found, troubles, output)
        return
    for row in found:
        _print_event(row)


def _read_events(config: Config) -> tuple[list[dict[str, Any]], list[str]]:
    """All of them, and why some may be missing."""
    now = wall_clock()
    registry = read_calendars(config, load_registry(config, now))
    return event_rows(config, registry, now), list(why_incomplete(config, registry, now))


def _print_document(rows: list[dict[str, Any]], troubles: list[str], output: str) -> None:
    document = {"schema": "dnm.events/1", "events": rows, "troubles": troubles}
    print_document(document, output, (row["name"] for row in rows))


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


def _print_event(row: Mapping[str, Any]) -> None:
    print_title(f"{row['name']} for {row['namespace']}")
    print_line(f"{row['when']}: {_cells(row)[2]}; {row['state']}", indent=2)
    print_line(f"from {row['source']}", indent=2)
    if row["problem"]:
        print_line(row["problem"], indent=2)
    header = ("BEGINS", "IN UTC", "ENDS IN UTC", "LENDS FROM", "KEEPS FROM")
    cells = [
        (
            one["local"],
            *(f"{one[key]:%m-%d %H:%M}" if one[key] else "-"
              for key in ("begins", "ends", "lends_from", "keeps_from")),
        )
        for one in row["windows"]
    ]  # fmt: skip
    _print_times("Next", header, cells, "it is over", row["windows"])


def _print_times(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    empty: str,
    windows: Iterable[Mapping[str, Any]],
) -> None:
    """Without a column of the same times in UTC where these windows are shown in UTC."""
    is_utc = all(one["local"].startswith(f"{one['begins']:{_LOCAL}} UTC ") for one in windows)
    shown = [number for number, name in enumerate(header) if not (is_utc and "IN UTC" in name)]
    cells = [[row[number] for number in shown] for row in rows]
    print_table(title, [header[number] for number in shown], cells, empty)
