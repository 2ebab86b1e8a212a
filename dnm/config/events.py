"""The parsing of sections [event:NAME] of the configuration or of a file of events, and of the
options of `dnm event add`, into `CalendarEvent`.

Each event is parsed alone: an error in one does not affect the others or the rest of the file. A
problem is a sentence for the user, as in `sections.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dnm.calendar.windows import begin_in_utc, event_error, is_day_of
from dnm.config import numbers, values
from dnm.config.files import (
    HEADER,
    MOST_EVENTS,
    EventSections,
    is_malformed_event,
    lines_of_events,
    parse_lines,
    read_trusted_text,
    resolve_section,
    split_events,
)
from dnm.config.keys import RESOURCE, Keys
from dnm.config.problems import line_start, shown
from dnm.config.sections import parse_section
from dnm.model.calendar import CalendarEvent, CalendarReading
from dnm.model.config import Config
from dnm.model.printable import printable

_LARGEST_OF_EVENTS = 256 * 1024  # bytes of a file of events, which every run reads
_MOST_LINES = 1_000  # of one event
_MOST_REPORTED = 20  # reported lines of a file of events without an event
_MOST_DUPLICATES_OF_EVENT = 3
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = r"(\d{4}-\d{2}-\d{2})"
_CLOCK = r"(\d{1,2}:\d{2})(?::00)?"
_YEARS = range(1970, 3000)  # sums of their times stay within the range of datetime
_LONGEST = timedelta(days=366)
_LONGEST_OF_SERIES = timedelta(days=7)
_NAME = r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?"


def event_name(text: str) -> str:
    """Returns the text if it is a valid event name, which becomes part of a reservation's name."""
    if not re.fullmatch(_NAME, text):
        raise ValueError(
            f"'{shown(text)}' is not an event name; write up to 52 of a-z, 0-9 and '-', with "
            "a letter or digit at both ends"
        )
    return text


def moment(text: str) -> datetime:
    """Returns the day and time that the text names, without a time zone."""
    match = re.fullmatch(rf"{_DAY}[ T]{_CLOCK}", text)
    if match is None:
        raise ValueError("is not a date and time; write e.g. 2026-12-01 09:00")
    return datetime.combine(day(match[1]), datetime.min.time()) + _since_midnight(match[2])


def moment_at(text: str, zone: str) -> datetime:
    """Returns the moment in the text, in UTC. Without an offset, the text is in `zone`."""
    try:
        with_offset = datetime.fromisoformat(text)
    except ValueError:
        with_offset = moment(text)
    if with_offset.tzinfo is not None:
        _in_our_years(with_offset.date())
        return with_offset.astimezone(UTC)
    return begin_in_utc(moment(text), zone)


def day(text: str) -> date:
    """Returns the day in the text, e.g. 2026-12-01."""
    try:
        if not re.fullmatch(_DAY, text):
            raise ValueError
        parsed = date.fromisoformat(text)
    except ValueError as error:
        raise ValueError("is not a date; write e.g. 2026-12-01") from error
    return _in_our_years(parsed)


def _in_our_years(parsed: date) -> date:
    if parsed.year not in _YEARS:
        first, last = _YEARS[0], _YEARS[-1]
        raise ValueError(f"is a day of {parsed.year}; write a year from {first} to {last}")
    return parsed


def _since_midnight(text: str) -> timedelta:
    hour, minute = map(int, text.split(":"))
    if minute > 59 or hour * 60 + minute > 24 * 60:
        raise ValueError("is not a time of day; write 00:00 to 24:00")
    return timedelta(hours=hour, minutes=minute)


def until(text: str) -> datetime | timedelta:
    """Returns the end in the text: a day and a time, or only a time, as the time since midnight."""
    return _since_midnight(text) if re.fullmatch(r"\d{1,2}:\d{2}", text) else moment(text)


def weekdays(text: str) -> tuple[int, ...]:
    """Returns the days in the text, each by its first three letters (Mon, Wed); Monday is 0."""
    days = values.names(text)
    for name in days:
        if name.lower() not in _DAYS:
            raise ValueError(f"'{name}' is not a day of the week; write e.g. Mon, Wed")
    if not days:
        raise ValueError("names no day; write e.g. Mon, Wed, or leave it out")
    return tuple(sorted({_DAYS.index(name.lower()) for name in days}))


# [event:NAME] -> CalendarEvent; a key that matches RESOURCE is an amount of that resource
EVENT_KEYS: Keys = {
    "namespace": ("namespace", values.namespace),
    "from": ("begins", moment),
    "until": ("", until),
    "weekly": ("weekly", weekdays),
    "last": ("last", day),
    "pods": ("pods", numbers.integer(1, 100_000)),
    "cpu": ("", values.quantity("cpu")),
    "memory": ("", values.quantity("memory")),
    "nodes": ("nodes", numbers.integer(1, 100_000)),
}


def with_events(config: Config, read: CalendarReading) -> Config:
    """Returns the configuration with the valid events, and with the errors of the invalid ones."""
    of_no_use = {
        event.name: (f"[event:{event.name}] {why}",)
        for event in read.events
        if (why := event_error(config, event))
    }
    return replace(
        config,
        calendar_events=tuple(event for event in read.events if event.name not in of_no_use),
        unread_events={**read.unread, **of_no_use},
    )


def read_events(sections: EventSections, zone: str, source: str) -> CalendarReading:
    """Returns the valid events of these sections, and event name -> errors for the others."""
    events: dict[str, CalendarEvent] = {}
    unread: dict[str, tuple[str, ...]] = {}
    if len(sections) > MOST_EVENTS:
        kept = dict(list(sections.items())[:MOST_EVENTS])
        many = f"has {len(sections)} sections [event:NAME]; {MOST_EVENTS} are read at most"
        unread[""], sections = (many,), kept
    for section, (entries, problems) in sections.items():
        name = section.partition(":")[2].strip()
        errors = list(problems)
        event = read_event(name, section, entries, zone, errors)
        if name in events or name in unread:
            errors.append(f"[{shown(section)}]: another section has this name; merge the two")
        if errors or event is None:
            events.pop(name, None)
            unread[name] = (*unread.get(name, ()), *errors)
        else:
            events[name] = replace(event, source=source)
    return CalendarReading(events=tuple(events.values()), unread=unread)


def read_event(
    name: str, section: str, entries: Mapping[str, str], zone: str, problems: list[str]
) -> CalendarEvent | None:
    """Returns the event of a section, or None if it has errors, which are added to `problems`."""
    errors: list[str] = []
    if not name:
        problems.append(f"[{shown(section)}]: has no name; write [event:NAME]")
        return None
    try:
        event_name(name)
    except ValueError as error:
        errors.append(f"[{shown(section)}]: {printable(str(error))}")
    resources = {
        key: values.quantity(key)
        for key in entries
        if RESOURCE.fullmatch(key) and key.lower() not in EVENT_KEYS
    }
    keys = {**EVENT_KEYS, **{key.lower(): ("", parse) for key, parse in resources.items()}}
    parsed = parse_section(section, entries, keys, errors)
    errors += [
        f"[{shown(section)}] {key}: is missing; write {example}"
        for key, example in (
            ("namespace", "the namespace of the event"),
            ("from", "e.g. from = 2026-12-01 09:00"),
            ("until", "e.g. until = 17:00"),
        )
        if key not in parsed
    ]
    event = None if errors else _event(name, section, parsed, resources, zone, errors)
    problems.extend(errors)
    return None if errors else event


def _event(
    name: str,
    section: str,
    parsed: Mapping[str, Any],
    resources: Mapping[str, object],
    zone: str,
    problems: list[str],
) -> CalendarEvent:
    begins: datetime = parsed["from"]
    event = CalendarEvent(
        name=name,
        namespace=parsed["namespace"],
        begins=begins,
        ends=_end(begins, parsed["until"]),
        zone=zone,
        weekly=parsed.get("weekly", ()),
        last=parsed.get("last"),
        pods=parsed.get("pods", 0),
        request={
            **({"cpu": parsed["cpu"]} if "cpu" in parsed else {}),
            **({"memory": parsed["memory"]} if "memory" in parsed else {}),
            **{key: parsed[key.lower()] for key in resources},
        },
        nodes=parsed.get("nodes", 0),
    )
    problems.extend(f"[{shown(section)}] {text}" for text in _contradictions(event))
    return event


def _end(begins: datetime, text: datetime | timedelta) -> datetime:
    """Returns an event's end. A time of day means its first occurrence after the start."""
    if isinstance(text, datetime):
        return text
    ends = datetime.combine(begins.date(), datetime.min.time()) + text
    return ends if ends > begins else ends + timedelta(days=1)


def _contradictions(event: CalendarEvent) -> list[str]:
    longest = _LONGEST_OF_SERIES if event.weekly else _LONGEST
    errors = []
    if event.ends <= event.begins:
        errors.append(f"until = {event.ends:%Y-%m-%d %H:%M}: is not after from; write a later one")
    if event.ends - event.begins > longest:
        errors.append(f"until: is more than {longest.days} days after from; write an earlier one")
    if bool(event.pods) == bool(event.nodes):
        errors.append("pods or nodes: write one of them: the number of pods or of nodes")
    if event.request and not event.pods:
        errors.append("cpu, memory: are the request of one pod; write pods too")
    if event.last and not event.weekly:
        errors.append("last: belongs to a series; write weekly too, or leave it out")
    if event.last and event.last < event.begins.date():
        errors.append(f"last = {event.last}: is before from; write a later day")
    elif event.last and event.weekly and not _has_a_day(event, event.last):
        errors.append(f"last = {event.last}: no day of the series is left; write a later one")
    return errors


def _has_a_day(event: CalendarEvent, last: date) -> bool:
    first = event.begins.date()
    days = (first + timedelta(days=number) for number in range((last - first).days + 1))
    return any(is_day_of(event, day) for day in days)


# --- the sections of a file, by their form -------------------------------------------------------


def read_events_text(path: Path) -> str:
    """Returns the text of a file of events. Raises ConfigError."""
    return read_trusted_text(path, "file of events", _LARGEST_OF_EVENTS)


def parse_sections(lines: list[str], events: Mapping[str, list[int]]) -> EventSections:
    """Returns the keys and texts of each section [event:NAME], and the errors in its form."""
    return {
        name: _parse_event(name, lines, of_event) if place < MOST_EVENTS else ({}, ())
        for place, (name, of_event) in enumerate(events.items())
    }


def _parse_event(
    name: str, lines: list[str], of_event: list[int]
) -> tuple[dict[str, str], tuple[str, ...]]:
    if len(of_event) > _MOST_LINES:
        return {}, (f"[{shown(name)}]: has more than {_MOST_LINES} lines; an event needs few",)
    own = [lines[number] for number in of_event]
    problems: list[str] = []
    for place, line in enumerate(own):
        if is_malformed_event(line):
            problems.append(
                f"line {of_event[place] + 1}: '{shown(line)}' is not a section; write [event:NAME] "
                "where the line begins"
            )
            own[place] = f"[{name}]"
    raw = parse_lines(own, problems, of_event, _MOST_DUPLICATES_OF_EVENT)
    return resolve_section(name, raw.get(name, {}), problems), tuple(problems)


def parse_events_alone(text: str) -> tuple[EventSections, tuple[str, ...]]:
    """Returns the sections [event:NAME] of a file of events, and a problem for each line outside
    them."""
    lines, events = split_events(text)
    of_events = lines_of_events(events)
    problems: list[str] = []
    section = ""
    for number, line in enumerate(lines):
        if number in of_events or not line.strip() or line.lstrip()[0] in "#;":
            continue
        if header := HEADER.match(line):
            section = header[1]
            problems.append(f"[{shown(section)}]: is not a section [event:NAME]")
        elif not section:
            problems.append(
                f"line {number + 1}: '{line_start(line)}' is outside the sections [event:NAME]"
            )
        if len(problems) == _MOST_REPORTED:
            break
    return parse_sections(lines, events), tuple(problems)
