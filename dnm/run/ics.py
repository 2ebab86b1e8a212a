"""An iCalendar file (RFC 5545) -> events: `python -m dnm.run.ics`, a program of its own, since its
libraries are slow to load and a rule can be made to take for ever.

In the first line of its input stands a `Question`, then the calendar. It prints a
`CalendarReading`, or a sentence on stderr and exit code 1; 3 where the libraries are missing.
icalendar reads, recurring_ical_events plays the rules: RRULE, RDATE, EXDATE, single occurrences
that were moved or changed, THISANDFUTURE. What is ours:

- an end that is there twice when clocks go back is the second, as with events of one's own;
- a time without a zone, and a day, are of X-WR-TIMEZONE, else of `events_zone`;
- of a zone that nobody knows nothing is guessed: the series can't be read;
- people write calendars, so an entry is prose with a few lines for us;
- time and windows are dealt out evenly among the series that still want some. So one that takes
  for ever, or gives thousands of windows, takes nothing that another needs, and is named.
"""

from __future__ import annotations

import hashlib
import re
import resource
import signal
import sys
import time
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from dnm.calendar.windows import begin_in_utc, end_in_utc, zone_named
from dnm.config.events import read_event
from dnm.config.keys import RESOURCE
from dnm.model.calendar import CalendarEvent, CalendarReading
from dnm.model.printable import printable
from dnm.model.value import Value

LARGEST = 2 * 1024 * 1024  # bytes of the file
MOST_ASKED = 4 * 1024 * 1024  # bytes of the question: it names all namespaces
MOST_SECONDS = 20.0  # for all of it
SECONDS_OF_ALL = 14.0  # of work, until the last series is played or left out
SECONDS_OF_ONE = 3.0  # of it at the most for one series, where there are few
MOST_OF_ONE = 1_000  # occurrences of one series
MOST_KEPT = 1_000  # windows of all of them: the first of each series
MOST_WORDS = 384 * 1024  # bytes of these: the record of a calendar holds 512 KiB
MOST_TOLD = 50  # series that are told as unread by name
AHEAD = timedelta(days=30)
MEMORY = 1024 * 1024 * 1024  # bytes that reading may take
ENOUGH = timedelta(days=9)  # what stays less far ahead is told
NO_LIBRARIES = 3
_TO_ANSWER = 3.0  # seconds from the last series to the end, and before the first
_AGAIN = 0.1  # seconds until it rings once more, where a library has swallowed it
_TURNS = (0.25, 1.0)  # the part of the time that is dealt out by the end of each
_KEYS = ("pods", "nodes", "cpu", "memory")
_LINE = re.compile(r"\s*([A-Za-z][\w./-]*)\s*=\s*(.*?)\s*")
_BREAK = re.compile(r"</?(?:br|p|div|li)\b[^<>]{0,1000}>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,1000}>")
_WORD = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LONGEST = 20_000  # characters of a description that are looked at
_TOO_LONG = (
    f"its rule takes more than {SECONDS_OF_ONE:g} seconds to play, or more than its share of the "
    f"{SECONDS_OF_ALL:g} that all series have"
)

T = TypeVar("T")
Around = tuple[Any, list[Any], str]  # the calendar a series stands in, its time zones, its zone
Played = tuple[list[CalendarEvent], list[str]]  # windows, and what is wrong with others


class Question(Value):
    """Occurrences that overlap `[begins, ends)`. `zone`: of times that name none."""

    source: str
    namespaces: tuple[str, ...]
    zone: str
    begins: datetime
    ends: datetime


# --- what all of it may take ----------------------------------------------------------------------


class TooLong(BaseException):
    """The share is used up; no `except Exception` on the way may hide it."""


class Alarm:
    """Counts the work of this process, and ends what takes too much of it: by the clock on the wall
    a good series would be slow on a busy host. Only where time runs out by that too, it counts: who
    asked waits no longer than MOST_SECONDS."""

    def __init__(self) -> None:
        self._work, self._wall = time.process_time(), time.monotonic()
        self._is_set = False
        for ring in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(ring, self._ring)

    def spent(self) -> float:
        slack = MOST_SECONDS - SECONDS_OF_ALL - _TO_ANSWER
        work = time.process_time() - self._work
        return max(work, time.monotonic() - self._wall - slack)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self._is_set = True
        on_the_wall = MOST_SECONDS - _TO_ANSWER - (time.monotonic() - self._wall)
        signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN)
        signal.setitimer(signal.ITIMER_REAL, max(on_the_wall, _AGAIN), _AGAIN)
        try:
            yield
        finally:
            self._is_set = False  # it may have rung already, and be heard only now
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, number: int, frame: object) -> None:
        if self._is_set:
            raise TooLong


class Lock:
    """A lock of the rules that series share, those of a time zone. There is one thread, so one that
    is held was left by a series whose share was used up: a real one would be waited for."""

    def __init__(self) -> None:
        self.is_held = False

    def locked(self) -> bool:
        return self.is_held

    def acquire(self) -> None:
        if self.is_held:
            raise RuntimeError("its time zone takes too long to play")
        self.is_held = True

    def release(self) -> None:
        self.is_held = False


class _Locks:
    allocate_lock = Lock


def play_in_turns(plays: Sequence[Callable[[], T]], timer: Alarm) -> dict[int, T]:
    """Returns what each play gives, by its number, without those that took more than their share.

    In the first turn all have even shares of a quarter of the time that is left; what one does not
    need is the others'. Those to which that was too little have a second turn, with all of it.
    """
    found: dict[int, T] = {}
    given: dict[int, float] = {}
    begun = timer.spent()
    for part in _TURNS:
        until = begun + part * (SECONDS_OF_ALL - begun)
        waiting = [number for number in range(len(plays)) if number not in found]
        for place, number in enumerate(waiting):
            left = until - timer.spent()
            if left <= 0:
                break
            share = min(left / (len(waiting) - place), SECONDS_OF_ONE)
            if share <= given.get(number, 0.0):
                continue  # it would be too little again
            given[number] = share
            with suppress(TooLong), timer.within(share):
                found[number] = plays[number]()
    return found


def first_of_each(events: Iterable[CalendarEvent]) -> tuple[CalendarEvent, ...]:
    """Returns the first window of each series, then the second of each, and so on, as far as there
    is room for them; the earliest first."""
    by_time = sorted(events, key=lambda one: (one.begins, one.ends, one.name))
    count: Counter[str] = Counter()
    placed = []
    for one in by_time:
        placed.append((count[one.name], one))
        count[one.name] += 1
    kept: list[CalendarEvent] = []
    room = MOST_WORDS
    for _, one in sorted(placed, key=lambda pair: pair[0]):
        room -= len(msgspec.json.encode(one))
        if room < 0 or len(kept) == MOST_KEPT:
            break
        kept.append(one)
    return tuple(sorted(kept, key=lambda one: (one.begins, one.ends, one.name)))


# --- the calendar ---------------------------------------------------------------------------------


def read_calendar(content: bytes, question: Question, timer: Alarm) -> CalendarReading:
    """Returns the events that name a monitored namespace. What each series may take of the time is
    said in `play_in_turns`. Raises ValueError with a sentence for what is no calendar."""
    import recurring_ical_events  # noqa: F401  (before an alarm may ring in it)

    vars(sys.modules["dateutil.rrule"])["_thread"] = _Locks

    named: list[tuple[str, str]] = []
    plays: list[Callable[[], Played]] = []
    for calendar in _calendars_in(content):
        zone = str(calendar.get("X-WR-TIMEZONE") or "") or question.zone
        around = calendar, calendar.walk("VTIMEZONE"), zone
        for uid, members in _series_of(calendar).items():
            summary = str(members[0].get("SUMMARY", ""))
            named.append((name_of(summary, uid), title_of(summary)))
            plays.append(partial(_play, around, members, question))
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
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise ValueError("is UTF-16 text: save it as UTF-8")
    content = content.removeprefix(BOM_UTF8)
    begun, ended = (len(re.findall(rb"(?im)^%b:" % word, content)) for word in (b"BEGIN", b"END"))
    if begun != ended or not content.strip().upper().endswith(b"END:VCALENDAR"):
        raise ValueError("does not end as a calendar does: it is damaged, or not whole")
    import icalendar

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


# --- one series -----------------------------------------------------------------------------------


def _play(around: Around, members: list[Any], question: Question) -> Played:
    """Its windows, or why it can't be played."""
    try:
        return _windows_of(around, members, question)
    except ValueError as error:
        title = title_of(str(members[0].get("SUMMARY", "")))
        return [], [f"[{title}]: can't be played: {error}"]


def _windows_of(around: Around, members: list[Any], question: Question) -> Played:
    """One that names no namespace of ours is nothing to us, however wrong it is. Raises ValueError
    for whatever a library makes of a hostile one."""
    try:
        if not any(_namespaces(one, question) for one in members):
            return [], []
        return _events_of_series(around, members, question)
    except Exception as error:
        raise ValueError(printable(str(error) or type(error).__name__, 200)) from error


def _events_of_series(around: Around, members: list[Any], question: Question) -> Played:
    import icalendar
    import recurring_ical_events

    calendar, zones, zone = around
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
    is_exact = all(_lasts_hours(one) for one in members)
    for one in found:
        if str(one.get("STATUS", "")).upper() != "CANCELLED":
            events += _events_of(one, zone, question, problems, is_exact)
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


def _lasts_hours(entry: Any) -> bool:
    """Whether it says how long it is, and not in days: as many hours, whatever clocks do."""
    return "DURATION" in entry and bool(entry["DURATION"].dt % timedelta(days=1))


def _check_rules(entry: Any) -> None:
    """The library plays one without FREQ as if there were none."""
    rules = entry.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        if "FREQ" not in rule:
            raise ValueError("RRULE has no FREQ; write e.g. RRULE:FREQ=WEEKLY")


def _events_of(
    one: Any, zone: str, question: Question, problems: list[str], is_exact: bool
) -> Iterable[CalendarEvent]:
    summary = str(one.get("SUMMARY", ""))
    namespaces = _namespaces(one, question)
    if not namespaces:
        return  # moved to where it is none of ours
    begins = _moment(one["DTSTART"].dt, zone, begin_in_utc, 0)
    ends = _moment(one["DTEND"].dt, zone, end_in_utc, 1)
    if is_exact or ends <= begins:  # it begins in an hour that is left out, and would end before it
        ends = begins + max(one["DTEND"].dt - one["DTSTART"].dt, timedelta())
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


def _moment(
    when: date, zone: str, of_wall: Callable[[datetime, str], datetime], fold: int
) -> datetime:
    if not isinstance(when, datetime):
        return of_wall(datetime.combine(when, datetime.min.time()), zone)
    if when.tzinfo is None:
        return of_wall(when, zone)
    return max(when.replace(fold=one).astimezone(UTC) for one in range(fold + 1))


def _zone_of(one: Any, zone: str) -> str:
    """As people see it; where it has no name that is known here, as times without one."""
    for name in (getattr(getattr(one["DTSTART"].dt, "tzinfo", None), "key", ""), zone):
        try:
            zone_named(name)
        except ValueError:
            continue
        return str(name)
    return "UTC"


# --- what an entry says for dnm -------------------------------------------------------------------


def _namespaces(entry: Any, question: Question) -> tuple[str, ...]:
    summary = str(entry.get("SUMMARY", ""))
    return namespaces_of(map(str, entry.categories), summary, question.namespaces)


def namespaces_of(
    categories: Iterable[str], summary: str, monitored: Collection[str]
) -> tuple[str, ...]:
    """Returns the monitored namespaces that the categories name, else those that are words of the
    summary."""
    named = tuple(dict.fromkeys(one for one in categories if one in monitored))
    words = _WORD.findall(summary)
    return named or tuple(dict.fromkeys(word for word in words if word in monitored))


def entries_of(description: str) -> dict[str, str]:
    """Returns the lines of a description that are for dnm; some programs write it as HTML."""
    text = _TAG.sub("", _BREAK.sub("\n", description[:_LONGEST])).replace("&nbsp;", " ")
    found = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match and (match[1].lower() in _KEYS or ("/" in match[1] and RESOURCE.match(match[1]))):
            found[match[1]] = match[2]
    return found


def name_of(summary: str, uid: str) -> str:
    """Returns a name for the events of a series that stays for as long as both do."""
    words = "-".join(_WORD.findall(summary.lower()))[:40].strip("-")
    mark = hashlib.sha256(uid.encode("utf-8", "replace")).hexdigest()[:10]
    return f"{words}-{mark}" if words else f"event-{mark}"


def title_of(summary: str) -> str:
    """Returns the summary as a message quotes it."""
    return printable(summary, 60) or "without a summary"


def main() -> int:
    """Answers the question on stdin; returns the exit code."""
    alarm = Alarm()
    for what, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, int(MOST_SECONDS))):
        hard = resource.getrlimit(what)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, hard))
    question = msgspec.json.decode(sys.stdin.buffer.readline(MOST_ASKED), type=Question)
    try:
        reading = read_calendar(sys.stdin.buffer.read(LARGEST + 1), question, alarm)
    except ImportError as error:
        print(error, file=sys.stderr)
        return NO_LIBRARIES
    except (ValueError, MemoryError, RecursionError) as error:
        print(str(error) or "it takes too much memory", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(reading))
    return 0


if __name__ == "__main__":
    sys.exit(main())
