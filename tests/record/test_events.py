"""Tests of which Kubernetes Events dnm makes of history lines and of waiting pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dnm.model.cluster import KubeEvent
from dnm.model.history import SCHEMA, HistoryLine, Memory
from dnm.model.plan import WaitingPods
from dnm.record.events import LONGEST_NOTE, list_events, mark_new_kinds
from tests.builders import NOW, QUEUE

UIDS = {"a001": "u1"}


def line(kind: str, event: str, name: str = "a001", **fields: Any) -> HistoryLine:
    return HistoryLine(
        schema=SCHEMA, number=1, time=NOW, run="r", instance="prod", kind=kind, event=event,
        object=name, **{"queue": QUEUE, "reason": "why", **fields},
    )  # fmt: skip


def waiting(kind: str = "k1", **fields: Any) -> WaitingPods:
    values = {"queue": QUEUE, "namespace": "dev", "name": f"{kind}-0", "uid": f"uid-{kind}"}
    return WaitingPods(kind=kind, count=3, sentence="a cap is reached", **{**values, **fields})


def reasons(events: list[KubeEvent]) -> list[tuple[str, str, bool]]:
    return [(event.name, event.reason, event.is_warning) for event in events]


OF_NODES = [
    ("lent", "NodeLent", False),
    ("joined", "NodeServing", False),
    ("emptying", "NodeFenced", False),
    ("returned", "NodeReturned", False),
    ("return-failed", "NodeReturnFailed", True),
    ("failed-again", "NodeFailed", True),
]


@pytest.mark.parametrize(("event", "reason", "is_warning"), OF_NODES)
def test_node_transition_creates_an_event_on_the_node(
    event: str, reason: str, is_warning: bool
) -> None:
    (kube_event,) = list_events([line("node", event)], (), UIDS, NOW)
    assert reasons([kube_event]) == [("a001", reason, is_warning)]
    assert (kube_event.kind, kube_event.namespace, kube_event.uid, kube_event.time) == (
        "Node",
        "",
        "u1",
        NOW,
    )
    assert QUEUE in kube_event.note and kube_event.note.endswith(": why")


def test_event_without_a_reason_ends_with_its_queue() -> None:
    (kube_event,) = list_events([line("node", "lent", reason="")], (), UIDS, NOW)
    assert kube_event.note == f"lent for queue {QUEUE}"


NOTHING = [
    pytest.param(line("node", "lent", "a002"), id="its-node-is-not-there"),
    pytest.param(line("node", "forgotten"), id="a-person-knows"),
    pytest.param(line("verb", "hold"), id="verb"),
    pytest.param(line("limit", "changed", QUEUE), id="limit"),
    pytest.param(line("queue", "wait", QUEUE), id="a-decision-without-waiting-pods"),
]


@pytest.mark.parametrize("line_without_event", NOTHING)
def test_some_history_lines_create_no_event(line_without_event: HistoryLine) -> None:
    assert list_events([line_without_event], (), UIDS, NOW) == []


def test_waiting_pods_get_an_event_per_kind_and_per_new_decision() -> None:
    memory, first = mark_new_kinds(Memory(), [waiting("k1"), waiting("k2")], NOW)
    assert reasons(list_events([], first, {}, NOW)) == [
        ("k1-0", "NoNodeLent", False), ("k2-0", "NoNodeLent", False),
    ]  # fmt: skip
    memory, again = mark_new_kinds(
        memory, [waiting("k1"), waiting("k2")], NOW + timedelta(minutes=1)
    )
    assert list_events([], again, {}, NOW) == []
    verdict = [line("queue", "wait", QUEUE)]
    assert reasons(list_events(verdict, again, {}, NOW)) == [("k1-0", "NoNodeLent", False)]
    both = mark_new_kinds(memory, [waiting("k1"), waiting("k3")], NOW)[1]
    assert [event.name for event in list_events(verdict, both, {}, NOW)] == ["k1-0", "k3-0"]


@pytest.mark.parametrize(("days", "is_new"), [(6, False), (8, True)])
def test_returning_pod_kind_gets_a_new_event_after_a_week(days: int, is_new: bool) -> None:
    memory, _ = mark_new_kinds(Memory(), [waiting()], NOW)
    later = NOW + timedelta(days=days)
    memory, _ = mark_new_kinds(memory, [], later)
    assert mark_new_kinds(memory, [waiting()], later)[1][0].is_new is is_new


def test_lasting_pod_kind_gets_a_single_event_and_memory_is_bounded() -> None:
    memory, _ = mark_new_kinds(Memory(), [waiting()], NOW)
    memory, marked = mark_new_kinds(memory, [waiting()], NOW + timedelta(days=9))
    assert not marked[0].is_new
    many = [waiting(f"k{number}") for number in range(900)]
    assert len(mark_new_kinds(memory, many, NOW)[0].waiting) == 500


def test_event_note_is_a_single_line_of_bounded_size() -> None:
    (kube_event,) = list_events([line("node", "failed", reason="ä\n\x1b[31m" * 900)], (), UIDS, NOW)
    assert len(kube_event.note.encode()) <= LONGEST_NOTE and kube_event.note.isprintable()
    (pod,) = list_events([], [waiting(is_new=True)], {}, NOW)
    assert pod.note == (
        f"no node is lent for queue {QUEUE}: a cap is reached (3 equal pods waiting)"
    )
