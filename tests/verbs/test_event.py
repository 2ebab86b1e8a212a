"""Tests of the changes that `dnm event add` and `dnm event remove` make."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dnm.config.files import MOST_EVENTS
from dnm.model.calendar import CalendarEvent
from dnm.model.registry import Registry
from dnm.verbs.event import add_event, remove_event
from tests.builders import NOW, a_config
from tests.verbs import sentence

BEGINS = (NOW + timedelta(days=2)).replace(tzinfo=None)
EVENT = CalendarEvent(
    name="stars", namespace="dev", begins=BEGINS, ends=BEGINS + timedelta(hours=8), nodes=2
)
OVER = {"begins": BEGINS - timedelta(days=9), "ends": BEGINS - timedelta(days=8)}
CONFIG = a_config(calendar_events=(replace(EVENT, name="course"),))
REGISTRY = Registry(events={"old": replace(EVENT, name="old")})
FULL = Registry(events={f"e{n}": replace(EVENT, name=f"e{n}") for n in range(MOST_EVENTS)})


NOT_ADDED: dict[str, tuple[Registry, dict[str, Any], str]] = {
    "of no namespace": (
        REGISTRY,
        {"namespace": "x"},
        "cannot add the event: namespace = x: is not a monitored namespace; name it in "
        "monitored_namespaces, or write one of dev",
    ),
    "over": (
        REGISTRY,
        OVER,
        "cannot add the event: it is over, 2026-02-23 12:00 to 2026-02-24 12:00 UTC; write a "
        "later time",
    ),
    "added already": (
        REGISTRY,
        {"name": "old"},
        "there is an event old already: `dnm event remove old` removes it",
    ),
    "of the configuration": (
        REGISTRY,
        {"name": "course"},
        f"there is an event course in {CONFIG.path} already; choose another name",
    ),
    "one too many": (
        FULL,
        {},
        f"there are {MOST_EVENTS} events already; remove past events",
    ),
}


@pytest.mark.parametrize(("before", "changes", "why"), NOT_ADDED.values(), ids=NOT_ADDED)
def test_invalid_event_is_not_added(before: Registry, changes: dict[str, Any], why: str) -> None:
    assert sentence(add_event(CONFIG, before, replace(EVENT, **changes), NOW)) == why


def test_event_is_added_and_removed() -> None:
    after = add_event(CONFIG, REGISTRY, EVENT, NOW)
    assert isinstance(after, Registry) and after.events == {**REGISTRY.events, "stars": EVENT}
    assert remove_event(CONFIG, after, "stars") == REGISTRY


NOT_REMOVED = {
    "of the configuration": (
        "course",
        f"event course is in {CONFIG.path}: remove it there",
    ),
    "of a file": ("filed", "event filed is in /etc/events.ini: remove it there"),
    "unknown": ("moon", "no event 'moon' was added; added events: old"),
}


@pytest.mark.parametrize(("name", "why"), NOT_REMOVED.values(), ids=NOT_REMOVED)
def test_only_manually_added_events_are_removed(name: str, why: str) -> None:
    filed = replace(EVENT, name="filed", source="/etc/events.ini")
    config = replace(CONFIG, calendar_events=(*CONFIG.calendar_events, filed))
    assert sentence(remove_event(config, REGISTRY, name)) == why
