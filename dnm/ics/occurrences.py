"""The occurrences of a calendar in a span of time, as events of one time each. Pure.

icalendar reads, recurring_ical_events plays the rules: RRULE, RDATE, EXDATE, single occurrences
that were moved or changed, THISANDFUTURE. What is ours:

- an end that is there twice when clocks go back is the second, as with events of one's own;
- a time without a zone, and a day, are of X-WR-TIMEZONE, else of `events_zone`;
- of a zone that nobody knows nothing is guessed: the series can't be read.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

import icalendar
import recurring_ical_events
from msgspec.structs import replace

from dnm.calendar.windows import begin_in_utc, end_in_utc, zone_named
from dnm.config.events import read_event
from dnm.ics.needs import entries_of, name_of, namespaces_of, title_of
from dnm.ics.question import (
    ENOUGH,
    LARGEST,
    MOST_KEPT,
    MOST_OF_ONE,
    MOST_TOLD,
    MOST_WORDS,
    SECONDS_OF_ALL,
    SECONDS_OF_ONE,
    Question,
)
from dnm.ics.shares import Timer, first_of_each, play_in_turns
from dnm.model.calendar import CalendarEvent, CalendarReading
from dnm.model.printable import printable

Around = tuple[Any, list[Any]]  # the calendar that a series stands in, and its time zones
Played = tuple[list[CalendarEvent], list[str]]  # windows, and what is wrong with others
_TOO_LONG = (
    f"its rule takes more than {SECONDS_OF_ONE:g} seconds to play, or more than its share of the "
    f"{SECONDS_OF_ALL:g} that all series have"
)


def read_calendar(content: bytes, question: Question, timer: Timer) -> CalendarReading:
    """Returns the events that name a monitored namespace. What each series may take of the time is
    said in `shares`. Raises ValueError with a sentence for what is no calendar."""
    named: list[tuple[str, str]] = []
    plays: list[Callable[[], Played]] = []
    for calendar in _calendars_in(content):
        zone = str(calendar.get("X-WR-TIMEZONE") or "") or question.zone
        around = calendar, calendar.walk("VTIMEZONE")
        for uid, members in _series_of(calendar).items():
            summary = str(members[0].get("SUMMARY", ""))
            named.append((name_of(summary, uid), title_of(summary)))
            plays.append(partial(_play, around, members, zone, question))
    events: list[CalendarEvent] = []
    unread: dict[str, tuple[str, ...]] = {}
    played = play_in_turns(plays, timer)
    for number, (name, title) in enumerate(named):
        found, problems = played.get(number, ([], [f"[{title}]: can't be played: {_TOO_LONG}"]))
        if problems:
            unread[name] = tuple(dict.fromkeys((*unread.get(name, ()), *problems)))[:3]
        else:
            events += [replace(one, name=name, source=question.source) for one in found]
    events = [one for one in events if one.name not in unread]
    return _bounded(events, unread, question)


def _bounded(
    events: list[CalendarEvent], unread: dict[str, tuple[str, ...]], question: Question
) -> CalendarReading:
    """What is left out soon is told, and of what can't be read as much as anybody reads."""
    kept = first_of_each(events)
    told = dict(list(unread.items())[:MOST_TOLD])
    more = [f"{len(unread) - MOST_TOLD} more can't be read"] if len(unread) > MOST_TOLD else []
    soon = (question.begins + ENOUGH).replace(tzinfo=None)
    left = Counter(one.name for one in events if one.begins < soon)
    left -= Counter(one.name for one in kept if one.begins < soon)
    more += [
        f"[{name}]: has more windows than there is room for beside the others, {MOST_KEPT} of all "
        f"and {MOST_WORDS // 1024} KiB; the first are looked at"
        for name in sorted(left)[:MOST_TOLD]
    ]
    told = {**dict.fromkeys(unread, ()), **told, **({"": tuple(more)} if more else {})}
    return CalendarReading(events=kept, unread=told)


def _calendars_in(content: bytes) -> list[Any]:
    if len(content) > LARGEST:
        raise ValueError(f"is larger than {LARGEST} bytes")
    begun, ended = (len(re.findall(rb"(?im)^%b:" % word, content)) for word in (b"BEGIN", b"END"))
    if begun != ended or not content.strip().upper().endswith(b"END:VCALENDAR"):
        raise ValueError("does not end as a calendar does: it is damaged, or not whole")
    try:
        return list(icalendar.Calendar.from_ical(content, multiple=True))
    except Exception as error:
        raise ValueError(f"is no iCalendar file: {printable(str(error), 200)}") from error


def _series_of(calendar: Any) -> dict[str, list[Any]]:
    """The entries by UID, the one with the rule first; one without is by itself."""
    found: dict[str, list[Any]] = defaultdict(list)
    for number, one in enumerate(calendar.walk("VEVENT")):
        found[str(one.get("UID") or f"without-{number}-{one.get('SUMMARY', '')}")].append(one)
    for members in found.values():
        members.sort(key=lambda one: "RECURRENCE-ID" in one)
    return found


def _namespaces(entry: Any, question: Question) -> tuple[str, ...]:
    summary = str(entry.get("SUMMARY", ""))
    return namespaces_of(map(str, entry.categories), summary, question.namespaces)


def _play(around: Around, members: list[Any], zone: str, question: Question) -> Played:
    """Its windows, or why it can't be played."""
    try:
        return _windows_of(around, members, zone, question)
    except ValueError as error:
        title = title_of(str(members[0].get("SUMMARY", "")))
        return [], [f"[{title}]: can't be played: {error}"]


def _windows_of(around: Around, members: list[Any], zone: str, question: Question) -> Played:
    """One that names no namespace of ours is nothing to us, however wrong it is. Raises ValueError
    for whatever a library makes of a hostile one."""
    try:
        if not any(_namespaces(one, question) for one in members):
            return [], []
        return _events_of_series(around, members, zone, question)
    except Exception as error:
        raise ValueError(printable(str(error) or type(error).__name__, 200)) from error


def _events_of_series(around: Around, members: list[Any], zone: str, question: Question) -> Played:
    calendar, zones = around
    for member in members:
        _check_zones(member)
        _check_end(member)
        _check_rules(member)
    alone = icalendar.Calendar()
    if "X-WR-TIMEZONE" in calendar:
        alone["X-WR-TIMEZONE"] = calendar["X-WR-TIMEZONE"]
    for part in (*zones, *members):
        alone.add_component(part)
    # A day more on each side: times without a zone are compared as if they were of UTC.
    span = question.begins - timedelta(days=1), question.ends + timedelta(days=1)
    found = recurring_ical_events.of(alone).between(*span)
    if len(found) > MOST_OF_ONE:
        raise ValueError(f"has more than {MOST_OF_ONE} occurrences in this time")
    events: list[CalendarEvent] = []
    problems: list[str] = []
    for one in found:
        if str(one.get("STATUS", "")).upper() != "CANCELLED":
            events += _events_of(one, zone, question, problems)
    return events, problems


def _check_zones(entry: Any) -> None:
    """An unknown TZID would be taken for a time of any zone."""
    for name in ("DTSTART", "DTEND", "RECURRENCE-ID"):
        zone = getattr(entry.get(name), "params", {}).get("TZID")
        moment = getattr(entry.get(name), "dt", None)
        if zone and isinstance(moment, datetime) and moment.tzinfo is None:
            raise ValueError(f"TZID={printable(str(zone), 60)} is no time zone that is known here")


def _check_end(entry: Any) -> None:
    """The library gives one that ends before it begins a length all the same."""
    begins, ends = (getattr(entry.get(name), "dt", None) for name in ("DTSTART", "DTEND"))
    if begins is None or ends is None or type(begins) is not type(ends):
        return
    is_alike = getattr(begins, "tzinfo", None) is None or ends.tzinfo is not None
    if is_alike and ends < begins:
        raise ValueError("ends before it begins")


def _check_rules(entry: Any) -> None:
    """The library plays one without FREQ as if there were none."""
    rules = entry.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        if "FREQ" not in rule:
            raise ValueError("RRULE has no FREQ; write e.g. RRULE:FREQ=WEEKLY")


def _events_of(
    one: Any, zone: str, question: Question, problems: list[str]
) -> Iterable[CalendarEvent]:
    summary = str(one.get("SUMMARY", ""))
    namespaces = _namespaces(one, question)
    if not namespaces:
        return  # moved to where it is none of ours
    begins, ends = _moments(one, zone)
    if ends <= question.begins or begins >= question.ends:
        return
    section = title_of(summary)
    if len(namespaces) > 1:
        problems.append(
            f"[{section}]: names {' and '.join(namespaces)}; name one in its categories"
        )
        return
    if ends <= begins:
        problems.append(f"[{section}]: has no end; write one")
        return
    entries = {
        "namespace": namespaces[0],
        "from": f"{begins:%Y-%m-%d %H:%M}",
        "until": f"{_up(ends):%Y-%m-%d %H:%M}",
        "zone": "UTC",
        **entries_of(str(one.get("DESCRIPTION", ""))),
    }
    event = read_event("x", section, entries, "UTC", problems)
    if event is not None:
        yield replace(event, seen_in=_zone_of(one, zone))


def _up(moment: datetime) -> datetime:
    """To the next minute, for events know no seconds."""
    left = timedelta(seconds=moment.second, microseconds=moment.microsecond)
    return moment + (timedelta(minutes=1) - left) if left else moment


def _moments(one: Any, zone: str) -> tuple[datetime, datetime]:
    begins, ends = one["DTSTART"].dt, one["DTEND"].dt
    return _moment(begins, zone, begin_in_utc, 0), _moment(ends, zone, end_in_utc, 1)


def _moment(
    when: date, zone: str, of_wall: Callable[[datetime, str], datetime], fold: int
) -> datetime:
    if not isinstance(when, datetime):
        return of_wall(datetime.combine(when, time()), zone)
    if when.tzinfo is None:
        return of_wall(when, zone)
    return when.replace(fold=fold).astimezone(UTC)


def _zone_of(one: Any, zone: str) -> str:
    """As people see it; where it has no name that is known here, as times without one."""
    for name in (getattr(getattr(one["DTSTART"].dt, "tzinfo", None), "key", ""), zone):
        try:
            zone_named(name)
        except ValueError:
            continue
        return str(name)
    return "UTC"
