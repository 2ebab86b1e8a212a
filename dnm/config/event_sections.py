"""The sections [event:NAME] of a configuration, or of a file of events. Each is parsed by itself:
what is wrong with one is nothing to the others, nor to the rest of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dnm.config.files import (
    HEADER,
    MOST_EVENTS,
    EventSections,
    is_meant_only,
    lines_of_events,
    parse_lines,
    read_trusted_text,
    resolve_section,
    shown,
    split_events,
)

_LARGEST_OF_EVENTS = 256 * 1024  # bytes of a file of events: it is read in every run
_MOST_LINES = 1_000  # of one event
_MOST_TOLD = 20  # lines of a file of events that are of no event
_MOST_DUPLICATES_OF_EVENT = 3


def read_events_text(path: Path) -> str:
    """The text of a file of events; raises ConfigError."""
    return read_trusted_text(path, "file of events", _LARGEST_OF_EVENTS)


def parse_sections(lines: list[str], events: Mapping[str, list[int]]) -> EventSections:
    """Section [event:NAME] -> its keys, and what is wrong with their form. Each is parsed by
    itself: what is wrong with one is nothing to the others, nor to the rest of the file."""
    found: EventSections = {}
    for name, numbers in events.items():
        is_one_more = len(found) >= MOST_EVENTS
        found[name] = ({}, ()) if is_one_more else _parse_event(name, lines, numbers)
    return found


def _parse_event(
    name: str, lines: list[str], numbers: list[int]
) -> tuple[dict[str, str], tuple[str, ...]]:
    if len(numbers) > _MOST_LINES:
        return {}, (f"[{shown(name)}]: has more than {_MOST_LINES} lines; an event needs few",)
    own = [lines[number] for number in numbers]
    problems: list[str] = []
    for place, line in enumerate(own):
        if is_meant_only(line):
            problems.append(
                f"line {numbers[place] + 1}: '{shown(line)}' is no section; write [event:NAME] "
                "where the line begins"
            )
            own[place] = f"[{name}]"
    raw = parse_lines(own, problems, numbers, _MOST_DUPLICATES_OF_EVENT)
    return resolve_section(name, raw.get(name, {}), problems), tuple(problems)


def parse_events_alone(text: str) -> tuple[EventSections, tuple[str, ...]]:
    """The sections [event:NAME] of a file that holds nothing else, and what stands there all the
    same."""
    lines, events = split_events(text)
    of_events = lines_of_events(events)
    problems: list[str] = []
    section = ""
    for number, line in enumerate(lines):
        if number in of_events or not line.strip() or line.lstrip()[0] in "#;":
            continue
        if header := HEADER.match(line):
            section = header[1]
            problems.append(f"[{shown(section)}]: is no section [event:NAME]")
        elif not section:
            problems.append(f"line {number + 1}: '{shown(line)}' is of no section [event:NAME]")
        if len(problems) == _MOST_TOLD:
            break
    return parse_sections(lines, events), tuple(problems)
