"""What was needed at this hour in earlier weeks, and whether it pays to lend for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from dnm.model.config import Config, Forecast
from dnm.model.plan import Foresight, Reason
from dnm.model.registry import Breaker, NeedPoint, Needs, Registry
from dnm.plan.forecast import AHEAD, forecast_floors, foresee, next_look
from dnm.plan.foreseen import with_wants
from dnm.plan.needs import (
    KEPT_WEEKS,
    MOST_POINTS,
    QUARTER,
    QUARTERS_OF_A_WEEK,
    begin_of,
    need_at,
    quarter_of,
    with_point,
)
from tests.builders import NOW, QUEUE, a_config
from tests.plan.worlds import LONG_AGO, SMALL, World, namespace_policy, pods, serving

HERE = quarter_of(NOW)
WEEK = QUARTERS_OF_A_WEEK


def forecasting(mode: Forecast = Forecast.FLOOR, **changes: object) -> Config:
    policy = namespace_policy(a_config(), forecast=mode)
    return a_config(**{"namespaces": policy, **changes})


def each_week(*highest: int, pods_on_each: int = 30, at: int = HERE, length: int = 8) -> Needs:
    """So many nodes for two hours of each earlier week, the latest first; none else."""
    points = [NeedPoint(quarter=at - 7 * WEEK, nodes=0, pods=pods_on_each)]
    for number, nodes in sorted(enumerate(highest, start=1), reverse=True):
        begin = at - number * WEEK
        points.append(NeedPoint(quarter=begin, nodes=nodes, pods=pods_on_each))
        points.append(NeedPoint(quarter=begin + length, nodes=0, pods=pods_on_each))
    return Needs(points=tuple(points))


def of_dev(needs: Needs) -> Registry:
    return Registry(needs={"dev": needs})


def foreseen(needs: Needs, now: datetime = NOW, **changes: object) -> Foresight:
    (found,) = foresee(forecasting(**changes), of_dev(needs), now)
    return found


# --- what is kept ------------------------------------------------------------------------------


def test_a_week_begins_on_monday_and_has_its_quarters() -> None:
    monday = datetime(2026, 3, 2, tzinfo=UTC)
    assert quarter_of(monday) % WEEK == 0 and begin_of(quarter_of(monday)) == monday
    assert quarter_of(monday + timedelta(days=7)) - quarter_of(monday) == WEEK
    assert quarter_of(NOW + timedelta(seconds=899)) == HERE == quarter_of(NOW + QUARTER) - 1


POINTS = {
    "the first": ((), (5, 2), ((5, 2),)),
    "no change, no point": (((5, 2),), (9, 2), ((5, 2),)),
    "a change": (((5, 2),), (9, 3), ((5, 2), (9, 3))),
    "more in the same quarter": (((5, 2),), (5, 4), ((5, 4),)),
    "less in the same quarter": (((5, 2),), (5, 1), ((5, 2),)),
    "a clock that went back": (((5, 2),), (4, 7), ((5, 2),)),
}


@pytest.mark.parametrize(("before", "new", "after"), POINTS.values(), ids=POINTS)
def test_the_highest_of_a_quarter_is_kept_where_it_changes(
    before: tuple[tuple[int, int], ...], new: tuple[int, int], after: tuple[tuple[int, int], ...]
) -> None:
    needs = Needs(points=tuple(NeedPoint(quarter=q, nodes=n, pods=1) for q, n in before))
    noted = with_point(needs, NeedPoint(quarter=new[0], nodes=new[1], pods=1))
    assert [(one.quarter, one.nodes) for one in noted.points] == list(after)


def test_no_more_is_kept_than_six_weeks_and_a_thousand_points() -> None:
    needs, last = Needs(), HERE + 8 * WEEK
    for quarter in range(HERE, last, 4):
        needs = with_point(needs, NeedPoint(quarter=quarter, nodes=quarter // 4 % 2, pods=1))
    assert len(needs.points) == MOST_POINTS
    slow = Needs()
    for nodes, quarter in enumerate((HERE, HERE + WEEK, last)):
        slow = with_point(slow, NeedPoint(quarter=quarter, nodes=nodes, pods=1))
    oldest = last - KEPT_WEEKS * WEEK
    assert slow.points[0] == NeedPoint(quarter=oldest, nodes=1, pods=1), "it held until then"
    assert need_at(slow, oldest - 1) is None and need_at(slow, last) == 2


NOTED = {
    "within its own limit": (40, 0),
    "twenty cores beyond it": (100, 1),
    "a hundred and thirty": (210, 2),
}


@pytest.mark.parametrize(("count", "nodes"), NOTED.values(), ids=NOTED)
def test_the_need_is_what_pods_ask_for_beyond_the_own_limit(count: int, nodes: int) -> None:
    world = World().with_pods(*pods(count, SMALL))
    world.config = forecasting(Forecast.SHOW)
    (point,) = world.plan().registry.needs["dev"].points
    assert (point.quarter, point.nodes) == (HERE, nodes)
    assert point.pods == -(-count // max(-(-count // 128), 1)), "so many are on one node"


def test_without_a_forecast_nothing_is_kept_and_what_was_is_forgotten() -> None:
    world = World().with_pods(*pods(200, SMALL))
    assert world.plan().registry.needs == {}
    assert world.recorded(needs={"dev": each_week(3)}).plan().registry.needs == {}


def test_what_lent_nodes_carry_is_no_other_need() -> None:
    """The limit has grown with them; the need goes by the queue's own."""
    world = serving().with_pods(*pods(200, SMALL, node="a001", running=True))
    world.config = forecasting(Forecast.SHOW)
    assert [one.nodes for one in world.plan().registry.needs["dev"].points] == [1]


# --- what is foreseen --------------------------------------------------------------------------


def test_a_floor_begins_ahead_of_the_need() -> None:
    needs = each_week(6, 6)
    early = NOW - AHEAD - timedelta(minutes=6)
    assert foreseen(needs, early).nodes == 0
    assert foreseen(needs, NOW - AHEAD).nodes == 6
    assert foreseen(needs, NOW + 8 * QUARTER).nodes == 0


def test_a_share_of_the_caps_bounds_it() -> None:
    assert foreseen(each_week(18, 17)).nodes == 15
    assert foreseen(each_week(18, 17), forecast_share=0.1).nodes == 3
    policy = namespace_policy(a_config(), forecast=Forecast.FLOOR, max_nodes=5)
    assert foreseen(each_week(18, 17), namespaces=policy).nodes == 2


def test_days_that_are_left_out_have_none_and_teach_nothing() -> None:
    needs = each_week(6, 6, 2)
    assert not foreseen(needs, forecast_except=frozenset({NOW.date()})).is_known
    gone = NOW.date() - timedelta(days=7)
    assert foreseen(needs, forecast_except=frozenset({gone})).nodes == 6
    both = frozenset({gone, gone - timedelta(days=7)})
    assert foreseen(needs, forecast_except=both).nodes == 2, "with the week before them"
    three = both | {gone - timedelta(days=14)}
    assert not foreseen(needs, forecast_except=three).is_known, "one week is left"


SCORES: Mapping[str, tuple[Needs, bool, int]] = {
    "it comes each week": (each_week(4, 4, 4, 4, 4, 4), True, 2 * 4 * 30 * 10),
    "a few pods, and nodes that stand idle": (
        each_week(0, 0, 4, 4, 4, 4, pods_on_each=2), False, 0,
    ),
    "nothing was foreseen, nothing was lost": (each_week(4, 4), True, 0),
}  # fmt: skip


@pytest.mark.parametrize(("needs", "pays", "saved"), SCORES.values(), ids=SCORES)
def test_two_weeks_tell_whether_it_pays(needs: Needs, pays: bool, saved: int) -> None:
    found = foreseen(needs)
    assert (found.pays, found.pod_minutes_saved) == (pays, saved)
    assert found.is_in_force is pays
    assert ("does not pay" in found.sentence) is not pays


def test_an_hour_idle_is_weighed_against_sixty_pod_minutes() -> None:
    """Of a need that lasts half as long as it did, and then not at all."""
    early = each_week(0, 4, 4, 4, pods_on_each=1)
    found = foreseen(early)
    assert found.node_hours_idle > 0
    assert found.pays is (found.pod_minutes_saved >= 60 * found.node_hours_idle)


@pytest.mark.parametrize("mode", [Forecast.OFF, Forecast.SHOW])
def test_only_a_floor_lends(mode: Forecast) -> None:
    registry = of_dev(each_week(6, 6))
    assert not list(forecast_floors(forecasting(mode), registry, NOW))
    assert len(foresee(forecasting(mode), registry, NOW)) == (mode is Forecast.SHOW)


def test_nodes_are_lent_for_it_and_its_words_say_so() -> None:
    world = World().recorded(needs={"dev": each_week(6, 6)})
    world.config = forecasting()
    plan = world.plan()
    (verdict,) = plan.queues
    assert verdict.reason is Reason.MIN_NODES
    assert verdict.detail.startswith("forecast of dev: 6 at this hour in earlier weeks")
    assert plan.foresights[0].sentence.startswith("forecast of dev: 6 nodes at this hour, lent")
    wants = with_wants(world.config, world.registry, NOW)
    assert wants.namespaces["dev"].min_nodes == 1, "else the batch side would not be asked"


def test_one_that_does_not_pay_lends_nothing_and_is_noted() -> None:
    needs = each_week(0, 0, 4, 4, 4, 4, pods_on_each=0)
    world = World().recorded(needs={"dev": needs})
    world.config = forecasting()
    plan = world.plan()
    assert not plan.actions
    assert plan.notes == ("the forecast of dev does not pay: it is off until it does",)


def test_a_node_that_was_there_for_it_and_goes_unused_counts_for_no_breaker() -> None:
    for mode, strikes in ((Forecast.OFF, {}), (Forecast.FLOOR, {QUEUE: Breaker(strikes=-1)})):
        world = serving(idle_since=LONG_AGO, was_used=False)
        world.config = forecasting(mode)
        plan = world.plan()
        assert plan.nodes[0].reason is Reason.IDLE_LONG_ENOUGH
        assert plan.registry.breakers == strikes


def test_a_floor_may_change_at_a_quarter_and_twenty_minutes_before_one() -> None:
    config = forecasting()
    assert next_look(config, NOW) == NOW + timedelta(minutes=10)
    assert next_look(config, NOW + timedelta(minutes=11)) == NOW + QUARTER
    assert next_look(a_config(), NOW) is None


def test_a_need_that_is_as_it_was_writes_nothing_down() -> None:
    needs = {"dev": each_week(0, 0)}
    world = World().with_pods(*pods(40, SMALL)).recorded(needs=needs)
    world.config = forecasting()
    assert world.plan().registry.needs == needs
