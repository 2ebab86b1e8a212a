"""The windows of events, in UTC, the request of one of their pods, and whether it can cause a
conversion. Pure.

An event's times are wall times of its zone. Each becomes UTC before it is compared or subtracted,
so that a night of 23 or 25 hours has its real length. A time that does not exist (clocks go
forward) is later by the change. If a time exists twice (clocks go back), an event begins at the
first and ends at the second: it is never cut short. Nothing is recorded: an event is current or not
at a given moment, so runs may be missed and clocks may jump.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from dnm.model.calendar import CalendarEvent, Window
from dnm.model.config import Config

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
LONGEST_LOOK = timedelta(days=400)
MOST_WINDOWS = 10_000  # of all events together
_OF_THE_HOST = ("localtime", "posixrules")  # links to whatever zone it is in


@cache
def zone_named(name: str) -> ZoneInfo:
    """Returns the zone; raises ValueError where this host knows none of the name."""
    from zoneinfo import ZoneInfo  # only where there is an event

    try:
        if name in _OF_THE_HOST:
            raise ValueError
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError("is no time zone; write e.g. America/Indiana/Indianapolis") from error


def begin_in_utc(wall: datetime, zone: str) -> datetime:
    """Returns the moment of a beginning that is given as a wall time."""
    return wall.replace(tzinfo=zone_named(zone), fold=0).astimezone(UTC)


def end_in_utc(wall: datetime, zone: str) -> datetime:
    """Returns when something ends that ends at a wall time: of two moments the second."""
    moments = (wall.replace(tzinfo=zone_named(zone), fold=fold) for fold in (0, 1))
    return max(moment.astimezone(UTC) for moment in moments)


def why_never(event: CalendarEvent) -> str | None:
    """Returns why an event has no time. A record outlives the reading that
    refuses such an event: another host may know fewer zones."""
    try:
        begin_in_utc(event.begins, event.zone)
        end_in_utc(event.ends, event.zone)
    except ValueError as error:
        return f"zone = {event.zone}: {error}"
    except OverflowError:
        return f"from = {event.begins:%Y-%m-%d %H:%M}: is too far away; write a nearer day"
    return None


def list_windows(
    events: Iterable[CalendarEvent], after: datetime, before: datetime
) -> list[Window]:
    """Returns the occurrences that are in force at any moment from `after` on and before `before`,
    the earliest first; at most 400 days are looked at, and the first MOST_WINDOWS given. An event
    that has no moment has none."""
    before = min(before, after + LONGEST_LOOK)
    found: list[Window] = []
    for event in (event for event in events if not why_never(event)):
        for window in _windows_of(event, after, before):
            if window.ends > after and window.begins < before:
                found.append(window)
            if len(found) == 2 * MOST_WINDOWS:
                found = _first(found)
                before = found[-1].begins
    return _first(found)


def _first(found: list[Window]) -> list[Window]:
    found.sort(key=lambda window: (window.begins, window.ends, window.event.name))
    return found[:MOST_WINDOWS]


def _windows_of(event: CalendarEvent, after: datetime, before: datetime) -> Iterator[Window]:
    """Those of them that may overlap the span, and a few around it."""
    if not event.weekly:
        yield _window_on(event, event.begins.date())
        return
    length = event.ends - event.begins
    day = max(event.begins.date(), (after - length).date() - 2 * _DAY)
    last = (before + 2 * _DAY).date()
    last = last if event.last is None else min(last, event.last)
    while day <= last:
        if is_day_of(event, day):
            yield _window_on(event, day)
        day += _DAY


def is_day_of(event: CalendarEvent, day: date) -> bool:
    """Returns whether a series begins on a day, if it has not ended before."""
    return day.weekday() in event.weekly


def _window_on(event: CalendarEvent, day: date) -> Window:
    begins = datetime.combine(day, event.begins.time())
    length = event.ends - event.begins
    starts = begin_in_utc(begins, event.zone)
    ends = end_in_utc(begins + length, event.zone)
    # It begins in an hour that is left out, and would end before it.
    return Window(event=event, begins=starts, ends=ends if ends > starts else starts + length)


def without_doubles(windows: Iterable[Window]) -> list[Window]:
    """Returns one window of each event, the earliest, or a larger one after it: one that overlaps
    itself is for the same pods, and so are two of one name and namespace in two calendars."""
    found: dict[tuple[str, str], Window] = {}
    for window in windows:
        known = found.setdefault((window.event.namespace, window.event.name), window)
        more = (window.event.nodes, window.event.pods) > (known.event.nodes, known.event.pods)
        if more and window.begins >= known.ends:
            found[window.event.namespace, window.event.name] = window
    return list(found.values())


# --- whether it can bring a node --------------------------------------------------------------


def request_of(config: Config, event: CalendarEvent) -> dict[str, int]:
    """Returns the request of one pod, with what a pod that does not say it is taken to ask for."""
    return {**config.default_request, **event.request, "pods": 1}


def why_of_no_use(config: Config, event: CalendarEvent) -> str | None:
    """Returns why the event can't cause a conversion."""
    policy = config.namespaces.get(event.namespace)
    if policy is None:
        known = ", ".join(sorted(config.namespaces)) or "none"
        return (
            f"namespace = {event.namespace}: is not a monitored namespace; name it in "
            f"monitored_namespaces, or write one of {known}"
        )
    request = request_of(config, event)
    sizes = (
        config.node_types[node_type].size
        for node_type in policy.node_types
        if node_type in config.node_types
    )
    if event.pods and not any(_takes(size, request) for size in sizes):
        types = ", ".join(policy.node_types)
        return f"pods = {event.pods}: one of them fits no node type of {event.namespace} ({types})"
    return why_never(event)


def _takes(size: Mapping[str, int], request: Mapping[str, int]) -> bool:
    return all(amount <= size.get(name, 0) for name, amount in request.items() if name != "pods")
