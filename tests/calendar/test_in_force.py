"""Tests of the recorded events: an unreadable one keeps its times, a removed one is forgotten."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from dnm.calendar.in_force import keep_calendar, list_events, list_troubles, with_calendars
from dnm.model.calendar import CalendarEvent, CalendarReading, KeptCalendar
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from tests.builders import a_config


def event(name: str, nodes: int = 1) -> CalendarEvent:
    begins, ends = datetime(2026, 12, 1, 9), datetime(2026, 12, 1, 17)
    return CalendarEvent(name=name, namespace="dev", begins=begins, ends=ends, nodes=nodes)


BEFORE = KeptCalendar(events=(event("a"), event("b")))

READ: dict[str, tuple[CalendarReading | Unreadable, dict[str, int], tuple[str, ...]]] = {
    "all as it was": (CalendarReading(events=BEFORE.events), {"a": 1, "b": 1}, ()),
    "one changed, one gone": (CalendarReading(events=(event("a", 3),)), {"a": 3}, ()),
    "one can't be read": (
        CalendarReading(events=(event("a", 3),), unread={"b": ("why", "and why")}),
        {"a": 3, "b": 1},
        ("why", "and why"),
    ),
    "one never could": (CalendarReading(unread={"c": ("why",)}), {}, ("why",)),
    "none can be read": (Unreadable(subject="x", error="why"), {"a": 1, "b": 1}, ("why",)),
    "there are none": (CalendarReading(), {}, ()),
}


@pytest.mark.parametrize(("read", "nodes", "troubles"), READ.values(), ids=READ)
def test_unreadable_event_keeps_its_previous_state(
    read: CalendarReading | Unreadable, nodes: dict[str, int], troubles: tuple[str, ...]
) -> None:
    kept = keep_calendar(BEFORE, read)
    assert {item.name: item.nodes for item in kept.events} == nodes and kept.troubles == troubles
    assert keep_calendar(kept, read) == kept  # and nothing changes


def test_configuration_is_a_calendar_too(tmp_path: Path) -> None:
    config = a_config(tmp_path, calendar_events=(event("a"), event("b")))
    registry = with_calendars(config, Registry(), {})
    assert [item.name for item in list_events(config, registry)] == ["a", "b"]
    bad = msgspec.structs.replace(
        config, calendar_events=(event("a"),), unread_events={"b": ("why",)}
    )
    kept = with_calendars(bad, registry, {})
    for facts in (registry, kept, with_calendars(bad, kept, {})):
        assert [item.name for item in list_events(bad, facts)] == ["a", "b"]
    assert list_troubles(bad, kept) == (f"{config.path}: why",)
    removed = msgspec.structs.replace(config, calendar_events=())
    assert with_calendars(removed, kept, {}) == Registry()


def test_calendar_removed_from_the_configuration_loses_its_events(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    registry = with_calendars(config, Registry(), {"w.ini": BEFORE})
    assert len(list_events(config, registry)) == 2
    assert not list_events(config, with_calendars(config, registry, {}))


LONG = "w" * 1024
TOO_MUCH: dict[str, tuple[CalendarEvent, dict[str, tuple[str, ...]]]] = {
    "sentences": (event("a"), {"b": (LONG,) * 600}),
    "events": (msgspec.structs.replace(event("a"), source=LONG * 600), {"b": ("why",)}),
}


@pytest.mark.parametrize(("a", "unread"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_recorded_events_of_the_configuration_are_bounded(
    tmp_path: Path, a: CalendarEvent, unread: dict[str, tuple[str, ...]]
) -> None:
    """If too many events are configured, the previously recorded ones stay, with one error."""
    config = a_config(tmp_path, calendar_events=BEFORE.events)
    before = with_calendars(config, Registry(), {})
    long = msgspec.structs.replace(config, calendar_events=(a,), unread_events=unread)
    kept = with_calendars(long, before, {})
    assert len(msgspec.json.encode(kept)) < 2**19 and kept == with_calendars(long, kept, {})
    assert [item.name for item in list_events(long, kept)] == ["a", "b"]
    (why,) = list_troubles(long, kept)
    assert why.startswith(f"{config.path}: has more than 512 KiB of events")
    assert with_calendars(config, kept, {}) == before and not list_troubles(config, before)
