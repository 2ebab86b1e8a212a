"""The reader of events (times when queues need nodes) from the directory that `calendar` names.

Each read has a bound. If a file cannot be read or is malformed, the run continues with the events
that dnm read from it last (`dnm/calendar/in_force.py`). Files are trusted as the configuration is,
because an author of events decides what is lent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dnm.calendar.in_force import keep_calendar, keep_within_bound, with_calendars
from dnm.config.events import parse_events_alone, read_events, read_events_text
from dnm.config.files import MOST_EVENTS
from dnm.host.fault_points import fault_point
from dnm.host.trust import check_trust
from dnm.model.calendar import CalendarReading, KeptCalendar
from dnm.model.config import Config
from dnm.model.errors import ConfigError
from dnm.model.registry import Registry
from dnm.model.value import Unreadable

_MOST_FILES = 200  # of a directory
_MOST_REPORTED = 20  # unread files
_MOST_TEXT = 1024 * 1024  # characters of them together: all are parsed in every run


def read_calendars(config: Config, registry: Registry) -> Registry:
    """Returns the registry with the current events from all files. Writes nothing."""
    calendars: dict[str, KeptCalendar] = {}
    if config.events_dir is not None:
        calendars = _read_directory(config, config.events_dir, registry.calendars)
    return with_calendars(config, registry, calendars)


def _read_directory(
    config: Config, directory: Path, kept: dict[str, KeptCalendar]
) -> dict[str, KeptCalendar]:
    """Returns the calendar of each file. Drops the events of removed files. If the directory cannot
    be read, returns the calendars of the last read, each with the error."""
    try:
        with fault_point("calendar.read"):
            check_trust(directory)
            names = sorted(name for name in os.listdir(directory) if name.endswith(".ini"))
    except (OSError, ConfigError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        trouble = f"calendar = {directory}: can't be read: {why}; correct the path, or create it"
        below = {
            path: kept_calendar
            for path, kept_calendar in kept.items()
            if Path(path).parent == directory
        }
        below.setdefault(str(directory), KeptCalendar())
        unread = Unreadable(subject=str(directory), error=trouble)
        return {path: keep_calendar(kept_calendar, unread) for path, kept_calendar in below.items()}
    calendars: dict[str, KeptCalendar] = {}
    shown = {name: os.fsencode(name).decode(errors="replace") for name in names}
    left_out = [
        f"calendar = {directory}: the file name {shown[name]} is not UTF-8: rename it to be read"
        for name in names
        if shown[name] != name  # the registry could not hold it either
    ]
    names = [name for name in names if shown[name] == name]
    left_out += [
        f"calendar = {directory}: has {len(names)} files .ini; {_MOST_FILES} are read at most, "
        f"not {name} and later ones"
        for name in names[_MOST_FILES : _MOST_FILES + 1]
    ]
    for item in (str(directory / name) for name in names[_MOST_FILES:]):
        if item in kept:  # the content that was read last
            calendars[item] = msgspec.structs.replace(kept[item], troubles=())
    if left_out:
        calendars[str(directory)] = KeptCalendar(troubles=tuple(left_out[:_MOST_REPORTED]))
    events, text = MOST_EVENTS, _MOST_TEXT
    for path in (directory / name for name in names[:_MOST_FILES]):
        read, length = _read_events_file(config, path, events, text)
        calendar = keep_within_bound(kept.get(str(path), KeptCalendar()), read, str(path))
        events -= len(calendar.events)
        text -= length
        calendars[str(path)] = calendar
    return calendars


def _read_events_file(
    config: Config, path: Path, most: int, most_text: int
) -> tuple[CalendarReading | Unreadable, int]:
    """Returns the events of a file, or why they are unreadable, and the length of its text."""
    try:
        text = read_events_text(path)
    except ConfigError as error:
        return Unreadable(subject=str(path), error=str(error)), 0
    if len(text) > most_text:
        why = f"{path}: {_MOST_TEXT // 1024} KiB are read at most, of all files together"
        return Unreadable(subject=str(path), error=why), 0
    return _read_events(config, path, text, most), len(text)


def _read_events(config: Config, path: Path, text: str, most: int) -> CalendarReading | Unreadable:
    sections, problems = parse_events_alone(text)
    read = read_events(sections, config.events_zone, str(path))
    if len(read.events) > most:
        why = f"{path}: {MOST_EVENTS} events are read at most, of all files together"
        return Unreadable(subject=str(path), error=why)
    unread = _named(path, read.unread)
    if problems:
        unread["\0"] = tuple(f"{path}: {text}" for text in problems)
    return CalendarReading(events=read.events, unread=unread, is_complete=not problems)


def _named(path: Path, unread: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(f"{path}: {text}" for text in why) for name, why in unread.items()}
