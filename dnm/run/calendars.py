"""The calendars that the configuration names, read from where they are: files of directories, and
the iCalendar file, which a program of its own plays (`dnm/run/ics.py`) when file or day is new.

Nobody is waited for beyond a bound, and nothing that is wrong with a calendar is an error of a run:
what it said last stays in force (`dnm/calendar/in_force.py`). Files are judged as the configuration
is: whoever can write a calendar decides what is lent.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from pathlib import Path
from subprocess import TimeoutExpired

import msgspec

from dnm.calendar.in_force import keep_calendar, keep_within_bound, with_calendars
from dnm.config.events import parse_events_alone, read_events, read_events_text
from dnm.config.files import MOST_EVENTS
from dnm.host.fault_points import fault_point
from dnm.host.programs import run_bounded
from dnm.host.trust import check_trust, read_trusted
from dnm.model.calendar import CalendarReading, KeptCalendar
from dnm.model.config import Config
from dnm.model.errors import ConfigError
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.run.ics import AHEAD, LARGEST, MOST_SECONDS, NO_LIBRARIES, Question

_MOST_FILES = 200  # of a directory
_MOST_SAID = 20  # files that are not read
_MOST_TEXT = 1024 * 1024  # characters of them together: all are parsed in every run
_MOST_ANSWER = 4 * 1024 * 1024  # bytes that the program may print
_PAST = timedelta(days=2)  # windows of the days before, for nodes that came for them


def read_calendars(config: Config, registry: Registry, at: datetime) -> Registry:
    """Returns the registry with what calendars say at a moment; writes nothing."""
    kept = registry.calendars
    calendars: dict[str, KeptCalendar] = {}
    if config.events_dir is not None:
        calendars |= _read_directory(config, config.events_dir, kept)
    if config.calendar is not None:
        path = str(config.calendar)
        calendars[path] = _read_ics(config, config.calendar, kept.get(path, KeptCalendar()), at)
    return with_calendars(config, registry, calendars)


# --- files of events -----------------------------------------------------------------------------


def _read_directory(
    config: Config, directory: Path, kept: dict[str, KeptCalendar]
) -> dict[str, KeptCalendar]:
    """A file that is taken out takes its events along; a directory that can't be read keeps all."""
    try:
        with fault_point("calendar.read"):
            check_trust(directory)
            names = sorted(name for name in os.listdir(directory) if name.endswith(".ini"))
    except (OSError, ConfigError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        trouble = f"calendar = {directory}: can't be read: {why}"
        below = {path: one for path, one in kept.items() if Path(path).parent == directory}
        below.setdefault(str(directory), KeptCalendar())
        unread = Unreadable(what=str(directory), error=trouble)
        return {path: keep_calendar(one, unread) for path, one in below.items()}
    found: dict[str, KeptCalendar] = {}
    shown = {name: os.fsencode(name).decode(errors="replace") for name in names}
    left_out = [
        f"calendar = {directory}: the file name {shown[name]} is not UTF-8: rename it to be read"
        for name in names
        if shown[name] != name  # nor could the record hold it
    ]
    names = [name for name in names if shown[name] == name]
    left_out += [
        f"calendar = {directory}: has {len(names)} files .ini; {_MOST_FILES} are read at most, "
        f"not {name} and what comes after it"
        for name in names[_MOST_FILES : _MOST_FILES + 1]
    ]
    for one in (str(directory / name) for name in names[_MOST_FILES:]):
        if one in kept:  # what it said last
            found[one] = msgspec.structs.replace(kept[one], troubles=())
    if left_out:
        found[str(directory)] = KeptCalendar(troubles=tuple(left_out[:_MOST_SAID]))
    events, text = MOST_EVENTS, _MOST_TEXT
    for path in (directory / name for name in names[:_MOST_FILES]):
        read, length = _read_events_file(config, path, events, text)
        calendar = keep_within_bound(kept.get(str(path), KeptCalendar()), read, str(path))
        events -= len(calendar.events)
        text -= length
        found[str(path)] = calendar
    return found


def _read_events_file(
    config: Config, path: Path, most: int, most_text: int
) -> tuple[CalendarReading | Unreadable, int]:
    """What it says, and how much text that is."""
    try:
        text = read_events_text(path)
    except ConfigError as error:
        return Unreadable(what=str(path), error=str(error)), 0
    if len(text) > most_text:
        why = f"{path}: {_MOST_TEXT // 1024} KiB are read at most, of all files together"
        return Unreadable(what=str(path), error=why), 0
    return _read_events(config, path, text, most), len(text)


def _read_events(config: Config, path: Path, text: str, most: int) -> CalendarReading | Unreadable:
    sections, problems = parse_events_alone(text)
    read = read_events(sections, config.events_zone, str(path))
    if len(read.events) > most:
        why = f"{path}: {MOST_EVENTS} events are read at most, of all files together"
        return Unreadable(what=str(path), error=why)
    unread = _named(path, read.unread)
    if problems:
        unread["\0"] = tuple(f"{path}: {text}" for text in problems)
    return CalendarReading(events=read.events, unread=unread, is_whole=not problems)


# --- iCalendar -----------------------------------------------------------------------------------


def _read_ics(config: Config, path: Path, kept: KeptCalendar, at: datetime) -> KeptCalendar:
    today = datetime.combine(at.astimezone(UTC).date(), time(), UTC)
    begins = today - _PAST
    ahead = tuple(one for one in kept.events if one.ends.replace(tzinfo=UTC) > begins)
    kept = msgspec.structs.replace(kept, events=ahead)
    try:
        with fault_point("calendar.read"):
            content = read_trusted(path, LARGEST)
    except (OSError, ConfigError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        trouble = f"calendar = {path}: can't be read: {why}"
        kept = msgspec.structs.replace(kept, digest="")
        return keep_calendar(kept, Unreadable(what=str(path), error=trouble))
    question = Question(
        source=str(path),
        namespaces=tuple(config.namespaces),
        zone=config.events_zone,
        begins=begins,
        ends=today + AHEAD,
    )
    # One that failed is tried again in the next hour: it may have cost all of its time.
    hour = f"{at.astimezone(UTC):%Y-%m-%dT%H}"
    asked = sha256(content + msgspec.json.encode(question)).hexdigest()
    if kept.digest in (asked, f"{asked} {hour}"):
        return kept
    try:
        read = _play(content, question)
    except _Failed as failed:
        unread = Unreadable(what=str(path), error=f"calendar = {path}: {failed}")
        found = keep_calendar(kept, unread)
        return msgspec.structs.replace(found, digest=f"{asked} {hour}" if failed.is_costly else "")
    read = msgspec.structs.replace(read, unread=_named(path, read.unread))
    found = keep_within_bound(kept, read, str(path))
    return msgspec.structs.replace(found, digest=asked)


def _named(path: Path, unread: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(f"{path}: {text}" for text in why) for name, why in unread.items()}


class _Failed(Exception):
    """The program could not play the calendar."""

    is_costly = True


class _NoLibraries(_Failed):
    """It could not even begin, which costs nothing: it is tried again at once."""

    is_costly = False


def _play(content: bytes, question: Question) -> CalendarReading:
    """Asks the program. Raises _Failed with the end of a sentence."""
    command = [sys.executable, "-I", "-m", "dnm.run.ics"]
    asked = msgspec.json.encode(question) + b"\n" + content
    environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    try:
        with fault_point("calendar.play"):
            answer = run_bounded(command, environment, MOST_SECONDS, _MOST_ANSWER, asked)
    except TimeoutExpired:
        raise _Failed(
            f"takes more than {MOST_SECONDS:g} seconds to play; look at its rules"
        ) from None
    except OSError as error:
        many = "has more occurrences than anybody wants" if error.errno == errno.EFBIG else error
        raise _Failed(f"can't be played: {many}") from error
    said = printable(answer.stderr.decode("utf-8", "replace").strip(), 300)
    if answer.returncode == NO_LIBRARIES:
        raise _NoLibraries(
            f"needs libraries ({said}): install them with pip install 'dnm[calendar]'"
        )
    if answer.returncode:
        ended = f"the program that plays it ended with exit code {answer.returncode}"
        raise _Failed(said if answer.returncode == 1 and said else ended)
    try:
        return msgspec.json.decode(answer.stdout, type=CalendarReading)
    except msgspec.MsgspecError as error:
        raise _Failed(f"its answer can't be read: {error}") from error
