"""What the record keeps of warm nodes that went unused: written when one goes, until pods wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dnm.model.registry import Phase
from dnm.model.verdict import Reason
from dnm.simulate.values import HOUR, Ask
from dnm.simulate.world import World as Cluster
from tests.economy.building import ask, free, limit, workload
from tests.economy.dnm_policy import DnmPolicy
from tests.plan.worlds import LONG_AGO, NOW, QUEUE, World, pods


@pytest.mark.parametrize(
    ("some", "queue", "kept"),
    [
        pytest.param((), QUEUE, True, id="nobody waits"),
        pytest.param(pods(40), QUEUE, False, id="pods wait for a node"),
        pytest.param((), "root.gone", False, id="a queue that is not looked after any more"),
    ],
)
def test_the_record_lasts_until_pods_wait(some: tuple, queue: str, kept: bool) -> None:  # type: ignore[type-arg]
    world = World().recorded(unbuffered={queue: LONG_AGO}).with_pods(*some)
    assert (queue in world.plan().registry.unbuffered) is kept


def played(asks: list[Ask], **changes: object) -> tuple[Cluster, DnmPolicy]:
    """Ten hours of a queue that stands at its limit."""
    queue = "root.q"
    stands = [ask(float(number), 24 * HOUR, 8, 16, queue) for number in range(10)]
    site = workload(
        "full", [*stands, *asks], {queue: limit(80, 160)}, (free(80, 160),),
        {"n": (queue, "a")}, 1, 10 * HOUR, jobs=(),
    )  # fmt: skip
    cluster, policy = Cluster(site), DnmPolicy(site, **changes)
    cluster.play(policy)
    return cluster, policy


def test_a_queue_that_stands_at_its_limit_keeps_no_node_for_nobody() -> None:
    cluster, _ = played([])
    assert cluster.ledger.conversions == 1
    assert 1.0 < cluster.ledger.lent / HOUR < 1.7  # an hour, and the boots


def test_it_is_lent_one_again_once_pods_have_waited() -> None:
    late = ask(5 * HOUR, 600, 8, 16, "root.q")
    cluster, _ = played([late])
    assert cluster.ledger.conversions == 2
    assert 5 < max(cluster.ledger.waits) / 60 < 13


def test_switched_off_it_stays() -> None:
    cluster, _ = played([], headroom_idle=timedelta(0))
    assert cluster.ledger.conversions == 1
    assert cluster.ledger.lent / HOUR > 9.8


def test_the_run_that_releases_says_so_and_writes_it_down() -> None:
    world = World().lent("a001", Phase.SERVING, idle_since=LONG_AGO).node("a001")
    world.configured(headroom=0.01)  # any use at all is above the mark
    world.with_pods(*pods(1, node="k1"))
    after = world.fates()
    assert after.verdicts["a001"].reason is Reason.UNUSED
    assert after.registry.unbuffered == {QUEUE: NOW}


@pytest.mark.parametrize(
    ("was_used", "keep", "unbuffered"),
    [
        pytest.param(False, timedelta(hours=1), [QUEUE], id="unused"),
        pytest.param(True, timedelta(hours=1), [], id="used"),
        pytest.param(False, timedelta(0), [], id="unused, and the rule is off"),
    ],
)
def test_a_node_that_goes_unused_is_not_lent_again_for_headroom(
    was_used: bool, keep: timedelta, unbuffered: list[str]
) -> None:
    """Also where it goes sooner than after its hour, since demand fell below the mark."""
    world = World().lent("a001", Phase.SERVING, idle_since=LONG_AGO, was_used=was_used)
    after = world.node("a001").configured(headroom_idle=keep).fates()
    assert after.verdicts["a001"].reason is Reason.IDLE_LONG_ENOUGH
    assert list(after.registry.unbuffered) == unbuffered


def test_warm_nodes_that_went_unused_are_not_held_against_pods() -> None:
    """A large queue gets three warm nodes at once, which nobody needs: no breaker stands open when
    pods come that do."""
    queue = "root.q"
    stands = [ask(float(number), 24 * HOUR, 8, 16, queue) for number in range(130)]
    late = [ask(5 * HOUR, HOUR, 8, 16, queue) for _ in range(40)]
    site = workload(
        "large", [*stands, *late], {queue: limit(1040, 2080)}, (free(1040, 2080),) * 2,
        {"n": (queue, "a")}, 1, 10 * HOUR, jobs=(),
    )  # fmt: skip
    site = replace(site, free=({**site.free[0], "pods": 1000},))
    cluster, policy = Cluster(site), DnmPolicy(site, headroom=0.8)
    cluster.play(policy)
    assert cluster.ledger.conversions >= 6, "three warm ones, and three for the pods"
    assert max(cluster.ledger.waits) < 15 * 60
