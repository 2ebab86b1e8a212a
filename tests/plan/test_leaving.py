"""Tests of lent nodes that have to leave although pods use them: why, which, and when one may stay.
dnm fences them and returns them once they are empty, even if their queue needs them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.observed import Breaker, SpentHours
from dnm.model.orders import Pause
from dnm.model.plan import Fence, Plan, ReturnNode, SetQueueLimits, Unfence
from dnm.model.pod import PodList
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import Registry
from dnm.model.verdict import Verdict
from dnm.plan.breaker import after_transition
from dnm.plan.rules.node_hours import HOURS_SPENT, hour_bounds, hours_left, record_hours, week_of
from tests.builders import FENCED, NOW, a_config, a_lent_node, a_request
from tests.plan.worlds import LONG_AGO, SMALL, World, fenced, namespace_policy, pods

HOUR = timedelta(hours=1)
MONDAY = datetime(2026, 3, 2, tzinfo=NOW.tzinfo)


def used(count: int = 1, **changes: Any) -> World:
    """Builds serving nodes, the first with one pod, the second with two, and so on."""
    world = World()
    for number in range(1, count + 1):
        name = f"a{number:03}"
        world.lent(name, was_used=True, since=LONG_AGO, **changes).node(name)
        world.with_pods(*pods(number, SMALL, node=name))
    return world


def leaving(plan: Plan) -> dict[str, str]:
    return {name: node.leaves for name, node in plan.registry.nodes.items() if node.leaves}


def fences(plan: Plan) -> set[str]:
    return {action.node for action in plan.actions if isinstance(action, Fence)}


# --- max_lend_hours ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "most", "is_fenced"),
    [(0, 2, False), (3, 2, False), (2, 2, True), (1, 2, True)],
)
def test_node_beyond_max_lend_hours_is_fenced(hours: int, most: int, is_fenced: bool) -> None:
    plan = used().configured(options={"max_lend_hours": hours * HOUR}).plan()
    assert (leaving(plan) == {"a001": "overdue"}) is is_fenced
    assert (fences(plan) == {"a001"}) is is_fenced
    assert (plan.nodes[0].reason is Reason.LEAVING) is is_fenced
    assert not any(isinstance(action, SetQueueLimits) for action in plan.actions), "pods run on it"


def test_no_more_nodes_are_fenced_at_once_than_may_be_returned() -> None:
    world = used(4).configured(options={"max_lend_hours": HOUR}, max_reversions_per_run=3)
    assert len(fences(world.plan())) == 3


def test_start_of_a_lend_is_kept_through_its_phases() -> None:
    plan = used().configured(options={"max_lend_hours": 9 * HOUR}).plan()
    assert plan.registry.nodes["a001"].lent_since == LONG_AGO
    assert used().plan().registry.nodes["a001"].lent_since is None  # no rule uses it


@pytest.mark.parametrize(
    ("change", "fenced_by"),
    [
        pytest.param({"held": ("a001",)}, set(), id="held"),
        pytest.param({"pause": Pause(since=NOW)}, set(), id="paused"),
        pytest.param({}, {"a001"}, id="nothing-speaks-for-it"),
    ],
)
def test_hold_pause_and_order_keep_an_overdue_node(
    change: dict[str, Any], fenced_by: set[str]
) -> None:
    assert (
        fences(used().configured(options={"max_lend_hours": HOUR}).recorded(**change).plan())
        == fenced_by
    )


@pytest.mark.parametrize(
    ("leaves", "held", "reason"),
    [
        pytest.param("manual", ("a001",), Reason.HELD, id="held-after-its-return"),
        pytest.param("spent", (), Reason.IDLE, id="the-budget-is-removed"),
    ],
)
def test_node_that_stops_leaving_is_not_reported_as_returning(
    leaves: str, held: Any, reason: ReasonText
) -> None:
    world = World().lent("a001", since=LONG_AGO, leaves=leaves).node("a001").recorded(held=held)
    plan = world.plan()
    assert not leaving(plan) and not plan.actions
    assert (plan.nodes[0].verdict, plan.nodes[0].reason) == (Verdict.KEEP, reason)


def test_overdue_node_with_a_cordon_of_an_administrator_stays() -> None:
    world = World().lent("a001", since=LONG_AGO).node("a001", is_cordoned=True)
    plan = world.configured(options={"max_lend_hours": HOUR}).plan()
    assert not leaving(plan) and plan.nodes[0].reason is Reason.HELD_BY_ADMIN


def test_overdue_node_is_not_fenced_while_its_pods_are_unknown() -> None:
    """If dnm can list the pods of some namespaces only, it could never return a fenced node."""
    world = World().lent("a001", since=LONG_AGO).node("a001")
    world.with_facts(pods=PodList(pods=(), cluster_wide=False))
    plan = world.configured(options={"max_lend_hours": HOUR}).plan()
    assert not leaving(plan) and not plan.actions
    assert plan.nodes[0].reason is Reason.UNKNOWN


# --- what becomes of a node that leaves ------------------------------------------------------


def eviction(count: int = 0, **changes: Any) -> World:
    """Builds a node that dnm fenced because its lend time is over, with `count` pods on it."""
    world = World().configured(options={"max_lend_hours": HOUR})
    entry = {"was_used": True, "since": LONG_AGO, "leaves": "overdue"}
    world.lent("a001", **{**entry, **changes})
    world.node("a001", is_cordoned=True, mark=FENCED)
    return world.with_pods(*pods(count, SMALL, node="a001"))


def test_leaving_node_keeps_its_pods_and_its_share_of_the_limit() -> None:
    plan = eviction(2).plan()
    assert plan.registry.nodes["a001"].phase is Phase.SERVING and not plan.actions


def test_empty_leaving_node_is_returned_despite_demand() -> None:
    plan = eviction().with_pods(*pods(3)).plan()
    assert plan.registry.nodes["a001"].phase is Phase.RELEASING
    kinds = [type(action) for action in plan.actions]
    assert SetQueueLimits in kinds and Unfence not in kinds


def test_demand_lifts_no_fence_of_a_leaving_node() -> None:
    world = fenced().with_pods(*pods(3)).configured(options={"max_lend_hours": HOUR})
    plain = world.plan().registry.nodes["a001"]
    entry = msgspec.structs.replace(
        world.registry.nodes["a001"].leave("overdue"), lent_since=LONG_AGO
    )
    leaves = world.recorded(nodes={"a001": entry}).plan()
    assert plain.phase is Phase.SERVING
    assert leaves.registry.nodes["a001"].phase is Phase.RETURNING
    assert ReturnNode(node="a001") in leaves.actions


@pytest.mark.parametrize(
    ("changes", "config"),
    [
        pytest.param({}, {"options": {}}, id="the-key-is-removed"),
        pytest.param({"leaves": "spent"}, {}, id="a-new-week-or-no-budget"),
        pytest.param({"leaves": "for-jobs"}, {}, id="lending-has-no-regard-to-jobs"),
    ],
)
def test_fence_is_lifted_when_its_reason_ends(changes: Any, config: dict[str, Any]) -> None:
    plan = (
        eviction(1, **changes)
        .configured(**{"options": {"max_lend_hours": 9 * HOUR}, **config})
        .plan()
    )
    assert not leaving(plan) and Unfence(node="a001") in plan.actions


def test_overdue_node_does_not_count_as_unused() -> None:
    went = a_lent_node(Phase.RETURNING, leaves="overdue")
    assert after_transition({}, went, None) == {}
    assert after_transition({}, a_lent_node(Phase.RETURNING), None)[went.queue] == Breaker(unused=1)


# --- node_hours_per_week -----------------------------------------------------------------------


def budgeted(hours: float | None) -> Config:
    config = a_config()
    options = {} if hours is None else {"node_hours_per_week": hours}
    return a_config(namespaces=namespace_policy(config, options=options))


@pytest.mark.parametrize(
    ("registry", "left"),
    [
        pytest.param(Registry(), 10.0, id="nothing-lent"),
        pytest.param(
            Registry(nodes={"a001": a_lent_node(lent_since=NOW - 3 * HOUR)}), 7.0, id="a-node"
        ),
        pytest.param(
            Registry(nodes={"a001": a_lent_node(lent_since=NOW - 90 * HOUR)}), -2.0,
            id="since-monday-alone",
        ),
        pytest.param(
            Registry(nodes={"a001": a_lent_node(lent_since=NOW - 3 * HOUR, owner="x")}), 10.0,
            id="of-another-instance",
        ),
        pytest.param(
            Registry(spent_hours={"dev": SpentHours(week=MONDAY, seconds=7200)}), 8.0, id="returned"
        ),
        pytest.param(
            Registry(spent_hours={"dev": SpentHours(week=MONDAY - 168 * HOUR, seconds=7200)}), 10.0,
            id="last-week",
        ),
    ],
)  # fmt: skip
def test_weekly_budget_is_reduced_by_lent_hours(registry: Registry, left: float) -> None:
    assert week_of(NOW) == MONDAY and NOW - MONDAY == 12 * HOUR
    assert hours_left(budgeted(10), registry, NOW) == {"dev": left}
    assert hours_left(budgeted(None), registry, NOW) == {}


@pytest.mark.parametrize(
    ("hours", "requests", "more"),
    [
        (0.9, (), 0),
        (1, (), 1),
        (3.5, (), 3),
        (3.5, (a_request(count=2),), 1),
        (1, (a_request(),), 0),
    ],
)
def test_each_requested_node_needs_an_hour_of_budget(
    hours: float, requests: Any, more: int
) -> None:
    (bound,) = hour_bounds(budgeted(hours), Registry(requests=requests), NOW)
    assert bound.left == more


def test_hours_of_returned_nodes_are_kept() -> None:
    lent: dict[str, Any] = {"lent_since": NOW - 2 * HOUR}
    before = Registry(
        nodes={"a001": a_lent_node(**lent), "a002": a_lent_node(**lent)},
        spent_hours={"dev": SpentHours(week=MONDAY, seconds=100)},
    )
    after = msgspec.structs.replace(before, nodes={"a002": a_lent_node(**lent)})
    noted = record_hours(budgeted(10), before, after, NOW)
    assert noted.spent_hours == {"dev": SpentHours(week=MONDAY, seconds=7300)}
    assert not record_hours(budgeted(None), before, after, NOW).spent_hours
    assert hours_left(budgeted(10), noted, NOW) == hours_left(budgeted(10), before, NOW)


def test_used_up_budget_fences_nodes_and_stops_lending() -> None:
    """The budget is two node-hours a week. A node was lent two hours ago; pods need another."""
    world = used(lent_since=LONG_AGO).with_pods(*pods(3))
    world.configured(namespaces=namespace_policy(world.config, options={"node_hours_per_week": 2}))
    plan = world.plan()
    assert leaving(plan) == {"a001": "spent"} and not plan.registry.requests
    assert plan.queues[0].reason is HOURS_SPENT
    assert "node_hours_per_week of namespace dev used up" in plan.queues[0].sentence
