"""Tests of fences (dnm's cordons): which nodes dnm fences, unfences, returns, or ignores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dnm.model.departure import Leaving
from dnm.model.lent import Phase
from dnm.model.pod import PodList
from dnm.model.reason import Reason, ReasonText
from dnm.model.verdict import Verdict
from dnm.plan.decision_table import NodeDecision
from tests.builders import FENCED, NOW, a_batch_node
from tests.plan.worlds import LONG_AGO, SMALL, UNREAD, World, fenced, pods, serving


def idle() -> World:
    return serving(idle_since=LONG_AGO)


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        pytest.param(fenced().recorded(held=("a001",)), Reason.HELD, id="held"),
        pytest.param(fenced().with_pods(*pods(1)), Reason.DEMAND_RETURNED, id="wanted-again"),
    ],
)
def test_reason_to_keep_a_fenced_node_lifts_its_fence(world: World, reason: ReasonText) -> None:
    world.lent("a001", Phase.RELEASING, was_used=True, idle_since=LONG_AGO)
    after = world.decisions()
    assert after.verdicts["a001"].reason is reason
    entry = after.registry.nodes["a001"]
    assert (entry.phase, entry.since, entry.idle_since) == (Phase.SERVING, NOW, None)


def test_queue_with_unreadable_pods_loses_no_node() -> None:
    world = idle().with_pods(*pods(1, SMALL, node="k1"))
    seen = PodList(pods=world.pods, unreadable={"dev": "403"})
    after = world.set(pods=seen).decisions()
    assert after.registry.nodes["a001"].phase is Phase.SERVING


@pytest.mark.parametrize("unread", ["pods", "nodes"])
def test_nothing_is_fenced_or_unfenced_while_pods_or_nodes_are_unreadable(unread: str) -> None:
    for world in (idle(), fenced().with_pods(*pods(1))):
        current = world.set(**{unread: UNREAD}).current()
        after = world.decisions()
        assert after.registry == current.registry
        assert after.verdicts == world.advanced().verdicts


def test_stalled_pods_create_no_demand_in_the_same_run() -> None:
    """Pods that did not start on an idle node for its whole idle time do not keep it any longer."""
    world = serving(idle_since=LONG_AGO, since=NOW - timedelta(hours=9), was_used=True)
    world.with_pods(*pods(2, SMALL, created="2026-03-02T03:00:00Z"))
    world.set(batch={"a001": a_batch_node(in_service=False)})
    after = world.decisions()
    assert after.registry.nodes["a001"].phase is Phase.RELEASING
    assert [stalled_pods.count for stalled_pods in after.registry.stalled.values()] == [2]
    assert after.demand is not None and after.demand.groups == ()
    assert world.current().registry.stalled == {}


def test_no_node_is_requested_beside_a_node_that_is_unfenced() -> None:
    world = fenced().with_pods(*pods(1))
    world.batch["a050"] = a_batch_node("a050")
    assert not world.plan().registry.requests


def test_idle_time_of_a_needed_node_begins_when_the_need_ends() -> None:
    """The node is idle, but pods elsewhere need its quota. Its idle time counts from their end."""
    used = pods(104, SMALL, node="k1")  # of one core each, and the queue has 80
    needed = idle().with_pods(*used).decisions()
    assert needed.verdicts["a001"].reason is Reason.NEEDED
    assert "would have 80 cpu, and 104 cpu is used" in needed.verdicts["a001"].detail
    entry = needed.registry.nodes["a001"]
    assert entry.is_needed and entry.idle_since == LONG_AGO
    again = idle().with_pods(*used).recorded(nodes={"a001": entry}).decisions()
    assert again.registry.nodes["a001"] == entry, "an unchanged entry is not rewritten"
    over = idle().recorded(nodes={"a001": entry}).decisions()
    assert over.verdicts["a001"].reason is Reason.IDLE
    entry = over.registry.nodes["a001"]
    assert (entry.phase, entry.is_needed, entry.idle_since) == (Phase.SERVING, False, NOW)


def test_longest_idle_nodes_are_returned_first_within_the_run_limit() -> None:
    world = World().configured(max_reversions_per_run=2)
    for name, minutes in (("a001", 5), ("a002", 9), ("a003", 7)):
        since = NOW - timedelta(minutes=minutes)
        world.lent(name, Phase.RELEASING, was_used=True, since=since)
        world.node(name, is_cordoned=True, mark=FENCED)
    batch = {name: a_batch_node(name, in_service=False) for name in world.registry.nodes}
    decisions = world.set(batch=batch).decisions()
    assert decisions.returned == ("a002", "a003")
    assert decisions.verdicts["a001"].verdict is Verdict.WAIT
    assert decisions.verdicts["a001"].detail == "max_conversions_per_run allows 2 returns in a run"


@pytest.mark.parametrize(
    ("entry", "late"),
    [
        pytest.param({}, NodeDecision.STAYS, id="idle"),
        pytest.param({"leaves": Leaving.MANUAL}, NodeDecision.LEAVES, id="to-leave"),
    ],
)
def test_nodes_beyond_the_run_limit_have_a_decision_too(entry: Any, late: NodeDecision) -> None:
    world = World().configured(max_reversions_per_run=1)
    for name in ("a001", "a002"):
        world.lent(name, idle_since=LONG_AGO, **entry).node(name)
    decisions = world.decisions()
    assert decisions.by_node == {"a001": NodeDecision.RELEASED, "a002": late}
    phases = [node.phase for node in decisions.registry.nodes.values()]
    assert phases == [Phase.RELEASING, Phase.SERVING]


def test_retried_return_keeps_its_start_and_attempts() -> None:
    world = World().lent("a001", Phase.RETURNING, attempts=2, retry_after=LONG_AGO, since=LONG_AGO)
    decisions = world.set(batch={"a001": a_batch_node(in_service=False)}).decisions()
    assert decisions.returned == ("a001",)
    entry = decisions.registry.nodes["a001"]
    assert (entry.returning.attempts, entry.since) == (2, LONG_AGO)
