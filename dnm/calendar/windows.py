"""The windows of events, in UTC, the request of one of their pods, and whether it can cause a
conversion. Pure.

An event's times are local times of its zone. Each becomes UTC before it is compared or subtracted,
so that a night of 23 or 25 hours has its real length. A time that does not exist (clocks go
forward) is later by the change. If a time exists twice (clocks go back), an event begins at the
first and ends at the second, so it is never shortened. Nothing is recorded: the given moment
decides whether an event is current, so runs may be missed and clocks may jump."""

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
_OF_THE_HOST = ("localtime", "posixrules")  # links to the zone of the host


@cache
def zone_named(name: str) -> ZoneInfo:
    """Returns the time zone. Raises ValueError if this host does not have one of this name."""
    from zoneinfo import ZoneInfo  # only if there is an event

    try:
        if name in _OF_THE_HOST:
            raise ValueError
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError("is not a time zone; write e.g. America/Indiana/Indianapolis") from error


def begin_in_utc(wall: datetime, zone: str) -> datetime:
    """Returns when an event begins, in UTC: the earlier moment if its local time exists twice."""
    return wall.replace(tzinfo=zone_named(zone), fold=0).astimezone(UTC)


def end_in_utc(wall: datetime, zone: str) -> datetime:
    """Returns when an event ends, in UTC: the later moment if its local time exists twice."""
    moments = (wall.replace(tzinfo=zone_named(zone), fold=fold) for fold in (0, 1))
    return max(moment.astimezone(UTC) for moment in moments)


def time_error(event: CalendarEvent) -> str | None:
    """Returns why an event's times cannot be computed, or None. A stored event may have an invalid
    zone, because another host may have fewer zones."""
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
    """Returns the occurrences that overlap the time from `after` until `before` (400 days at most),
    the earliest first, at most MOST_WINDOWS. Events without a valid time have none."""
    before = min(before, after + LONGEST_LOOK)
    windows: list[Window] = []
    for event in (event for event in events if not time_error(event)):
        for window in _windows_of(event, after, before):
            if window.ends > after and window.begins < before:
                windows.append(window)
            if len(windows) == 2 * MOST_WINDOWS:
                windows = _first(windows)
                before = windows[-1].begins
    return _first(windows)


def _first(windows: list[Window]) -> list[Window]:
    windows.sort(key=lambda window: (window.begins, window.ends, window.event.name))
    return windows[:MOST_WINDOWS]


def _windows_of(event: CalendarEvent, after: datetime, before: datetime) -> Iterator[Window]:
    """Yields the windows of an event between the two moments, and a few before and after them."""
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
    """Returns whether a weekly event begins on this weekday, without regard to its last day."""
    return day.weekday() in event.weekly


def _window_on(event: CalendarEvent, day: date) -> Window:
    begins = datetime.combine(day, event.begins.time())
    length = event.ends - event.begins
    starts = begin_in_utc(begins, event.zone)
    ends = end_in_utc(begins + length, event.zone)
    # If it begins in a skipped hour, its end could be before its start.
    return Window(event=event, begins=starts, ends=ends if ends > starts else starts + length)


def without_doubles(windows: Iterable[Window]) -> list[Window]:
    """Returns one window for each event, since overlapping windows are for the same pods: the
    earliest, or a later one that needs more. Equal names in two calendars are one event."""
    by_name: dict[tuple[str, str], Window] = {}
    for window in windows:
        earlier = by_name.setdefault((window.event.namespace, window.event.name), window)
        more = (window.event.nodes, window.event.pods) > (earlier.event.nodes, earlier.event.pods)
        if more and window.begins >= earlier.ends:
            by_name[window.event.namespace, window.event.name] = window
    return list(by_name.values())


# --- whether it can cause a conversion ----------------------------------------------------------


def request_of(config: Config, event: CalendarEvent) -> dict[str, int]:
    """Returns the request of one pod of the event. Defaults apply to resources that it lacks."""
    return {**config.default_request, **event.request, "pods": 1}


def event_error(config: Config, event: CalendarEvent) -> str | None:
    """Returns why the event cannot cause a conversion, or None."""
    policy = config.namespaces.get(event.namespace)
    if policy is None:
        monitored = ", ".join(sorted(config.namespaces)) or "none"
        return (
            f"namespace = {event.namespace}: is not a monitored namespace; name it in "
            f"monitored_namespaces, or write one of {monitored}"
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
    return time_error(event)


def _takes(size: Mapping[str, int], request: Mapping[str, int]) -> bool:
    return all(amount <= size.get(name, 0) for name, amount in request.items() if name != "pods")
