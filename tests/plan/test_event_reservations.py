"""Tests of reserving nodes in Slurm ahead of events: plans request it, and Slurm refuses some."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dnm.model.batch import BatchNode
from dnm.model.calendar import (
    CalendarEvent,
    KeptCalendar,
    occurrence_name,
    occurrence_of,
)
from dnm.model.config import NamespacePolicy
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.kubelet import KubeletSettings
from dnm.model.observed import LendTimes
from dnm.model.orders import Keeping, Pause
from dnm.model.plan import Plan, ReserveNodes, UnreserveNodes
from dnm.model.share import Floor
from dnm.model.value import Unreadable
from dnm.plan.rules.event_windows import lead_of
from tests.builders import NOW, QUEUE, a_batch_node, a_request
from tests.plan.test_event_floors import event
from tests.plan.worlds import World

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
LENDS = {"a": LendTimes(lends=(60,) * 40, returns=(60,) * 40)}  # gives a lead of two minutes
OTHER_RESERVATIONS = ("dnm-ev-workshop-20260303T1200-000000-a059", "dnm-ev-x", "maintenance")


class Reserving(World):
    """A world with ten machines in Slurm, of which Slurm refuses to reserve those in `taken`."""

    def __init__(self, *events: CalendarEvent, taken: tuple[str, ...] = (), **changes: Any) -> None:
        super().__init__()
        self.configured(calendar_events=events, **{"reserve_ahead": timedelta(days=7), **changes})
        self.recorded(lend_times=LENDS)
        self.batch = {name: _with(row, ()) for name, row in self.batch.items()}
        self.batch["a059"] = a_batch_node("a059", reservations=OTHER_RESERVATIONS)
        self.taken = taken
        self.at = NOW
        self.begins: dict[str, datetime] = {}  # start times of reservations in Slurm
        self.tells_begins = True

    def snapshot(self) -> Any:
        document = self.begins if self.tells_begins else {}
        for name, node in self.batch.items() if isinstance(self.batch, dict) else ():
            begins = {
                reservation: document[reservation]
                for reservation in node.reservations or ()
                if reservation in document
            }
            self.batch[name] = msgspec.structs.replace(node, reservations_begin=begins)
        self.facts = {"can_reserve": True, **self.facts, "taken_at": self.at}
        return super().snapshot()

    def step(self) -> Plan:
        """Plays one run, and applies its reservations to Slurm."""
        plan = self.plan()
        self.registry = msgspec.structs.replace(plan.registry, requests=(), last_conversion=None)
        for action in plan.actions:
            if isinstance(action, ReserveNodes):
                self._reserve(action)
            elif isinstance(action, UnreserveNodes):
                self._unreserve(action)
        return plan

    def _reserve(self, action: ReserveNodes) -> None:
        wanted = action.reservation
        assert wanted.begins > self.at and wanted.ends > wanted.begins
        left = wanted.count
        held = [name for name in sorted(self.batch) if f"{wanted.name}-{name}" in self.begins]
        for name in (*held, *sorted(self.batch.keys() - held)):
            if not left or name in (*self.taken, *expand_hostlist(wanted.leave_out)):
                continue
            reservation, node = f"{wanted.name}-{name}", self.batch[name]
            if name in held and self.begins[reservation] <= wanted.begins + 5 * MINUTE:
                continue
            if name not in held and node.reservations:
                continue  # in this test all events overlap
            self.batch[name] = _with(node, (reservation,))
            self.begins[reservation] = wanted.begins
            left -= 1

    def _unreserve(self, action: UnreserveNodes) -> None:
        kept = expand_hostlist(action.leave_out)
        for name, node in self.batch.items():
            own = tuple(
                reservation for reservation in node.reservations or ()
                if occurrence_of(reservation, name, "prod") != action.name or name in kept
            )  # fmt: skip
            for removed in set(node.reservations or ()) - set(own):
                self.begins.pop(removed, None)
            self.batch[name] = _with(node, own)

    def reserved(self, calendar_event: CalendarEvent) -> int:
        name = occurrence_name(
            calendar_event.name, calendar_event.begins.replace(tzinfo=NOW.tzinfo), "prod"
        )
        return sum(f"{name}-{node}" in (row.reservations or ()) for node, row in self.batch.items())


def _with(node: BatchNode, reservations: tuple[str, ...]) -> BatchNode:
    return msgspec.structs.replace(node, reservations=reservations)


def steps(plan: Plan) -> list[str]:
    return [
        type(action).__name__
        for action in plan.actions
        if isinstance(action, ReserveNodes | UnreserveNodes)
    ]


def test_workshop_is_reserved_once_from_lead_time_to_end() -> None:
    workshop = event(NOW + DAY)  # 75 pods of 4 CPUs and 16 GB: 5 empty nodes
    asked = Reserving(workshop)
    (reservation,) = [
        action.reservation for action in asked.step().actions if isinstance(action, ReserveNodes)
    ]
    begins = NOW + DAY - lead_of(asked.config, asked.registry, workshop)
    assert (reservation.count, reservation.node_type, reservation.begins) == (5, "a", begins)
    assert reservation.ends == NOW + DAY + timedelta(hours=8)
    assert asked.reserved(workshop) == 5
    for _ in range(2):
        assert not asked.step().actions


@pytest.mark.parametrize("reports_begins", [True, False], ids=["told", "not-told"])
def test_reservation_that_begins_after_lending_is_replaced(reports_begins: bool) -> None:
    """Lends take longer now, so reservations must begin earlier. A job prevents one of them."""
    workshop = event(NOW + DAY, nodes=3)
    asked = Reserving(workshop)
    asked.tells_begins = reports_begins
    asked.step()
    before = dict(asked.begins)
    asked.taken = ("a050",)
    asked.recorded(lend_times={"a": LendTimes(lends=(300,) * 40, returns=(60,) * 40)})
    assert not steps(asked.step()) and asked.begins == before  # differs by minutes only
    asked.recorded(lend_times={"a": LendTimes(lends=(900,) * 40, returns=(60,) * 40)})
    if not reports_begins:
        assert not steps(asked.step()) and asked.begins == before
        return
    assert steps(asked.step()) == ["ReserveNodes"]
    assert steps(asked.step()) == ["UnreserveNodes"]  # releases the node that was missing before
    begins = NOW + DAY - lead_of(asked.config, asked.registry, workshop)
    assert set(asked.begins.values()) == {begins} and asked.reserved(workshop) == 3
    assert not steps(asked.step())
    asked.at = begins
    asked.recorded(lend_times={"a": LendTimes(lends=(1800,) * 40, returns=(60,) * 40)})
    assert not steps(asked.step())  # lending has begun


CHANGED: dict[str, tuple[CalendarEvent | None, int]] = {
    "it takes more": (event(NOW + DAY, nodes=4), 4),
    "it needs fewer": (event(NOW + DAY, nodes=2), 2),
    "it is gone": (None, 0),
    "it is moved": (event(NOW + 2 * DAY, nodes=3), 3),
    "it is too far ahead": (event(NOW + 8 * DAY, nodes=3), 0),
    "it takes more than may be lent": (event(NOW + DAY, nodes=40), 6),
}


@pytest.mark.parametrize(("after", "count"), CHANGED.values(), ids=CHANGED)
def test_reservations_follow_calendar_changes_and_foreign_reservations_stay(
    after: CalendarEvent | None, count: int
) -> None:
    before = event(NOW + DAY, nodes=3)
    asked = Reserving(before, max_converted_nodes=6)
    asked.step()
    asked.configured(calendar_events=() if after is None else (after,))
    asked.step()
    assert asked.reserved(after or before) == count
    assert asked.batch["a059"].reservations == OTHER_RESERVATIONS
    assert not steps(asked.step())


def test_reservation_short_of_nodes_is_reported_and_retried_after_ten_minutes() -> None:
    late = event(NOW + timedelta(hours=2), nodes=5)
    taken = tuple(f"a{n:03}" for n in range(53, 59))
    asked = Reserving(late, taken=taken)
    assert steps(asked.step()) == ["ReserveNodes"] and asked.reserved(late) == 3
    notes = asked.step().notes
    assert notes[0].startswith("event workshop, 2026-03-02 14:00 UTC: 3 of 5 nodes of type a are")
    assert not steps(asked.step()) and asked.step().notes == notes
    asked.taken, asked.at = (), NOW + timedelta(minutes=10)
    assert steps(asked.step()) == ["ReserveNodes"] and asked.reserved(late) == 5
    assert not steps(asked.step()) and not asked.step().notes


def test_retry_time_of_a_fast_clock_blocks_no_reservation() -> None:
    taken = tuple(f"a{n:03}" for n in range(53, 59))
    asked = Reserving(event(NOW + timedelta(days=3), nodes=5), taken=taken)
    asked.at = NOW + timedelta(days=1)
    while steps(asked.step()):
        pass
    asked.taken, asked.at = (), NOW
    assert steps(asked.step()) == ["ReserveNodes"]


def test_reservation_shrinks_to_lent_nodes_once_the_event_has_them() -> None:
    """Once dnm lends for the event, it reserves no more nodes and releases those not needed."""
    now = event(NOW + MINUTE, nodes=2)
    asked = Reserving(now)
    assert not steps(asked.step())
    name = occurrence_name("workshop", NOW + MINUTE, "prod")
    for node in ("a050", "a051", "a052"):
        asked.batch[node] = _with(asked.batch[node], (f"{name}-{node}",))
    assert not steps(asked.step())  # the event has no node yet
    for node in ("a050", "a051"):
        asked.lent(node).node(node)
    (removed,) = [action for action in asked.step().actions if isinstance(action, UnreserveNodes)]
    assert (removed.name, removed.leave_out) == (name, "a[050-051]") and asked.reserved(now) == 2


def test_excluded_held_and_lent_nodes_are_not_reserved() -> None:
    asked = Reserving(event(NOW + DAY, nodes=2))
    asked.recorded(held=("a050",), excluded={"a051": Keeping(since=NOW)})
    asked.lent("a052").node("a052")
    (reservation,) = [
        action.reservation for action in asked.step().actions if isinstance(action, ReserveNodes)
    ]
    assert expand_hostlist(reservation.leave_out) == ("a050", "a051", "a052")


STOPS = KubeletSettings(memory_manager_policy="Static")  # and no memory to allocate
BOUNDS: dict[str, tuple[dict[str, Any], int]] = {
    "Slurm's floor": ({"batch_floor": Floor(nodes=7)}, 3),
    "a budget of hours": ({"namespaces": {"dev": {"options": {"node_hours_per_week": 2.5}}}}, 2),
    "kubelets that would not start": ({"node_types": {"a": {"kubelet": STOPS}}}, 0),
}


@pytest.mark.parametrize(("key", "count"), BOUNDS.values(), ids=BOUNDS)
def test_nodes_that_a_rule_keeps_from_lending_are_not_reserved(
    key: dict[str, Any], count: int
) -> None:
    """A reservation of a node that dnm may not lend would leave it idle until the event ends."""
    asked = Reserving(event(NOW + DAY, nodes=5))
    for name, value in key.items():
        kept = getattr(asked.config, name)
        if isinstance(value, dict):
            value = {**kept, **{item: _changed(kept[item], new) for item, new in value.items()}}
        asked.configured(**{name: value})
    for _ in range(3):
        plan = asked.step()
        assert asked.reserved(event(NOW + DAY)) == count
    assert not steps(plan)


def _changed(item: Any, new: dict[str, Any]) -> Any:
    return msgspec.structs.replace(item, **new)


QUIET: dict[str, dict[str, Any]] = {
    "paused": {"recorded": {"pause": Pause(since=NOW)}},
    "Slurm can't be asked": {"set": {"batch": Unreadable(subject="x", error="why")}},
    "off": {"configured": {"reserve_ahead": timedelta()}},
}


@pytest.mark.parametrize("changes", QUIET.values(), ids=QUIET)
def test_no_reservation_changes_while_facts_are_missing_or_dnm_is_paused(
    changes: dict[str, dict[str, Any]],
) -> None:
    asked = Reserving(event(NOW + DAY, nodes=2))
    asked.step()
    asked.configured(calendar_events=())
    for verb, values in changes.items():
        getattr(asked, verb)(**values)
    assert not steps(asked.plan())


def test_converter_without_reserve_option_is_reported() -> None:
    plan = Reserving(event(NOW + DAY, nodes=2)).with_facts(can_reserve=False).plan()
    assert "event_reservations: the converter has no option --reserve" in plan.notes
    assert not steps(plan)


def test_released_reservation_is_available_to_another_event_in_the_same_run() -> None:
    """The other event gets the node at once, not by its next try in ten minutes."""
    two = event(NOW + 2 * DAY, name="two", nodes=5)
    asked = Reserving(event(NOW + DAY, name="one", nodes=5), two)
    asked.step()
    assert steps(asked.step()) == ["ReserveNodes"] and not steps(asked.step())  # one is missing
    assert asked.reserved(two) == 4
    asked.configured(calendar_events=(event(NOW + DAY, name="one", nodes=3), two))
    assert steps(asked.step()) == ["UnreserveNodes", "ReserveNodes"] and asked.reserved(two) == 5


def test_node_down_at_event_time_is_replaced_and_lent_node_is_not() -> None:
    workshop = event(NOW + DAY, nodes=2)
    asked = Reserving(workshop)
    asked.step()
    for name in ("a050", "a051"):
        asked.batch[name] = msgspec.structs.replace(asked.batch[name], in_service=False)
    asked.lent("a051").node("a051")
    (reservation,) = [
        action.reservation for action in asked.plan().actions if isinstance(action, ReserveNodes)
    ]
    assert reservation.count == 1


def test_node_list_without_reservations_starts_no_reservation() -> None:
    asked = Reserving(event(NOW + DAY, nodes=3))
    asked.step()
    asked.batch["a050"] = msgspec.structs.replace(asked.batch["a050"], reservations=None)
    plan = asked.step()
    assert (
        "event_reservations: the converter does not report each node's reservations" in plan.notes
    )
    assert not steps(plan)


class Counted(dict[str, BatchNode]):
    """Slurm's nodes, with a count of how often the planner iterates over all of them."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_node_list_is_read_equally_often_for_many_occurrences() -> None:
    looks = []
    for days, count in (((NOW + DAY).weekday(),), 1), (range(7), 6):
        series = msgspec.structs.replace(event(NOW + DAY, nodes=1), weekly=tuple(days))
        asked = Reserving(series)
        asked.batch = Counted(asked.batch)
        assert len(steps(asked.plan())) == count
        looks.append(asked.batch.looks)
    assert looks[0] == looks[1]


EVENTS = st.lists(
    st.builds(
        lambda name, minutes, nodes: event(NOW + minutes * MINUTE, hours=1, name=name, nodes=nodes),
        st.sampled_from(("one", "two")),
        st.sampled_from((5, 60, 300, 2_000)),
        st.integers(1, 7),
    ),
    max_size=3,
    unique_by=lambda build: build.name,
)


# Once, another event got a released node only after ten minutes.
FEWER = [
    ([event(NOW + 2_000 * MINUTE, hours=1, name="one", nodes=3)], {50, 51}, 0),
    (
        [
            event(NOW + 2_000 * MINUTE, hours=1, name="one", nodes=1),
            event(NOW + 300 * MINUTE, hours=1, name="two", nodes=1),
        ],
        {50, 51, 55, 56, 57, 58},
        0,
    ),
]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.sets(st.sampled_from(range(50, 59))), st.integers(0, 90)),
                min_size=1, max_size=5))  # fmt: skip
@example(FEWER)
def test_reservations_equal_calendar_demand_after_any_changes(history: list[Any]) -> None:
    """After any changes, each event has all requested nodes, or all that Slurm can reserve."""
    asked = Reserving()
    for events, taken, minutes in history:
        asked.configured(calendar_events=tuple(events))
        asked.taken = tuple(f"a{number:03}" for number in taken)
        asked.at += minutes * MINUTE + timedelta(minutes=11)
        for _ in range(3):
            asked.step()
        ahead = [
            event for event in events
            if event.begins.replace(tzinfo=NOW.tzinfo) - lead_of(
                asked.config, asked.registry, event)
            > asked.at + MINUTE
        ]  # fmt: skip
        free = [name for name, row in asked.batch.items()
                if name not in asked.taken and not row.reservations]  # fmt: skip
        for item in ahead:
            count = asked.reserved(item)
            assert count == item.nodes or (count < item.nodes and not free)
        facts = {f"dnm-ev-{entry.name}-{entry.begins:%Y%m%dT%H%M}" for entry in events}
        for name, row in asked.batch.items():
            for reservation in row.reservations or ():
                if reserved := occurrence_of(reservation, name, "prod"):
                    assert reserved.rpartition("-")[0] in facts
        assert asked.batch["a059"].reservations == OTHER_RESERVATIONS
        assert not steps(asked.step())


def test_reservation_name_is_distinguished_from_other_reservations() -> None:
    name = occurrence_name("w-1", NOW, "prod")
    assert name.startswith("dnm-ev-w-1-20260302T1200-")
    assert occurrence_of(f"{name}-a001", "a001", "prod") == name
    for reservation, node, instance in (
        (f"{name}-a001", "a002", "prod"),
        (f"{name}-a001", "a001", "lab"),
        (name, "a001", "prod"),
        (f"x{name}-a001", "a001", "prod"),
        ("dnm-ev-w-a001", "a001", "prod"),
    ):
        assert not occurrence_of(reservation, node, instance)


def test_running_requests_keep_their_reserved_nodes() -> None:
    now = event(NOW + MINUTE, nodes=1)
    asked = Reserving(now).recorded(requests=(a_request(),))
    name = occurrence_name("workshop", NOW + MINUTE, "prod")
    asked.batch["a050"] = _with(asked.batch["a050"], (f"{name}-a050",))
    assert not steps(asked.plan())


def test_cap_of_zero_releases_all_reservation() -> None:
    asked = Reserving(item := event(NOW + DAY, nodes=3))
    asked.step()
    assert asked.reserved(item) == 3
    asked.configured(max_converted_nodes=0)
    asked.step()
    assert asked.reserved(item) == 0


@pytest.mark.parametrize(("later", "reserved"), [(4, 1), (24, 5)], ids=["at-once", "afterwards"])
def test_simultaneous_events_share_the_caps(later: int, reserved: int) -> None:
    """Nodes reserved beyond the caps could not be lent and would be idle for the whole event."""
    item, two = event(NOW + DAY), event(NOW + DAY + timedelta(hours=later), name="other")
    asked = Reserving(item, two, max_converted_nodes=6)
    for _ in range(2):
        asked.step()
    assert asked.reserved(item) == 5
    wanted = occurrence_name("other", two.begins.replace(tzinfo=NOW.tzinfo), "prod")
    tried = {name: it.wanted for name, it in asked.registry.reservation_attempts.items()}
    assert asked.reserved(two) == min(reserved, 4) and tried.get(wanted, reserved) == reserved


def test_two_events_with_the_same_name_and_time_are_reported() -> None:
    """dnm names a reservation by event and time, so both events would have the same ones."""
    item, two = event(NOW + DAY, nodes=2), event(NOW + DAY, nodes=3, namespace="two")
    asked = Reserving(item)
    more = NamespacePolicy(name="two", queue=QUEUE, node_types=("a",))
    asked.configured(namespaces={**asked.config.namespaces, "two": more}, calendar_events=())
    files = {f"/e/{name}.ini": of for name, of in (("a", item), ("b", two))}
    asked.recorded(calendars={
        path: KeptCalendar(events=(msgspec.structs.replace(of, source=path),))
        for path, of in files.items()
    })  # fmt: skip
    asked.step()
    assert any("only one of them is reserved in Slurm" in note for note in asked.step().notes)
