"""Tests of reporting queues that use little of their lent nodes: since when dnm records it, when it
reports it, and which queues it never reports."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dnm.model.departure import Leaving
from dnm.model.lent import Phase
from dnm.model.observed import LowUse
from dnm.model.pod import PodList, PodShape
from dnm.model.value import Unreadable
from dnm.plan.rule import LOW_UTILIZATION_FOR, rules_of
from dnm.plan.rules.low_utilization import RULE
from tests.builders import NOW, QUEUE
from tests.plan.worlds import LONG_AGO, World, pods

CORE = 1000  # of 128 cores on each node
BEFORE = NOW - timedelta(minutes=90)


def used(nodes: int = 30, vcore: int = CORE, memory: int = 10**9, **changes: Any) -> World:
    """Builds lent nodes with one small pod on each."""
    world = World()
    shape = PodShape(request={"cpu": vcore, "memory": memory, "pods": 1})
    for number in range(1, nodes + 1):
        name = f"a{number:03}"
        world.lent(name, **{"was_used": True, "since": LONG_AGO, **changes}).node(name)
        (pod,) = pods(1, shape, node=name, app_id=name)
        world.with_pods(pod)
    return world


def noted(since: Any = BEFORE, **changes: Any) -> dict[str, LowUse]:
    return {QUEUE: LowUse(**{"since": since, "percent": 1, "nodes": 30, **changes})}


def test_low_utilization_is_recorded_without_an_action() -> None:
    plan = used().plan()
    assert plan.registry.low_utilization == noted(NOW) and not plan.actions


@pytest.mark.parametrize(
    ("world", "percent"),
    [
        pytest.param(used(2, 12_700), 10, id="just-below-a-tenth"),
        pytest.param(used(2, 12_800), None, id="a-tenth"),
        pytest.param(used(2, 1, memory=30 * 10**9), None, id="of-another-resource-more"),
        pytest.param(used(2, since=NOW - timedelta(minutes=119)), None, id="new-nodes"),
        pytest.param(used(2, leaves=Leaving.MANUAL), None, id="to-be-returned"),
        pytest.param(used(2, stays_until=NOW + LOW_UTILIZATION_FOR), None, id="to-be-kept"),
        pytest.param(used(2, owner="test"), None, id="of-another-instance"),
        pytest.param(used(2).set(pods=()), None, id="without-a-hold"),
    ],
)
def test_reports_queues_with_low_utilization(world: World, percent: int | None) -> None:
    results = world.plan().registry.low_utilization
    assert (results[QUEUE].percent if results else None) == percent


def test_daemonset_pods_do_not_count_as_utilization() -> None:
    big = PodShape(request={"cpu": 64_000, "pods": 1})
    theirs = pods(1, big, node="a001", namespace="kube-system", is_managed=False,
                  is_daemonset=True)  # fmt: skip
    assert used(2).with_pods(*theirs).plan().registry.low_utilization[QUEUE].percent == 1
    alone = used(2).set(pods=theirs).plan()
    assert not alone.registry.low_utilization


@pytest.mark.parametrize(
    ("since", "is_reported"),
    [
        pytest.param(
            NOW - LOW_UTILIZATION_FOR + timedelta(seconds=1), False, id="not-yet-for-hours"
        ),
        pytest.param(NOW - LOW_UTILIZATION_FOR, True, id="for-hours"),
    ],
)
def test_low_utilization_keeps_its_start_and_is_reported_after_hours(
    since: Any, is_reported: bool
) -> None:
    plan = used().recorded(low_utilization=noted(since)).plan()
    assert plan.registry.low_utilization == noted(since, is_reported=is_reported)


def test_future_start_of_low_utilization_is_set_to_now() -> None:
    plan = used().recorded(low_utilization=noted(NOW + LOW_UTILIZATION_FOR)).plan()
    assert plan.registry.low_utilization == noted(NOW)


@pytest.mark.parametrize(
    "unread",
    [
        pytest.param({"pods": Unreadable(subject="pods", error="no")}, id="no-pods"),
        pytest.param({"pods": PodList(pods=(), cluster_wide=False)}, id="of-some-namespaces"),
        pytest.param({"pods": PodList(pods=(), unreadable={"x": "no"})}, id="one-can't-be-read"),
        pytest.param({"unseen_nodes": frozenset({"a001"})}, id="a-node-that-the-list-lacks"),
    ],
)
def test_unreadable_facts_leave_low_utilization_unchanged(unread: dict[str, Any]) -> None:
    for before in (noted(NOW - LOW_UTILIZATION_FOR), {}):
        plan = used().recorded(low_utilization=before).with_facts(**unread).plan()
        assert plan.registry.low_utilization == before


def test_low_utilization_ends_with_more_pods_or_without_nodes() -> None:
    busy = used(30, 64_000).recorded(low_utilization=noted()).plan()
    removed = World().recorded(low_utilization=noted())
    assert RULE in rules_of(removed.config, removed.registry)
    for plan in (busy, removed.plan()):
        assert not plan.registry.low_utilization
    assert not rules_of(removed.config, removed.plan().registry)


def test_idle_node_does_not_count_as_low_utilization() -> None:
    world = used(2).lent("a009", Phase.SERVING, since=LONG_AGO).node("a009")
    assert world.plan().registry.low_utilization[QUEUE].nodes == 2
