"""Tests of calendar files: dnm reads changed ones, and keeps the events of unreadable ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.calendar import in_force
from dnm.calendar.in_force import list_troubles
from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.plan.rules.event_windows import usable_events
from dnm.run import calendars
from dnm.run.calendars import read_calendars
from tests.builders import a_config

EVENT = "[event:{0}]\nnamespace = dev\nfrom = 2026-12-02 09:00\nuntil = 17:00\nnodes = {1}\n"


class Place:
    """A directory with calendar files, and a registry that records the events in them."""

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

    def read(self) -> tuple[dict[str, int], tuple[str, ...]]:
        """Reads the files as a run does. Returns event -> nodes, and messages about faults."""
        self.registry = read_calendars(self.config, self.registry)
        assert read_calendars(self.config, self.registry) == self.registry  # steady state
        nodes = {event.name: event.nodes for event in usable_events(self.config, self.registry)}
        return nodes, list_troubles(self.config, self.registry)


@pytest.fixture
def of_files(tmp_path: Path) -> Place:
    place = Place(tmp_path, events_dir=tmp_path / "events.d")
    place.write("events.d/a.ini", EVENT.format("a", 1))
    place.write("events.d/b.ini", EVENT.format("b", 2) + EVENT.format("c", 3))
    place.write("events.d/b.ini~", EVENT.format("d", 9))
    assert place.read() == ({"a": 1, "b": 2, "c": 3}, ())
    return place


# name, content (None: the file is removed) -> the nodes of each event, and the report
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
        "b.ini: [settings]: is not a section [event:NAME]"),
    "a header without its end": (
        "b.ini", EVENT.format("b", 7) + EVENT.format("c", 9).replace("]", ""),
        {"a": 1, "b": 7, "c": 3},
        "'[event:c' is not a section; write [event:NAME] where the line begins"),
    "a header that is mistyped": (
        "b.ini", EVENT.format("b", 7) + EVENT.format("c", 9).replace("event", "evnt"),
        {"a": 1, "b": 7, "c": 3}, "[evnt:c]: is not a section [event:NAME]"),
    "no header": (
        "b.ini", "nodes = 7\n" + EVENT.format("b", 7), {"a": 1, "b": 7, "c": 3},
        "line 1: 'nodes' is outside the sections"),
    "too large": ("b.ini", b"#" * 2**19, {"a": 1, "b": 2, "c": 3}, "is larger than"),
}  # fmt: skip


def test_named_pipe_does_not_block_reading_of_calendars(of_files: Place) -> None:
    path = of_files.config.events_dir / "b.ini"  # type: ignore[operator]
    path.unlink()
    os.mkfifo(path)
    nodes, (trouble,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3} and "not a regular file" in trouble


def test_event_file_larger_than_the_registry_bound_keeps_its_previous_events(
    of_files: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_force, "_MOST_KEPT", 1000)
    of_files.write("events.d/a.ini", "".join(EVENT.format(name, 5) for name in "adefghij"))
    nodes, (trouble,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3} and "KiB of events; remove some" in trouble


def test_events_dir_that_is_a_file_is_reported(tmp_path: Path) -> None:
    place = Place(tmp_path, events_dir=tmp_path / "events.ini")
    place.write("events.ini", EVENT.format("a", 1))
    assert place.read() == (
        {},
        (
            f"calendar = {tmp_path}/events.ini: can't be read: Not a directory; correct the path, "
            "or create it",
        ),
    )


@pytest.mark.parametrize(("name", "content", "nodes", "message"), FILES.values(), ids=FILES)
def test_unreadable_event_file_keeps_its_previous_events(
    of_files: Place, name: str, content: str | bytes | None, nodes: dict[str, int], message: str
) -> None:
    path = of_files.config.events_dir / name  # type: ignore[operator]
    path.unlink() if content is None else of_files.write(f"events.d/{name}", content)
    results, troubles = of_files.read()
    assert results == nodes
    assert len(troubles) == bool(message) and message in "".join(troubles)


def test_missing_or_writable_events_dir_keeps_its_previous_events(of_files: Place) -> None:
    directory = of_files.directory / "events.d"
    directory.chmod(0o777)
    nodes, (output,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3} and "chmod go-w" in output
    directory.rename(directory.with_name("elsewhere"))
    nodes, (output,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3} and "No such file or directory" in output
    of_files.config = msgspec.structs.replace(of_files.config, events_dir=None)
    assert of_files.read() == ({}, ())  # no configuration names it now


def test_number_of_event_files_read_is_bounded(
    of_files: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of files beyond the bound stay as they were last read."""
    monkeypatch.setattr(calendars, "_MOST_FILES", 2)
    of_files.write("events.d/a2.ini", EVENT.format("d", 4))
    nodes, (output,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert "has 3 files .ini; 2 are read at most, not b.ini and later ones" in output


def test_event_file_name_that_is_not_utf8_is_reported_and_skipped(of_files: Place) -> None:
    """The file name has a Latin-1 umlaut, which the registry's JSON cannot store."""
    malformed = os.fsencode(of_files.config.events_dir or "") + b"/caf\xe9.ini"
    Path(os.fsdecode(malformed)).write_text(EVENT.format("x", 9))
    nodes, (output,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3}
    assert output.endswith("the file name caf\ufffd.ini is not UTF-8: rename it to be read")


def test_size_of_event_text_read_is_bounded(
    of_files: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendars, "_MOST_TEXT", 100)
    of_files.write("events.d/b.ini", EVENT.format("b", 7) + EVENT.format("c", 8))
    nodes, (output,) = of_files.read()
    assert nodes == {"a": 1, "b": 2, "c": 3} and "are read at most, of all files" in output
