"""`when_batch_waits`: what becomes of lending while jobs wait, and what of nodes that are idle."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dnm.model.cluster import Node, PodList, PodShape, WaitingJobs
from dnm.model.config import WhenBatchWaits
from dnm.model.plan import Fence, Plan
from dnm.model.registry import Deficit, Phase, Registry, RunRecord
from dnm.model.value import Unreadable
from dnm.model.verdict import NodeVerdict, Reason, Verdict
from dnm.plan.batch_side import needs_batch_side
from dnm.plan.rules.batch_waits import goes_at_once, types_for_jobs
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_node, facts
from tests.plan.worlds import SMALL, World, namespace_policy, pods, serving, wanting

LEND, WAIT, RETURN = WhenBatchWaits.LEND, WhenBatchWaits.WAIT, WhenBatchWaits.RETURN
JOBS = (WaitingJobs(partition="main", node_type="a", jobs=2, nodes=3),)
OTHERS = (WaitingJobs(partition="main", node_type="b", jobs=2, nodes=3),)


@pytest.mark.parametrize(
    ("rule", "waiting", "types"),
    [
        pytest.param(LEND, JOBS, set(), id="lend"),
        pytest.param(WAIT, JOBS, {"a"}, id="wait"),
        pytest.param(RETURN, JOBS, {"a"}, id="return"),
        pytest.param(WAIT, None, set(), id="nobody-says"),
        pytest.param(WAIT, (), set(), id="none-waits"),
    ],
)
def test_the_types_that_jobs_wait_for(rule: WhenBatchWaits, waiting: Any, types: set[str]) -> None:
    known = facts(waiting_jobs=waiting)
    assert types_for_jobs(a_config(when_batch_waits=rule), known) == types


def decided(world: World, rule: WhenBatchWaits, waiting: Any) -> World:
    return world.configured(when_batch_waits=rule).set(waiting_jobs=waiting)


@pytest.mark.parametrize(
    ("rule", "waiting", "priority", "is_lent"),
    [
        pytest.param(LEND, JOBS, 0, True, id="lend"),
        pytest.param(WAIT, JOBS, 0, False, id="wait"),
        pytest.param(RETURN, JOBS, 0, False, id="return"),
        pytest.param(WAIT, JOBS, 1, True, id="priority-comes-first"),
        pytest.param(WAIT, JOBS, -1, False, id="a-low-priority-does-not"),
        pytest.param(WAIT, OTHERS, 0, True, id="for-another-type"),
        pytest.param(WAIT, None, 0, True, id="nobody-says"),
        pytest.param(WAIT, (), 0, True, id="none-waits"),
    ],
)
def test_nothing_is_lent_while_jobs_wait(
    rule: WhenBatchWaits, waiting: Any, priority: int, is_lent: bool
) -> None:
    world = decided(wanting(), rule, waiting)
    world.configured(namespaces=namespace_policy(world.config, priority=priority))
    found = world.converted()
    assert bool(found.requests) is is_lent
    if not is_lent:
        verdict = found.verdicts[QUEUE]
        assert (verdict.verdict, verdict.reason) == (Verdict.WAIT, Reason.BATCH_WAITS)


def idle(minutes: int = 1, **changes: Any) -> World:
    since = NOW - timedelta(minutes=minutes)
    return serving(since=NOW - timedelta(hours=1), idle_since=since, was_used=True, **changes)


def verdict_of(plan: Plan) -> NodeVerdict:
    return next(one for one in plan.nodes if one.node == "a001")


@pytest.mark.parametrize(
    ("rule", "waiting", "priority", "goes"),
    [
        pytest.param(WAIT, JOBS, 0, False, id="wait-returns-nothing"),
        pytest.param(RETURN, JOBS, 0, True, id="return"),
        pytest.param(RETURN, JOBS, 1, False, id="priority-comes-first"),
        pytest.param(RETURN, OTHERS, 0, False, id="for-another-type"),
        pytest.param(RETURN, None, 0, False, id="nobody-says"),
        pytest.param(RETURN, (), 0, False, id="none-waits"),
    ],
)
def test_an_idle_node_goes_at_once(
    rule: WhenBatchWaits, waiting: Any, priority: int, goes: bool
) -> None:
    world = decided(idle(), rule, waiting)
    world.configured(namespaces=namespace_policy(world.config, priority=priority))
    plan = world.plan()
    assert (Fence(node="a001") in plan.actions) is goes
    assert verdict_of(plan).reason is (Reason.FOR_JOBS if goes else Reason.IDLE)


def test_one_that_pods_wait_for_stays() -> None:
    plan = decided(idle().with_pods(*pods(1)), RETURN, JOBS).plan()
    assert verdict_of(plan).reason is Reason.NEEDED and not plan.actions


def test_pods_that_have_waited_longer_than_it_was_idle_are_not_taken_to_wait_in_vain() -> None:
    """They have only just got the room: an hour old, beside a node that is idle for a minute."""
    plan = decided(idle().with_pods(*pods(3, SMALL)), RETURN, JOBS).plan()
    assert not plan.registry.stalled


@pytest.mark.parametrize("unused", [timedelta(0), timedelta(hours=1)])
def test_headroom_keeps_none_and_brings_none_back(unused: timedelta) -> None:
    """Its queue stands at its limit of 80 cores without it."""
    shape = PodShape(request={"vcore": 80_000, "memory": 10**9, "pods": 1})
    full = pods(1, shape, node="k1", running=True)
    world = idle().with_pods(*full).configured(headroom_idle=unused)
    assert verdict_of(world.plan()).reason is Reason.IDLE
    plan = decided(world, RETURN, JOBS).plan()
    assert verdict_of(plan).reason is Reason.FOR_JOBS
    assert Fence(node="a001") in plan.actions
    assert QUEUE in plan.registry.unbuffered


def test_what_jobs_wait_for_is_remembered_with_the_first_action() -> None:
    """The record tells it from there; a run that did not ask has the last answer."""
    for waiting in (JOBS, (), None):
        world = decided(idle(), LEND, waiting)
        assert world.plan().registry.last_run.waiting_jobs == waiting
    remembered = RunRecord(waiting_jobs=JOBS)
    unasked = idle().recorded(last_run=remembered).set(batch=None)
    assert unasked.plan().registry.last_run.waiting_jobs == JOBS
    unread = unasked.set(batch=Unreadable(what="--list", error="no answer"))
    assert unread.plan().registry.last_run.waiting_jobs is None
    no_nodes = Unreadable(what="the Nodes", error="no answer")
    blind = World().recorded(last_run=remembered).set(batch=None, nodes=no_nodes)
    assert blind.plan().registry.last_run.waiting_jobs is None


def test_min_nodes_keeps_its_node() -> None:
    world = decided(idle(), RETURN, JOBS)
    world.configured(namespaces=namespace_policy(world.config, min_nodes=1))
    assert verdict_of(world.plan()).reason is Reason.KEPT_READY


def test_a_learned_idle_time_does_not_hold_it() -> None:
    config = a_config(when_batch_waits=RETURN)
    known = facts(waiting_jobs=JOBS, idle_times={"dev": timedelta(minutes=45)})
    assert goes_at_once(config, a_lent_node(), known)


@pytest.mark.parametrize(("rule", "asks"), [(LEND, False), (WAIT, False), (RETURN, True)])
@pytest.mark.parametrize(
    "registry",
    [
        pytest.param(Registry(nodes={"a001": a_lent_node(Phase.SERVING)}), id="lent"),
        pytest.param(Registry(deficits={"a": Deficit(at=NOW, since=NOW)}), id="jobs-waited-last"),
    ],
)
def test_slurm_is_asked_as_long_as_jobs_may_wait_for_nodes(
    rule: WhenBatchWaits, asks: bool, registry: Registry
) -> None:
    nodes: list[Node] = [a_node()] if registry.nodes else []
    config = a_config(when_batch_waits=rule)
    assert needs_batch_side(config, registry, nodes, PodList(pods=())) is asks


def test_a_node_that_had_no_time_to_be_used_is_no_strike() -> None:
    """It is unused for a minute, and jobs wait: its going is forgiven before it has gone."""
    since = NOW - timedelta(minutes=1)
    world = decided(serving(since=since, idle_since=since), RETURN, JOBS)
    plan = world.plan()
    assert Fence(node="a001") in plan.actions
    assert plan.registry.breakers[QUEUE].strikes == -1
