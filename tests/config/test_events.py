"""Tests of the events of a configuration, which name its namespaces and node types."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from dnm.config.events import EVENT_KEYS, parse_events_alone, read_event
from dnm.config.files import MOST_EVENTS
from dnm.config.load import load_config
from dnm.model.calendar import CalendarEvent
from dnm.model.config import Config
from dnm.model.errors import ConfigError

EVENT = "[event:w]\nnamespace = dev\nfrom = 2026-12-01 09:00\nuntil = 17:00\n"
SITE = "[settings]\nmonitored_namespaces = dev\nnamespace_queue_paths = q.json\n"


def load_all(tmp_path: Path, text: str) -> Config:
    (tmp_path / "q.json").write_text('{"dev": "root.dev"}')
    (tmp_path / "dnm.ini").write_text(SITE + text)
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    return load_config(tmp_path / "dnm.ini", {})


def load(tmp_path: Path, text: str) -> tuple[CalendarEvent, ...]:
    return load_all(tmp_path, text).calendar_events


def test_event_has_the_time_zone_of_the_site(tmp_path: Path) -> None:
    events = load(tmp_path, f"events_zone = Europe/Berlin\n{EVENT}nodes = 2\n")
    assert [(event.name, event.nodes, event.zone) for event in events] == [
        ("w", 2, "Europe/Berlin")
    ]


# text of the file -> readable events, and the errors of the others
WRONG: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "another namespace": (
        EVENT.replace("dev", "test") + "nodes = 1\n",
        [],
        {"w": "[event:w] namespace = test: is not a monitored namespace"},
    ),
    "pods for no node": (
        EVENT + "pods = 3\ncpu = 200\n",
        [],
        {"w": "[event:w] pods = 3: one of them fits no node type of dev (a)"},
    ),
    "no name": ("[event:]\n", [], {"": "[event:]: has no name; write [event:NAME]"}),
    "no colon": ("[event]\n", [], {"": "[event]: has no name; write [event:NAME]"}),
    "no line of an ini": (
        EVENT + "nodes = 1\nwhat is this\n",
        [],
        {"w": "line 9: 'what …' is neither"},
    ),
    "a key twice": (EVENT + "nodes = 1\nnodes = 2\n", [], {"w": "line 9: the key nodes is twice"}),
    "a section twice": (
        EVENT + "nodes = 1\n" + EVENT,
        [],
        {"w": "line 9: section [event:w] exists twice"},
    ),
    "a name twice": (
        EVENT + "nodes = 1\n" + EVENT.replace("event:w", "event: w") + "nodes = 2\n",
        [],
        {"w": "[event: w]: another section has this name"},
    ),
    "more keys twice than are looked for": (
        EVENT + "nodes = 1\n" * 30,
        [],
        {"w": "line 9: the key nodes is twice"},
    ),
    "a header without its end": (
        "[event:w\nnodes = 1\n",
        [],
        {"w": "'[event:w' is not a section; write [event:NAME] where"},
    ),
    "a header that is indented": (
        " [event:w]\nnodes = 1\n",
        [],
        {"w": "' [event:w]' is not a section"},
    ),
    "a header in capitals": ("[Event: w]\nnodes = 1\n", [], {"w": "'[Event: w]' is not a section"}),
    "more lines than an event has": (
        EVENT + "x = 1\n" * 1_000,
        [],
        {"w": "[event:w]: has more than 1000 lines"},
    ),
    "a reference to nothing": (EVENT + "nodes = %(x)s\n", [], {"w": "refers to another key"}),
    "one beside others": (
        EVENT + "nodes = none\n" + EVENT.replace(":w", ":v") + "nodes = 2\n",
        ["v"],
        {"w": "[event:w] nodes = none: is not a whole number"},
    ),
}


@pytest.mark.parametrize(("text", "names", "expected"), WRONG.values(), ids=WRONG)
def test_malformed_event_is_reported_and_stops_nothing(
    tmp_path: Path, text: str, names: list[str], expected: dict[str, str]
) -> None:
    config = load_all(tmp_path, text + "[namespace:dev]\nmax_nodes = 3\n")
    assert [calendar_event.name for calendar_event in config.calendar_events] == names
    assert config.unread_events.keys() == expected.keys()
    for name, sentence in expected.items():
        assert any(sentence in text for text in config.unread_events[name])
    assert config.namespaces["dev"].max_nodes == 3


def test_malformed_events_zone_stops_the_reading(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="events_zone = Mars: is not a time zone"):
        load(tmp_path, "events_zone = Mars\n")


def test_number_of_events_is_bounded(tmp_path: Path) -> None:
    many = "".join(EVENT.replace(":w", f":w{n}") + "nodes = 1\n" for n in range(MOST_EVENTS + 1))
    config = load_all(tmp_path, many)
    assert len(config.calendar_events) == MOST_EVENTS
    assert config.unread_events == {
        "": ("has 1001 sections [event:NAME]; 1000 are read at most",),
    }


def many_keys(count: int) -> str:
    return "[event:a]\n" + "".join(f"k{n} = 1\n" for n in range(count))


def sections(count: int) -> str:
    return "".join(f"[event:e{n}]\nnodes = 1\n" for n in range(count))


def calls_for(text: str) -> int:
    """Returns how many functions are called to parse this text of events."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        parse_events_alone(text)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(("file", "most"), [(many_keys, 900), (sections, 900), (sections, 9000)])
def test_reading_time_grows_linearly_with_events(file: Callable[[int], str], most: int) -> None:
    """Every run reads the events, so that their number must not slow it down much."""
    assert calls_for(file(most)) < 3.3 * calls_for(file(most // 3))


def test_many_keys_are_read_and_surplus_sections_are_counted() -> None:
    (entry, _), (many, _) = map(parse_events_alone, (many_keys(900), sections(10_000)))
    assert len(entry["event:a"][0]) == 900 and len(many) == 10_000
    assert not many["event:e9999"][0]  # counted, not parsed


def test_each_event_key_has_an_effect() -> None:
    base = {
        "namespace": "dev", "from": "2026-12-01 09:00", "until": "17:00", "pods": "2",
        "weekly": "Tue",
    }  # fmt: skip
    other = {
        "namespace": "two", "from": "2026-12-01 10:00", "until": "18:00",
        "weekly": "Tue,Wed", "last": "2026-12-08", "pods": "3", "cpu": "3", "memory": "3Gi",
        "nodes": "2",
    }  # fmt: skip
    assert other.keys() == EVENT_KEYS.keys()

    def of(entries: dict[str, str]) -> object:
        return read_event("x", "event:x", entries, "UTC", [])

    for key, text in other.items():
        left_out = "pods" if key == "nodes" else ""
        assert of({**{k: v for k, v in base.items() if k != left_out}, key: text}) != of(base), key
