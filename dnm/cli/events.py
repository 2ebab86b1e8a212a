"""The verbs of `dnm event`. What is added stands in the registry, wherever that is; no cluster is
asked for anything else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from dnm.calendar.in_force import list_events
from dnm.calendar.needs import why_of_no_use
from dnm.calendar.windows import list_windows, zone_named
from dnm.cli.logs import log_deed
from dnm.cli.output import amounts, print_document, print_line, print_table, reader_may_leave
from dnm.cli.person import a_deed
from dnm.config.events import read_event
from dnm.config.files import MOST_EVENTS
from dnm.model.calendar import CalendarEvent, Window
from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.printable import bold, count_of
from dnm.model.registry import Registry
from dnm.plan.rules.foreseen import lead_of, stay_of, why_incomplete, why_short
from dnm.run.calendars import read_calendars
from dnm.run.planning import wall_clock
from dnm.run.registry import load_registry
from dnm.run.verbs import change_registry

_SHOWN = 5  # windows of one event
_AHEAD = timedelta(days=400)
_DAY = timedelta(days=1)  # more than any zone's clock is off UTC
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class EventError(DnmError):
    """An event can't be taken as it is, or there is none of the name."""

    exit_code = ExitCode.NEEDS_PERSON


def add(config: Config, name: str, entries: Mapping[str, str], reason: str) -> str:
    """Adds an event to the registry. Raises EventError with all that is wrong with it."""
    problems: list[str] = []
    event = read_event(name, f"event:{name}", entries, config.events_zone, problems)
    if event is None:
        raise EventError("\n  ".join(("the event can't be added:", *problems)))
    _refuse_useless(config, event, "added")

    def change(registry: Registry) -> Registry:
        _refuse_double(config, registry, name)
        return msgspec.structs.replace(registry, events={**registry.events, name: event})

    numbers = {"namespace": event.namespace, "when": _when(event), "needs": _needs(event)}
    _change(config, change, "event add", name, reason, **numbers)
    told = f"event {name} is added: {_needs(event)} for {event.namespace}, {_when(event)}"
    return told + _but(config, event)


def _refuse_useless(config: Config, event: CalendarEvent, done: str) -> None:
    if why := why_of_no_use(config, event):
        raise EventError(f"the event can't be {done}: {why}")
    if not _next_windows(event, wall_clock()):
        raise EventError(
            f"the event can't be {done}: it is over, {_when(event)}; write a later time"
        )


def _but(config: Config, event: CalendarEvent) -> str:
    """What of it can't be had as the configuration is now."""
    why = why_short(config, event)
    return f"; but {why}: raise the cap before, or what is above it does not come" if why else ""


def move(config: Config, name: str, entries: Mapping[str, str], reason: str) -> str:
    """Gives an event of the registry other times; what it needs stays, and of a series what is not
    said. Raises EventError."""
    registry = load_registry(config, wall_clock())
    if name not in registry.events:
        raise EventError(_why_not_there(config, registry, name))
    was = registry.events[name]
    said = {"namespace": was.namespace, "nodes": "1", **_series(was), **entries}
    problems: list[str] = []
    times = read_event(name, f"event:{name}", said, was.zone, problems)
    if times is None:
        raise EventError("\n  ".join(("the event can't be moved:", *problems)))
    event = msgspec.structs.replace(
        times, pods=was.pods, request=was.request, nodes=was.nodes, seen_in=was.seen_in
    )
    _refuse_useless(config, event, "moved")

    def change(registry: Registry) -> Registry:
        if registry.events.get(name) != was:
            raise EventError(f"event {name} has changed meanwhile: see `dnm event show {name}`")
        return msgspec.structs.replace(registry, events={**registry.events, name: event})

    numbers = {"namespace": event.namespace, "when": _when(event), "was": _when(was)}
    _change(config, change, "event move", name, reason, **numbers)
    told = f"event {name} is moved: {_when(event)}; it was {_when(was)}"
    return told + _but(config, event)


def _series(event: CalendarEvent) -> dict[str, str]:
    """The keys of a series, as a person would write them."""
    said = {
        "weekly": ",".join(_DAYS[day] for day in event.weekly),
        "last": str(event.last or ""),
        "except": ",".join(map(str, event.without)),
    }
    return {key: text for key, text in said.items() if text}


def _refuse_double(config: Config, registry: Registry, name: str) -> None:
    if name in registry.events:
        raise EventError(
            f"there is an event {name} already: `dnm event remove {name}` takes it away"
        )
    for one in list_events(config, registry):
        if one.name == name:
            place = place_of_event(config, one)
            raise EventError(
                f"there is an event {name} in {place} already; name this one otherwise"
            )
    if len(registry.events) >= MOST_EVENTS:
        raise EventError(f"there are {MOST_EVENTS} events already; remove some that are over")


def remove(config: Config, name: str, reason: str) -> str:
    """Takes an event out of the registry. Raises EventError where it is not in it."""

    def change(registry: Registry) -> Registry:
        if name not in registry.events:
            raise EventError(_why_not_there(config, registry, name))
        left = {key: event for key, event in registry.events.items() if key != name}
        return msgspec.structs.replace(registry, events=left)

    _change(config, change, "event remove", name, reason)
    return f"event {name} is removed"


def _why_not_there(config: Config, registry: Registry, name: str) -> str:
    for event in list_events(config, registry):
        if event.name == name:
            return f"event {name} stands in {place_of_event(config, event)}: take it out there"
    known = ", ".join(sorted(registry.events)) or "none"
    return f"no event {name!r} was added; those that were: {known}"


def _change(config: Config, change: Any, verb: str, name: str, reason: str, **numbers: str) -> None:
    deed = a_deed(verb, name, reason, **numbers)
    change_registry(config, change, _say_wait, deed)
    log_deed(deed, config.instance_id)


def _say_wait() -> None:
    print("a run is at work: waits for it to end, Ctrl-C gives up", file=sys.stderr, flush=True)


# --- what there is -----------------------------------------------------------------------------


def place_of_event(config: Config, event: CalendarEvent) -> str:
    """Returns the file that an event stands in."""
    return event.source or str(config.path)


def event_rows(config: Config, registry: Registry, now: datetime) -> list[dict[str, Any]]:
    """Returns all events with their next windows, the next event first, those that are over last:
    for the document dnm.events/1."""
    rows = [_row(config, registry, event, now) for event in list_events(config, registry)]
    return sorted(rows, key=lambda row: (_first(row), row["name"]))


def _next_windows(event: CalendarEvent, now: datetime) -> list[Window]:
    """Those of the days from now on, or from its first day where that is later."""
    begins = event.begins.replace(tzinfo=UTC)
    after = begins - _DAY if begins > now + _DAY else now
    return list_windows([event], after, after + _AHEAD)


def _first(row: Mapping[str, Any]) -> datetime:
    windows = row["windows"]
    return windows[0]["begins"] if windows else datetime.max.replace(tzinfo=UTC)


def _row(config: Config, registry: Registry, event: CalendarEvent, now: datetime) -> dict[str, Any]:
    windows = _next_windows(event, now)[:_SHOWN]
    problem = why_of_no_use(config, event)
    times = (
        None if problem else (lead_of(config, registry, event), stay_of(config, registry, event))
    )
    is_added = event.name in registry.events and event == registry.events[event.name]
    return {
        "name": event.name,
        "namespace": event.namespace,
        "source": "record" if is_added else place_of_event(config, event),
        "when": _when(event),
        "pods": event.pods,
        "request": dict(event.request),
        "nodes": event.nodes,
        "state": _state(windows, times, now) if times else "of no use",
        "problem": problem,
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
    zone = zone_named(window.event.seen_in or window.event.zone)
    begins, ends = window.begins.astimezone(zone), window.ends.astimezone(zone)
    is_same = begins.date() == ends.date()
    return f"{begins:%a %Y-%m-%d %H:%M %Z} to {ends:{'%H:%M' if is_same else '%a %H:%M'}}"


def _when(event: CalendarEvent) -> str:
    """As it was said."""
    times = f"{event.begins:%Y-%m-%d %H:%M} to {event.ends:%Y-%m-%d %H:%M} {event.zone}"
    if not event.weekly:
        return times
    days = ", ".join(_DAYS[day] for day in event.weekly)
    until = f" until {event.last}" if event.last else ""
    but = f" except {', '.join(map(str, event.without))}" if event.without else ""
    return f"each {days} from {event.begins:%H:%M} to {event.ends:%H:%M} {event.zone}, " + (
        f"since {event.begins:%Y-%m-%d}{until}{but}"
    )


def _needs(event: CalendarEvent) -> str:
    return _needs_of(event.pods, event.request, event.nodes)


def _needs_of(pods: int, request: Mapping[str, int], nodes: int) -> str:
    if nodes:
        return count_of(nodes, "node")
    asks = amounts(request)
    return f"{count_of(pods, 'pod')}{f' of {asks}' if asks else ''}"


def print_events(config: Config, output: str) -> None:
    """Prints all events."""
    now = wall_clock()
    registry = read_calendars(config, load_registry(config, now), now)
    rows = event_rows(config, registry, now)
    troubles = list(why_incomplete(config, registry, now))
    with reader_may_leave():
        if output != "text":
            document = {"schema": "dnm.events/1", "events": rows, "troubles": troubles}
            print_document(document, output, (row["name"] for row in rows))
            return
        for text in troubles:
            print_line(f"! {text}")
        header = ("EVENT", "NAMESPACE", "NEEDS", "NEXT", "IN UTC", "STATE", "FROM")
        print_table("Events", header, [_cells(row) for row in rows], "there are none")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    first = row["windows"][0] if row["windows"] else None
    return (
        row["name"],
        row["namespace"],
        _needs_of(row["pods"], row["request"], row["nodes"]),
        first["local"] if first else "-",
        f"{first['begins']:%m-%d %H:%M}" if first else "-",
        row["state"],
        row["source"],
    )


def show_event(config: Config, name: str, output: str) -> None:
    """Prints one event. Raises EventError where there is none of the name."""
    now = wall_clock()
    registry = read_calendars(config, load_registry(config, now), now)
    rows = event_rows(config, registry, now)
    found = [row for row in rows if row["name"] == name]
    if not found:
        known = ", ".join(sorted({row["name"] for row in rows})) or "none"
        raise EventError(f"there is no event {name!r}; known are {known}")
    with reader_may_leave():
        if output != "text":
            troubles = list(why_incomplete(config, registry, now))
            document = {"schema": "dnm.events/1", "events": found, "troubles": troubles}
            print_document(document, output)
            return
        for row in found:
            _print_event(row)


def _print_event(row: Mapping[str, Any]) -> None:
    print(bold(f"{row['name']} for {row['namespace']}"))
    print_line(f"{row['when']}: {_cells(row)[2]}; {row['state']}", "  ")
    print_line(f"from {row['source']}", "  ")
    if row["problem"]:
        print_line(row["problem"], "  ")
    header = ("BEGINS", "IN UTC", "ENDS IN UTC", "LENDS FROM", "KEEPS FROM")
    cells = [
        (
            one["local"],
            *(f"{one[key]:%m-%d %H:%M}" if one[key] else "-"
              for key in ("begins", "ends", "lends_from", "keeps_from")),
        )
        for one in row["windows"]
    ]  # fmt: skip
    print_table("Next", header, cells, "it is over")
