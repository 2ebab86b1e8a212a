"""Calendars where they are: read when they change, as they were when they can't be read."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.calendar import in_force
from dnm.calendar.in_force import list_troubles
from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.plan.rules.foreseen import known_events
from dnm.run import calendars
from dnm.run.calendars import read_calendars
from tests.builders import a_config

AT = datetime(2026, 12, 1, 10, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
EVENT = "[event:{0}]\nnamespace = dev\nfrom = 2026-12-02 09:00\nuntil = 17:00\nnodes = {1}\n"
ICS = (
    "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\nBEGIN:VEVENT\nUID:1\nSUMMARY:Lab (dev)\n"
    "DTSTART:20261202T090000Z\nDTEND:20261202T170000Z\nRRULE:FREQ=WEEKLY\n"
    "DESCRIPTION:nodes = 2\nEND:VEVENT\nEND:VCALENDAR\n"
)


class Place:
    """A directory with calendars, and a record that each reading is put into."""

    def __init__(self, directory: Path, **changes: Any) -> None:
        self.directory = directory
        self.config: Config = a_config(directory, **changes)
        self.registry = Registry()

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True, mode=0o755)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(0o644)
        return path

    def read(self, at: datetime = AT) -> tuple[dict[str, int], tuple[str, ...]]:
        """Event and its nodes, those of one series added; and what is wrong."""
        self.registry = read_calendars(self.config, self.registry, at)
        assert read_calendars(self.config, self.registry, at) == self.registry  # it is rest
        nodes: dict[str, int] = {}
        for one in known_events(self.config, self.registry):
            name = one.name.rpartition("-")[0] or one.name
            nodes[name] = nodes.get(name, 0) + one.nodes
        return nodes, list_troubles(self.config, self.registry)


@pytest.fixture
def of_files(tmp_path: Path) -> Place:
    place = Place(tmp_path, events_dir=tmp_path / "events.d")
    place.write("events.d/a.ini", EVENT.format("a", 1))
    place.write("events.d/b.ini", EVENT.format("b", 2) + EVENT.format("c", 3))
    place.write("events.d/b.ini~", EVENT.format("d", 9))
    assert place.read() == ({"a": 1, "b": 2, "c": 3}, ())
    return place


# name, content (None: it is gone) -> the nodes of each event after it, and what is told
FILES: dict[str, tuple[str, str | bytes | None, dict[str, int], str]] = {
    "one changes": ("a.ini", EVENT.format("a", 5), {"a": 5, "b": 2, "c": 3}, ""),
    "one goes": ("a.ini", None, {"b": 2, "c": 3}, ""),
    "an event goes": ("b.ini", EVENT.format("b", 2), {"a": 1, "b": 2}, ""),
    "no text": ("b.ini", b"\xff\xfe", {"a": 1, "b": 2, "c": 3}, "is not UTF-8 text"),
    "one of two is damaged": (
        "b.ini", EVENT.format("b", 7) + EVENT.format("c", "x"), {"a": 1, "b": 7, "c": 3},
        "b.ini: [event:c] nodes = x: is not a whole number"),
    "another section": (
        "b.ini", EVENT.format("b", 2) + "[settings]\nx = 1\n", {"a": 1, "b": 2, "c": 3},
        "b.ini: [settings]: is no section [event:NAME]"),
    "a header without its end": (
        "b.ini", EVENT.format("b", 7) + EVENT.format("c", 9).replace("]", ""),
        {"a": 1, "b": 7, "c": 3},
        "'[event:c' is no section; write [event:NAME] where the line begins"),
    "a header that is mistyped": (
        "b.ini", EVENT.format("b", 7) + EVENT.format("c", 9).replace("event", "evnt"),
        {"a": 1, "b": 7, "c": 3}, "[evnt:c]: is no section [event:NAME]"),
    "no header": (
        "b.ini", "nodes = 7\n" + EVENT.format("b", 7), {"a": 1, "b": 7, "c": 3},
        "line 1: 'nodes' is of no section"),
    "too large": ("b.ini", b"#" * 2**19, {"a": 1, "b": 2, "c": 3}, "is larger than"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "nodes", "told"), FILES.values(), ids=FILES)
def test_files_of_events(
    of_files: Place, name: str, content: str | bytes | None, nodes: dict[str, int], told: str
) -> None:
    path = of_files.config.events_dir / name  # type: ignore[operator]
    path.unlink() if content is None else of_files.write(f"events.d/{name}", content)
    found, troubles = of_files.read()
    assert found == nodes
    assert len(troubles) == bool(told) and told in "".join(troubles)


def test_a_directory_that_is_gone_or_others_keeps_what_it_said(of_files: Place) -> None:
    directory = of_files.directory / "events.d"
    directory.chmod(0o777)
    nodes, (told,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3} and "chmod go-w" in told
    directory.rename(directory.with_name("elsewhere"))
    nodes, (told,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3} and "No such file or directory" in told
    of_files.config = msgspec.structs.replace(of_files.config, events_dir=None)
    assert of_files.read() == ({}, ())  # nobody names it any more


def test_no_more_files_are_read_than_anybody_has(
    of_files: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others said last stays in force."""
    monkeypatch.setattr(calendars, "_MOST_FILES", 2)
    of_files.write("events.d/a2.ini", EVENT.format("d", 4))
    nodes, (told,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert "has 3 files .ini; 2 are read at most, not b.ini and what comes after it" in told


def test_a_name_that_is_no_text_is_told_and_takes_nothing_along(of_files: Place) -> None:
    """An old umlaut; nor could the record hold it."""
    odd = os.fsencode(of_files.config.events_dir or "") + b"/caf\xe9.ini"
    Path(os.fsdecode(odd)).write_text(EVENT.format("x", 9))
    nodes, (told,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3}
    assert told.endswith("the file name caf\ufffd.ini is not UTF-8: rename it to be read")


def test_no_more_text_is_parsed_than_anybody_writes(
    of_files: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendars, "_MOST_TEXT", 100)
    of_files.write("events.d/b.ini", EVENT.format("b", 7) + EVENT.format("c", 8))
    nodes, (told,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3} and "are read at most, of all files" in told


@pytest.fixture
def of_ics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(calendars, "MOST_SECONDS", 600)  # on a busy machine
    place = Place(tmp_path, calendar=tmp_path / "w.ics")
    place.write("w.ics", ICS)
    assert place.read() == ({"lab-dev": 10}, ())  # five of them in 30 days
    return place


def test_a_calendar_is_played_again_when_it_or_the_day_is_new(
    of_ics: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was played")

    with monkeypatch.context() as patched:
        patched.setattr(calendars, "_play", never)
        assert of_ics.read(AT + 13 * HOUR) == ({"lab-dev": 10}, ())
    of_ics.write("w.ics", ICS.replace("nodes = 2", "nodes = 3"))
    assert of_ics.read() == ({"lab-dev": 15}, ())
    assert of_ics.read(AT + timedelta(days=4)) == ({"lab-dev": 12}, ())  # of two days ago: gone
    assert of_ics.read() == ({"lab-dev": 15}, ())  # the clock jumps back


DAMAGED: dict[str, tuple[str | None, str]] = {
    "absent": (None, "can't be read: No such file or directory"),
    "cut off": (ICS[:-9], "does not end as a calendar does"),
    "a page": ("<html>", "does not end as"),
    "one entry is damaged": (ICS.replace("nodes = 2", "nodes = x"), "nodes = x: is not a whole"),
    "a bomb": (ICS.replace("WEEKLY", "SECONDLY"), "can't be played: its rule takes more than"),
}


def test_a_byte_order_mark_is_passed_over_and_utf_16_is_named(of_ics: Place) -> None:
    of_ics.write("w.ics", "\ufeff" + ICS.replace("nodes = 2", "nodes = 3"))
    assert of_ics.read() == ({"lab-dev": 15}, ())
    (of_ics.directory / "w.ics").write_bytes(ICS.encode("utf-16"))
    nodes, (told,) = of_ics.read()
    assert nodes == {"lab-dev": 15} and "is UTF-16 text: save it as UTF-8" in told


@pytest.mark.parametrize(("text", "told"), DAMAGED.values(), ids=DAMAGED)
def test_a_calendar_that_can_not_be_read_keeps_its_windows(
    of_ics: Place, text: str | None, told: str
) -> None:
    path = of_ics.directory / "w.ics"
    path.unlink() if text is None else of_ics.write("w.ics", text)
    nodes, (trouble,) = of_ics.read()
    assert nodes == {"lab-dev": 10} and told in trouble and str(path) in trouble
    of_ics.write("w.ics", ICS)
    assert of_ics.read() == ({"lab-dev": 10}, ())


def test_one_that_is_slow_is_tried_again_in_the_next_hour(
    of_ics: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_ics.write("w.ics", ICS + "\n")
    tries = []

    def play(*arguments: object) -> object:
        tries.append(arguments)
        raise calendars._Failed("takes more than 20 seconds to play")

    monkeypatch.setattr(calendars, "_play", play)
    for at, expected in ((AT, 1), (AT + HOUR / 4, 1), (AT + HOUR, 2), (AT + HOUR, 2)):
        nodes, (told,) = of_ics.read(at)
        assert nodes == {"lab-dev": 10} and "takes more than 20 seconds" in told
        assert len(tries) == expected


def test_without_its_libraries_it_says_what_to_install(
    of_ics: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is tried again at once."""
    program = of_ics.write("python", "#!/bin/sh\necho No module named icalendar >&2; exit 3\n")
    program.chmod(0o755)
    of_ics.write("w.ics", ICS + "\n")
    with monkeypatch.context() as patched:
        patched.setattr("sys.executable", str(program))
        nodes, (told,) = of_ics.read()
    assert nodes == {"lab-dev": 10} and "pip install 'dnm[calendar]'" in told
    assert of_ics.read() == ({"lab-dev": 10}, ())


def test_a_program_that_hangs_is_ended(of_ics: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    program = of_ics.write("python", "#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    of_ics.write("w.ics", ICS + "\n")
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr(calendars, "MOST_SECONDS", 0.2)
    nodes, (told,) = of_ics.read()
    assert nodes == {"lab-dev": 10} and "takes more than 0.2 seconds to play" in told


def test_what_is_too_much_for_the_record_is_not_kept(
    of_ics: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_force, "_MOST_KEPT", len(ICS))
    of_ics.write("w.ics", ICS + "\n")
    nodes, (told,) = of_ics.read()
    assert nodes == {"lab-dev": 10} and "KiB about events; leave out some" in told


def test_a_thousand_windows_fit_into_the_record(of_ics: Place) -> None:
    """As people write them: a summary, a zone, pods and what they ask for."""
    series = [
        f"BEGIN:VEVENT\nUID:{number}\nSUMMARY:Workshop of the institute {number} (dev)\n"
        "DTSTART;TZID=America/Indiana/Indianapolis:20261101T090000\n"
        "DTEND;TZID=America/Indiana/Indianapolis:20261101T170000\nRRULE:FREQ=DAILY\n"
        "DESCRIPTION:pods = 75\\ncpu = 4\\nmemory = 16Gi\nEND:VEVENT\n"
        for number in range(32)
    ]
    whole = "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n" + "".join(series) + "END:VCALENDAR\n"
    of_ics.write("w.ics", whole)
    registry = read_calendars(of_ics.config, Registry(), AT)
    assert len(known_events(of_ics.config, registry)) == 1_000
    assert list_troubles(of_ics.config, registry) == ()


def test_a_named_pipe_holds_nobody_up(of_ics: Place) -> None:
    path = of_ics.directory / "w.ics"
    path.unlink()
    os.mkfifo(path)
    nodes, (told,) = of_ics.read()
    assert nodes == {"lab-dev": 10} and "no regular file" in told
