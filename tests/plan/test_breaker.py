"""Tests of a queue's circuit breaker, which stops lends after unused nodes: what opens it, permits
a retry and closes it. Tests of a node type's back-off after failed conversions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.demand.demand import Demand, QueueDemand
from dnm.model.cluster import QueueLimits
from dnm.model.lent import LentNode, Phase
from dnm.model.observed import Backoff, Breaker
from dnm.model.registry import Registry
from dnm.plan.breaker import (
    ConversionResult,
    after_conversions,
    after_transition,
    allowed_at_once,
    backoff_delay,
    forgive,
    judge_breaker,
    next_chance,
    record_used_quota,
    take_chance,
    with_failure,
)
from dnm.verbs.holds import close_breaker
from tests.builders import NOW, QUEUE, a_config, a_lent_node
from tests.plan.worlds import LONG_AGO, namespace_policy

OTHER = "root.anvil.services.notebook"
CONFIG = a_config()  # 3 unused nodes in a row, a run each minute


def registry(breaker: Breaker | None = None, *nodes: LentNode) -> Registry:
    entries = {f"a{number:03}": node for number, node in enumerate(nodes)}
    return Registry(nodes=entries, breakers={QUEUE: breaker} if breaker else {})


def unused(since: datetime = LONG_AGO, **changes: Any) -> LentNode:
    return a_lent_node(since=since, was_used=False, **changes)


# --- what trips it ---------------------------------------------------------------------------

TRIPS = [
    pytest.param(registry(), None, id="nothing-happened"),
    pytest.param(registry(Breaker(unused=2)), None, id="one-is-left"),
    pytest.param(registry(Breaker(unused=3)), 3, id="three-are-back"),
    pytest.param(registry(None, unused(), unused()), None, id="two-unused"),
    pytest.param(registry(None, unused(), unused(), unused()), 3, id="three-unused"),
    pytest.param(registry(Breaker(unused=2), unused()), 3,
        id="returned-and-present-are-summed"),
    pytest.param(registry(Breaker(unused=2), a_lent_node(since=LONG_AGO, was_used=True)), None,
        id="a-used-node-does-not-count"),
    pytest.param(registry(Breaker(unused=2), unused(queue=OTHER)), None, id="another-queue's"),
    pytest.param(registry(Breaker(unused=2), unused(phase=Phase.RELEASING)), None,
        id="counted-once-it-was-returned"),
    pytest.param(registry(Breaker(unused=2), unused(NOW - timedelta(seconds=119))), None,
        id="had-less-than-two-intervals"),
    pytest.param(registry(Breaker(unused=2), unused(NOW - timedelta(seconds=120))), 3,
        id="had-two-intervals"),
    pytest.param(registry(Breaker(unused=-2), *[unused()] * 4), None, id="two-are-forgiven"),
    pytest.param(registry(Breaker(unused=-2), *[unused()] * 5), 3, id="three-more-than-forgiven"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "count"), TRIPS)
def test_breaker_trips_at_the_configured_count_of_unused_nodes(
    record: Registry, count: int | None
) -> None:
    tripped = judge_breaker(CONFIG, record, QUEUE, "demand", NOW)
    assert (tripped.unused if tripped else None) == count
    if tripped is not None:
        assert (tripped.tripped_at, tripped.demand, tripped.trips) == (NOW, "demand", 1)


@pytest.mark.parametrize(("kept", "count"), [(0, 4), (1, 3), (2, None), (9, None)])
def test_nodes_kept_by_min_nodes_do_not_trip_the_breaker(kept: int, count: int | None) -> None:
    config = a_config(namespaces=namespace_policy(CONFIG, min_nodes=kept))
    tripped = judge_breaker(config, registry(None, *[unused()] * 4), QUEUE, "demand", NOW)
    assert (tripped.unused if tripped else None) == count


# --- another chance --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trips", "minutes"),
    [
        pytest.param(0, 0, id="of-an-older-record"),
        pytest.param(1, 0, id="first-at-once"),
        pytest.param(2, 2, id="second"),
        pytest.param(3, 4, id="third"),
        pytest.param(4, 8, id="fourth"),
        pytest.param(6, 32, id="sixth"),
        pytest.param(7, 60, id="an-hour-at-most"),
        pytest.param(99, 60, id="never-later"),
    ],
)
def test_each_further_trip_delays_the_next_chance(trips: int, minutes: int) -> None:
    breaker = Breaker(unused=3, tripped_at=NOW, demand="before", trips=trips)
    chance = next_chance(CONFIG, breaker)
    assert chance == NOW + timedelta(minutes=minutes)
    record = registry(breaker)
    assert judge_breaker(CONFIG, record, QUEUE, "after", chance) is None
    early = chance - timedelta(seconds=1)
    assert judge_breaker(CONFIG, record, QUEUE, "after", early) == breaker


@given(trips=st.integers(0, 50), hours=st.integers(0, 1000))
def test_breaker_stays_open_without_a_change_of_demand(trips: int, hours: int) -> None:
    breaker = Breaker(unused=3, tripped_at=NOW, demand="before", trips=trips)
    later = NOW + timedelta(hours=hours)
    assert judge_breaker(CONFIG, registry(breaker), QUEUE, "before", later) == breaker


def test_breaker_trips_again_after_a_further_unused_node() -> None:
    tripped = Breaker(unused=5, tripped_at=LONG_AGO, demand="before", trips=2)
    chance = take_chance(CONFIG, tripped)
    assert chance == Breaker(unused=2, trips=2)
    assert judge_breaker(CONFIG, registry(chance), QUEUE, "after", NOW) is None
    again = judge_breaker(CONFIG, registry(chance, unused()), QUEUE, "after", NOW)
    assert again == Breaker(unused=3, tripped_at=NOW, demand="after", trips=3)


def test_breaker_that_never_tripped_takes_no_chance() -> None:
    assert take_chance(CONFIG, Breaker(unused=1)) == Breaker(unused=1)


@pytest.mark.parametrize(
    ("breaker", "count"),
    [
        pytest.param(None, 4, id="no-breaker"),
        pytest.param(Breaker(unused=2), 4, id="unused-alone"),
        pytest.param(Breaker(unused=2, trips=1), 1, id="after-a-trip"),
        pytest.param(Breaker(unused=2, trips=9), 1, id="after-many"),
    ],
)
def test_tripped_breaker_allows_a_single_node_at_a_time(
    breaker: Breaker | None, count: int
) -> None:
    assert allowed_at_once(breaker, 4) == count


# --- nodes that go back, and nodes that are used ----------------------------------------------

USED, UNUSED = a_lent_node(was_used=True), a_lent_node()
OPEN = Breaker(unused=3, tripped_at=LONG_AGO, trips=1)


@pytest.mark.parametrize(
    ("breaker", "before", "after", "left"),
    [
        pytest.param(None, UNUSED, None, Breaker(unused=1), id="back-unused"),
        pytest.param(Breaker(unused=1), UNUSED, None, Breaker(unused=2), id="one-more"),
        pytest.param(Breaker(unused=-1), UNUSED, None, Breaker(), id="forgiven"),
        pytest.param(
            Breaker(unused=2, trips=1), UNUSED, None, Breaker(unused=3, trips=1), id="trips-stay"
        ),
        pytest.param(OPEN, UNUSED, None, OPEN, id="open-already"),
        pytest.param(None, a_lent_node(counted={}), None, None, id="never-served"),
        pytest.param(Breaker(unused=2, trips=1), USED, None, None, id="back-and-was-used"),
        pytest.param(OPEN, USED, None, None, id="open-and-was-used"),
        pytest.param(OPEN, UNUSED, USED, None, id="is-used-from-now-on"),
        pytest.param(OPEN, USED, USED, OPEN, id="was-used-before-it-tripped"),
        pytest.param(OPEN, UNUSED, UNUSED, OPEN, id="stays-unused"),
    ],
)
def test_node_transition_updates_the_breaker_of_its_queue(
    breaker: Breaker | None, before: LentNode, after: LentNode | None, left: Breaker | None
) -> None:
    other = {OTHER: Breaker(unused=1)}
    breakers = {**other, QUEUE: breaker} if breaker else other
    changed = after_transition(breakers, before, after)
    assert changed == ({**other, QUEUE: left} if left else other)


@pytest.mark.parametrize(
    ("breaker", "left"),
    [
        pytest.param(None, Breaker(unused=-1), id="its-return-will-not-count"),
        pytest.param(Breaker(unused=2), Breaker(unused=1), id="one-less"),
        pytest.param(OPEN, OPEN, id="open-already"),
    ],
)
def test_release_of_an_excused_node_does_not_count(breaker: Breaker | None, left: Breaker) -> None:
    assert forgive({QUEUE: breaker} if breaker else {}, QUEUE) == {QUEUE: left}


# --- used quota ------------------------------------------------------------------------------

COUNTED = {"cpu": 100_000, "memory": 400}
LIMIT = {"cpu": 180_000, "memory": 900, "pods": 10}  # the node brings none of these


@pytest.mark.parametrize(
    ("used", "fixed", "is_credited"),
    [
        pytest.param({}, (), False, id="nothing"),
        pytest.param({"cpu": 80_000, "memory": 500}, (), False, id="as-much-as-without-it"),
        pytest.param({"cpu": 80_001}, (), True, id="more-cores-than-without-it"),
        pytest.param({"memory": 501}, (), True, id="more-memory-than-without-it"),
        pytest.param({"cpu": 80_001}, ("cpu",), False, id="a-limit-that-no-node-moves"),
        pytest.param({"nvidia.com/gpu": 4}, (), False, id="a-resource-without-a-limit"),
        pytest.param({"pods": 10}, (), False, id="only-other-resources"),
    ],
)
def test_used_quota_closes_the_breaker(
    used: dict[str, int], fixed: tuple[str, ...], is_credited: bool
) -> None:
    """A lent node counts as used if its queue uses more than its baseline, even if it is empty."""
    before = registry(OPEN, a_lent_node(counted=COUNTED))
    demand = Demand(queues={QUEUE: QueueDemand(queue=QUEUE, used=used)}, groups=(), nodes={})
    limits = {
        QUEUE: QueueLimits(path=QUEUE, parent=None, is_leaf=True, max=LIMIT, fixed=frozenset(fixed))
    }
    after = record_used_quota(before, {"a000"}, demand, limits)
    assert record_used_quota(before, {"a001"}, demand, limits) == before, (
        "these do not count it yet"
    )
    assert after.nodes["a000"].was_used is is_credited
    assert (QUEUE in after.breakers) is not is_credited
    if not is_credited:
        assert after == before


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(a_lent_node(Phase.RELEASING, counted=COUNTED), id="fenced"),
        pytest.param(a_lent_node(counted=COUNTED, owner="validation"), id="another-instance's"),
        pytest.param(a_lent_node(counted=COUNTED, queue=OTHER), id="of-a-queue-without-limits"),
        pytest.param(a_lent_node(counted=COUNTED, was_used=True), id="was-used-before"),
    ],
)
def test_used_quota_credits_only_serving_nodes_of_this_instance(node: LentNode) -> None:
    before = registry(OPEN, node)
    demand = Demand(queues={QUEUE: QueueDemand(queue=QUEUE, used=LIMIT)}, groups=(), nodes={})
    limits = {QUEUE: QueueLimits(path=QUEUE, parent=None, is_leaf=True, max=LIMIT)}
    assert record_used_quota(before, "prod", demand, limits) == before


# --- a person --------------------------------------------------------------------------------


def test_manual_reset_of_breaker_ignores_nodes_that_are_unused_now() -> None:
    nodes = [
        unused(),
        unused(phase=Phase.RELEASING),
        unused(phase=Phase.RETURNING),
        unused(phase=Phase.JOINING),
        unused(phase=Phase.FAILED),
        unused(queue=OTHER),
        a_lent_node(was_used=True),
    ]
    closed = close_breaker(registry(OPEN, *nodes), QUEUE)
    assert closed == Breaker(unused=-3)


# --- the back-off of a node type -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "minutes"), [(0, 1), (1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (9999, 60)]
)
def test_back_off_doubles_from_the_interval_to_an_hour(failures: int, minutes: int) -> None:
    assert backoff_delay(a_config(), failures) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        pytest.param(None, 4, (1, 4, 0), id="the-first-holds-nothing-back"),
        pytest.param((1, 4), 4, (2, 2, 2), id="the-second-halves"),
        pytest.param((2, 2), 4, (3, 1, 4), id="the-smaller-is-halved"),
        pytest.param((2, 8), 4, (3, 2, 4), id="less-was-asked-than-allowed"),
        pytest.param((7, 1), 1, (8, 1, 60), id="one-at-least"),
    ],
)
def test_back_off_halves_requests_from_the_second_failure_on(
    before: tuple[int, int] | None, asked: int, after: tuple[int, int, int]
) -> None:
    facts = Backoff(failures=before[0], until=NOW, ask_at_most=before[1]) if before else None
    backoff = with_failure(a_config(), facts, asked, NOW, "why")
    assert (backoff.failures, backoff.ask_at_most, backoff.last_error) == (*after[:2], "why")
    assert backoff.until == NOW + timedelta(minutes=after[2])


def _failed(error: str = "why", node_type: str = "a") -> ConversionResult:
    return ConversionResult(node_type=node_type, error=error)


JOINED = ConversionResult(node_type="a")


@pytest.mark.parametrize(
    ("results", "failures"),
    [
        pytest.param([], {"a": 2}, id="nothing"),
        pytest.param([JOINED], {}, id="a-node-has-joined"),
        pytest.param([_failed(), _failed("other")], {"a": 3}, id="once-a-look"),
        pytest.param([_failed(), _failed(node_type="b")], {"a": 3, "b": 1}, id="by-type"),
        pytest.param([JOINED, _failed()], {"a": 1}, id="joined-before-failed"),
        pytest.param([_failed(), JOINED], {}, id="failed-before-joined"),
    ],
)
def test_conversion_results_update_the_back_off_of_each_type_once(
    results: list[ConversionResult], failures: dict[str, int]
) -> None:
    before = {"a": Backoff(failures=2, until=NOW, ask_at_most=1)}
    after = after_conversions(a_config(), before, results, NOW)
    assert {name: backoff.failures for name, backoff in after.items()} == failures
    assert "other" not in {backoff.last_error for backoff in after.values()}
