"""Tests of events of the calendar: dnm lends their nodes in time and keeps them until the end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from dnm.calendar.windows import event_error
from dnm.model.calendar import CalendarEvent, KeptCalendar, Window
from dnm.model.lent import Phase
from dnm.model.node_type import NodeType
from dnm.model.observed import LendTimes
from dnm.model.pod import PodShape
from dnm.model.pod_waits import PodWaits
from dnm.model.reason import Reason
from dnm.model.value import Unreadable
from dnm.model.verdict import Verdict
from dnm.plan.rules import event_windows
from dnm.plan.rules.event_windows import lead_of, next_change, projected_at, stay_of
from dnm.plan.rules.events import active_floors
from tests.builders import FENCED, NOW, QUEUE, SIZE, a_batch_node, a_request
from tests.plan.worlds import (
    BIG,
    LONG_AGO,
    SMALL,
    World,
    namespace_policy,
    pods,
    queue_map,
)

MINUTE = timedelta(minutes=1)


def event(begins: datetime = NOW, hours: int = 8, **changes: Any) -> CalendarEvent:
    wall = begins.replace(tzinfo=None)
    values: dict[str, Any] = {
        "name": "workshop", "namespace": "dev", "begins": wall,
        "ends": wall + timedelta(hours=hours),
    }  # fmt: skip
    if "nodes" not in changes:
        values |= {"pods": 75, "request": {"cpu": 4000, "memory": 16 * 10**9}}
    return CalendarEvent(**{**values, **changes})


def world(*events: CalendarEvent, **changes: Any) -> World:
    """Builds a world without pods, with these events, that lends up to four nodes in each run."""
    return World().configured(calendar_events=events, **changes)


def floor(asked: World) -> dict[str, int]:
    """Returns node type -> how many nodes the current events require for the namespace."""
    rows = [dict(node_floor.of_type) for node_floor in active_floors(asked.inputs())]
    return rows[0] if rows else {}


def test_event_of_75_people_needs_as_many_nodes_as_their_pods() -> None:
    asked = world(event())
    assert floor(asked) == {"a": 5}
    verdict = asked.converted().verdicts[QUEUE]
    assert (verdict.verdict, verdict.reason) == (Verdict.CONVERT, Reason.MIN_NODES)
    assert verdict.detail == ("event workshop, 2026-03-02 12:00 to 20:00 UTC; needs 5 of type a")


PERMANENT = {"cpu": 64_000, "memory": 256 * 10**9, "pods": 110}

SIZES: dict[str, tuple[dict[str, Any], tuple[Any, ...], dict[str, int]]] = {
    # 320 GB of the limit fit 20 of the 75 pods, and 16 of these fit on the existing node.
    "what is free is used": ({"pods": 20}, (), {"a": 1}),
    "all of it fits": ({"pods": 16}, (), {}),
    "others use it": ({"pods": 16}, pods(1, namespace="two", node="k2"), {"a": 1}),
    "its own pods are the event's": (
        {"pods": 16},
        pods(1, node="k2", created="2026-03-02T11:29:00Z"),
        {},
    ),
    "but not those that were there before": (
        {"pods": 16},
        pods(1, node="k2", created="2026-03-02T11:28:59Z"),
        {"a": 1},
    ),
    "nor those on a node that is lent": (
        {"pods": 16},
        pods(1, SMALL, node="a001", created="2026-03-02T11:28:59Z"),
        {"a": 1},
    ),
    "those that wait are not counted for it": ({"pods": 16}, pods(1), {}),
    "so many nodes": ({"nodes": 3}, (), {"a": 3}),
}


@pytest.mark.parametrize(("changes", "there", "expected"), SIZES.values(), ids=SIZES)
def test_event_is_sized_beside_running_and_waiting_pods(
    changes: dict[str, Any], there: tuple[Any, ...], expected: Mapping[str, int]
) -> None:
    asked = world(event(**changes)).with_pods(*there)
    asked.node("k2", mark=None, labels={}, allocatable=PERMANENT).lent("a001").node("a001")
    assert floor(asked) == expected


def test_device_in_use_leaves_no_capacity_for_an_event() -> None:
    card = "deviceclass.resource.kubernetes.io/gpu.example"
    wants_card = PodShape(request={"cpu": 32_000, "pods": 1, card: 1})
    asked = world(event(pods=16)).with_pods(*pods(1, wants_card, namespace="two"))
    asked.node("k2", mark=None, labels={}, allocatable=PERMANENT)
    for taken, expected in (({}, {"a": 1}), ({"k2": {card: 1}}, {})):
        asked.with_facts(waits=PodWaits(offered={"k2": {card: 1}}, taken=taken))
        assert floor(asked) == expected


FAR = datetime(9999, 12, 31, 22, tzinfo=NOW.tzinfo)
OF_NO_USE = {
    "a zone that this host does not know": event(zone="Mars/Phobos", nodes=3),
    "a zone that is the host's": event(zone="localtime", nodes=3),
    "too far away": event(FAR, hours=1, zone="America/Indiana/Indianapolis", nodes=3),
    "too long ago": event(datetime(1, 1, 1, tzinfo=NOW.tzinfo), zone="Asia/Tokyo", nodes=3),
}


@pytest.mark.parametrize("bad", OF_NO_USE.values(), ids=OF_NO_USE)
def test_malformed_event_of_the_registry_is_reported_and_ignored(bad: CalendarEvent) -> None:
    bad = msgspec.structs.replace(bad, name="bad")
    asked = world(event(nodes=2)).recorded(events={"bad": bad})
    asked.lent("a001", Phase.RETURNING)
    asked.batch["a001"] = a_batch_node("a001")
    assert floor(asked) == {"a": 2}
    assert [node.reason for node in asked.plan().nodes] == [Reason.RETURNED]
    why = event_error(asked.config, bad)
    assert why and f"dnm event: [event:bad] {why}" in asked.plan().notes


PLACES: dict[str, tuple[str, str, bool]] = {
    "two files": ("a.ini", "b.ini", True),
    "a file and the configuration": ("", "b.ini", True),
    "one file": ("b.ini", "b.ini", False),
}


@pytest.mark.parametrize(("first", "second", "is_reported"), PLACES.values(), ids=PLACES)
def test_event_name_in_two_places_is_reported(first: str, second: str, is_reported: bool) -> None:
    kept = KeptCalendar(events=(event(nodes=3, source=second),))
    asked = world(event(nodes=2, source=first)).recorded(calendars={second: kept})
    lines = [note for note in asked.plan().notes if "rename one" in note]
    assert len(lines) == is_reported and all(
        note.startswith("b.ini: [event:workshop]") for note in lines
    )
    assert floor(asked) == {"a": 2}


def test_events_of_a_queue_add_up() -> None:
    both = world(event(pods=32), event(pods=33, name="other"))
    assert floor(both) == {"a": 5}  # 65 pods at 16 a node, and no node is free
    assert floor(world(event(nodes=2), event(nodes=1, name="other"))) == {"a": 3}


def test_event_beyond_the_bound_of_pods_is_left_out_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_windows, "MOST_PODS", 100)
    later = event(NOW + MINUTE, pods=30, name="later")
    asked = world(event(), later, event(NOW + 2 * MINUTE, pods=25, name="last"))
    assert [window.event.name for window in floors_of(asked)] == ["workshop", "last"]
    (note,) = asked.plan().notes
    assert note.startswith("event later is left out: with the events that begin before it there")


def floors_of(asked: World) -> tuple[Window, ...]:
    return projected_at(asked.config, asked.registry, NOW).lend


def test_event_windows_beyond_the_bound_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_windows, "MOST_WINDOWS", 1)
    (note,) = world(event(nodes=1)).plan().notes
    assert note.startswith("events have 1 windows or more in 8 days")


def test_unreadable_event_is_reported_once_and_keeps_its_previous_nodes() -> None:
    """The unreadable event keeps the number of nodes that dnm read last; only a past one ends."""
    asked = world().recorded(calendars={"/nonexistent/dnm.ini": KeptCalendar(
        events=(event(nodes=1, name="w"), event(NOW - timedelta(days=1), nodes=1, name="v")),
        troubles=("[event:w] nodes = x: is no number",),
    )}).configured(unread_events={"w": ("[event:w] nodes = x: is no number",)})  # fmt: skip
    assert floor(asked) == {"a": 1}
    asked.lent("a001", Phase.RETURNING)
    asked.batch["a001"] = a_batch_node("a001")
    plan = asked.plan()
    assert [node.reason for node in plan.nodes] == [Reason.RETURNED]
    assert plan.errors == ("/nonexistent/dnm.ini: [event:w] nodes = x: is no number",)
    assert plan.needs_person and not plan.notes


def test_event_sized_by_its_pods_waits_for_a_readable_list_of_pods() -> None:
    """An event with `pods` needs fewer nodes if present ones are free, which pods decide."""
    asked = world(event())
    assert floor(asked) == {"a": 5}
    unread = Unreadable(subject="pods", error="pods: 403 Forbidden")
    asked.set(pods=unread)
    assert floor(asked) == {}
    plan = asked.plan()
    assert not plan.actions and plan.errors == (unread.error,)


def test_same_event_in_two_places_counts_once() -> None:
    asked = world(event(nodes=2), event(nodes=2, source="workshops.ini"))
    assert floor(asked) == {"a": 2}


def test_larger_next_occurrence_gets_its_nodes_in_time() -> None:
    """Two events have one name. dnm lends for the larger second one while the first still runs."""
    first = event(NOW - 50 * MINUTE, hours=1, pods=10)
    second = event(NOW + 10 * MINUTE, pods=75)
    assert floor(world(first, second)) == floor(world(second)) == {"a": 5}
    assert floor(world(first)) == {"a": 1}


def test_event_with_gpu_requests_gets_gpu_nodes() -> None:
    gpus = {**SIZE, "nvidia.com/gpu": 4}
    asked = world(event(pods=6, request={"cpu": 4000, "memory": 16 * 10**9, "nvidia.com/gpu": 1}))
    types = {**asked.config.node_types, "g": NodeType(name="g", size=gpus)}
    asked.configured(
        node_types=types, namespaces=namespace_policy(asked.config, node_types=("a", "g"))
    )
    asked.batch |= {name: a_batch_node(name) for name in ("g1", "g2")}
    assert floor(asked) == {"g": 2}
    (request,) = asked.converted().requests
    assert (request.node_type, request.count) == ("g", 2)


# --- when --------------------------------------------------------------------------------------

LENDS = tuple(range(300, 700, 10))  # seconds; the 38th of the 40 is 670

WHEN: dict[str, tuple[timedelta, tuple[int, ...], dict[str, int]]] = {
    # Five nodes take two runs, a minute apart, and the requesting run may be a minute late.
    "before ten lends, in time": (31 * MINUTE, LENDS[:9], {"a": 5}),
    "before ten lends, too early": (31 * MINUTE + timedelta(seconds=1), LENDS[:9], {}),
    "learned, in time": (timedelta(seconds=670 + 60), LENDS, {"a": 5}),
    "learned, too early": (timedelta(seconds=670 + 61), LENDS, {}),
    "begun": (-timedelta(hours=7), (), {"a": 5}),
    "at its end": (-timedelta(hours=8), (), {}),
}


@pytest.mark.parametrize(("ahead", "lends", "expected"), WHEN.values(), ids=WHEN)
def test_lending_for_an_event_begins_by_the_learned_lead_time(
    ahead: timedelta, lends: tuple[int, ...], expected: Mapping[str, int]
) -> None:
    asked = world(event(NOW + ahead)).recorded(lend_times={"a": LendTimes(lends=lends)})
    assert floor(asked) == expected


def test_node_needed_by_an_event_is_not_returned_shortly_before() -> None:
    """A return and a new lend would take longer than the time until the event."""
    for ahead, reason in ((61 * MINUTE, Reason.KEPT_READY), (62 * MINUTE, Reason.IDLE_LONG_ENOUGH)):
        asked = world(event(NOW + ahead, nodes=5), headroom=1.0)
        asked.lent("a001", idle_since=LONG_AGO, was_used=True).node("a001")
        assert [node.reason for node in asked.plan().nodes] == [reason]
        assert not asked.converted().requests


def test_nodes_lent_for_an_event_stay_if_the_learned_lead_shrinks() -> None:
    """dnm lent them 30 minutes ahead, the default. Measured lends then made that time shorter."""
    learned = {"a": LendTimes(lends=(60,) * 40, returns=(60,) * 40)}
    asked = world(event(NOW + 29 * MINUTE, nodes=2), headroom=1.0).recorded(lend_times=learned)
    asked.lent("a001", asked_at=NOW - MINUTE, idle_since=LONG_AGO, was_used=True).node("a001")
    asked.lent("a002", asked_at=LONG_AGO, idle_since=LONG_AGO, was_used=True).node("a002")
    plan = asked.plan()
    assert [node.reason for node in plan.nodes] == [Reason.KEPT_READY] * 2
    assert not asked.converted().requests  # too early for more
    asked.recorded(nodes={"a002": asked.registry.nodes["a002"]})
    assert [node.reason for node in asked.plan().nodes] == [Reason.IDLE_LONG_ENOUGH]


def test_reapplied_queue_document_requests_no_further_node() -> None:
    """The new document's limits omit the lent node, but the node still counts for the event."""
    asked = world(event(pods=32)).node("k2", mark=None, labels={}, allocatable=PERMANENT)
    asked.lent("a001").node("a001")
    as_recorded = floor(asked)
    assert as_recorded == {"a": 1}
    asked.set(maps=(queue_map(), None))  # at the baseline, without the ledger
    assert floor(asked) == as_recorded
    lent = {name: dict(entry.counted) for name, entry in asked.registry.nodes.items()}
    counted = queue_map(lent)
    plain = msgspec.structs.replace(counted, data=queue_map().data)  # keeps the ledger
    asked.set(maps=(plain, None))
    assert floor(asked) == as_recorded


def test_coming_event_lifts_a_fence() -> None:
    asked = world(event(NOW + 40 * MINUTE, nodes=1))
    asked.lent("a001", Phase.RELEASING, was_used=True).node("a001", is_cordoned=True, mark=FENCED)
    assert asked.plan().nodes[0].reason is Reason.DEMAND_RETURNED


def test_event_with_its_nodes_causes_no_action() -> None:
    asked = world(event(nodes=1)).lent("a001", idle_since=LONG_AGO).node("a001")
    plan = asked.plan()
    assert not plan.actions and plan.nodes[0].reason is Reason.KEPT_READY
    asked = world(event(nodes=2)).recorded(requests=(a_request(count=2),))
    assert not asked.converted().requests


# A node that has served before the end of an event, and that no pod used.
UNUSED_NODES = {
    "an event that is over": (LONG_AGO, event(NOW - timedelta(hours=9)), -1),
    "one before the node came": (LONG_AGO, event(NOW - timedelta(hours=20)), 0),
    "another namespace's": (LONG_AGO, event(NOW - timedelta(hours=9), namespace="other"), 0),
    "none": (LONG_AGO, None, 0),
}


@pytest.mark.parametrize(("since", "past", "unused"), UNUSED_NODES.values(), ids=UNUSED_NODES)
def test_unused_nodes_of_an_event_do_not_trip_the_breaker(
    since: datetime, past: CalendarEvent | None, unused: int
) -> None:
    asked = world(*filter(None, [past]), headroom=1.0)
    asked.lent("a001", since=since, idle_since=since).node("a001")
    after = asked.plan()
    assert [node.reason for node in after.nodes] == [Reason.IDLE_LONG_ENOUGH]
    breaker = after.registry.breakers.get(QUEUE)
    assert (breaker.unused if breaker else 0) == unused


def test_event_respects_caps_and_demand_may_exceed_the_event() -> None:
    capped = world(event(), namespaces=namespace_policy(World().config, max_nodes=2))
    assert sum(request.count for request in capped.converted().requests) == 2
    above = world(event(nodes=1)).with_pods(*pods(3, BIG))
    assert sum(request.count for request in above.converted().requests) == 3


def test_projected_floors_change_at_event_boundaries() -> None:
    asked = world(event(NOW + timedelta(hours=5), nodes=1))
    config, registry = asked.config, asked.registry
    facts = (config, registry, asked.config.calendar_events[0])
    begins = NOW + timedelta(hours=5)
    moments = (begins - stay_of(*facts), begins - lead_of(*facts), NOW + timedelta(hours=13))
    at: datetime | None = NOW
    for moment in moments:
        assert at is not None
        before = projected_at(config, registry, at)
        at = next_change(config, registry, at)
        assert at == moment and projected_at(config, registry, at) != before
    assert at is not None and next_change(config, registry, at) is None


def test_event_of_an_unmonitored_namespace_is_ignored() -> None:
    asked = world(event(namespace="gone"))
    assert not floor(asked) and next_change(asked.config, asked.registry, NOW) is None


def test_projection_to_a_later_moment_counts_its_events() -> None:
    asked = world(event(NOW + timedelta(days=3), nodes=2))
    assert not floor(asked)
    assert floor(asked.with_facts(events_at=NOW + timedelta(days=3))) == {"a": 2}
