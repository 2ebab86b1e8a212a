"""Tests of the simulated world (nodes, pods, queues, failures) in tables of small cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dnm.simulate.batch import BatchSide, SimJob
from dnm.simulate.values import HOUR, Ask, Workload
from dnm.simulate.world import NobodyLends, World
from tests.economy.autoscalers import ClusterAutoscalerPolicy, KarpenterPolicy
from tests.economy.bound import oracle, volume
from tests.economy.building import CPU_NODE, ask, free, limit, workload

QUEUE = "root.q"


def small(
    asks: list[Ask], cores: int = 1000, permanent_cores: int = 16, lasts: float = 6 * HOUR
) -> Workload:
    limits = {QUEUE: limit(cores, 4 * cores)}
    permanent = (free(permanent_cores, 4 * permanent_cores),)
    return workload("small", asks, limits, permanent, {"n": (QUEUE, "a")}, 1, lasts, jobs=())


def played(asks: list[Ask], **changes: object) -> World:
    world = World(replace(small(asks), **changes))  # type: ignore[arg-type]
    world.play(ClusterAutoscalerPolicy())
    return world


class Clock:
    """A clock that calls functions in the order of their times."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, int, object]] = []

    def at(self, when: float, callback: object) -> None:
        self.calls.append((when, len(self.calls), callback))

    def run(self) -> None:
        while self.calls:
            self.calls.sort(key=lambda pair: pair[:2])
            _, _, subject = self.calls.pop(0)
            subject()  # type: ignore[operator]


def job(at: float, nodes: int, lasts: float, bound: float | None = None) -> SimJob:
    return SimJob(at=at, nodes=nodes, lasts=lasts, limit=lasts if bound is None else bound)


# Four nodes; the first job takes three of them for 100 s.
BACKFILL = {
    "one node fits beside the first": ([job(0, 3, 100), job(0, 1, 50)], [0, 0]),
    "the second waits for the first to end": ([job(0, 3, 100), job(0, 2, 50)], [0, 100]),
    "a short one runs before it": ([job(0, 3, 100), job(0, 4, 50), job(0, 1, 90)], [0, 100, 0]),
    "one that would delay it does not": (
        [job(0, 3, 100), job(0, 4, 50), job(0, 1, 200)],
        [0, 100, 150],
    ),
    "by its limit, not by what it needs": (
        [job(0, 3, 100), job(0, 4, 50), job(0, 1, 90, 200)],
        [0, 100, 150],
    ),
    "on nodes that the first in line leaves over": (
        [job(0, 3, 100), job(0, 2, 50), job(0, 1, 200)],
        [0, 100, 0],
    ),
}


@pytest.mark.parametrize("case", BACKFILL)
def test_backfill_does_not_delay_the_first_waiting_job(case: str) -> None:
    jobs, expected = BACKFILL[case]
    clock = Clock()
    side = BatchSide(dict.fromkeys(("a1", "a2", "a3", "a4"), 0.0), clock.at)
    for item in jobs:
        side.submit(item, 0.0)
    clock.run()
    waits = {id(entry): wait for entry, wait in side.waits}
    assert [waits[id(entry)] for entry in jobs] == expected


def test_node_is_lent_only_after_ten_idle_minutes() -> None:
    side = BatchSide({"a1": 0.0, "a2": 500.0}, Clock().at)
    assert side.lendable(599.0) == []
    assert side.lendable(600.0) == ["a1"]
    assert side.lendable(1100.0) == ["a1", "a2"]


@pytest.mark.parametrize(
    ("running", "waiting", "lendable"),
    [
        ([], [], {"a1", "a2", "a3", "a4"}),
        ([job(0, 2, 100)], [], {"a3", "a4"}),
        # With a1 and a2, which are free then, it will have a3.
        ([job(0, 2, 100)], [job(0, 3, 50)], {"a4"}),
        ([job(0, 2, 100)], [job(0, 4, 50)], set()),
        # Slurm plans nothing for a job that is larger than its cluster.
        ([job(0, 2, 100)], [job(0, 9, 50)], {"a3", "a4"}),
    ],
)
def test_node_planned_for_the_first_waiting_job_is_not_lent(
    running: list[SimJob], waiting: list[SimJob], lendable: set[str]
) -> None:
    side = BatchSide(dict.fromkeys(("a1", "a2", "a3", "a4"), -600.0), Clock().at)
    for item in (*running, *waiting):
        side.submit(item, 0.0)
    assert set(side.lendable(0.0)) == lendable


def test_pods_are_packed_by_cores_and_memory() -> None:
    """A pod goes to the node with the smaller free share of its size, not with fewer free cores."""
    permanent = ({"cpu": 64_000, "memory": 256 * 10**9, "pods": 110},
                 {"cpu": 48_000, "memory": 128 * 10**9, "pods": 110})  # fmt: skip
    asks = [ask(0.0, HOUR, 60, 10, QUEUE), ask(1.0, HOUR, 2, 2, QUEUE)]
    world = World(replace(small(asks), free=permanent, lasts=60.0))
    world.play(NobodyLends())
    assert [pod.node for _, _, pod in sorted(world.trace, key=lambda pair: pair[2].number)] == [
        "k000", "k000"
    ]  # fmt: skip


def test_gang_starts_together() -> None:
    members = [replace(ask(0.0, HOUR, 16, 16, QUEUE), gang=1) for _ in range(3)]
    world = played(members)
    ends = {end for _, end, _ in world.trace}
    assert len(ends) == 1
    assert len(set(world.ledger.waits)) == 1
    assert world.ledger.waits[0] > 300, "it starts once the last pod has a node, which must boot"


def test_incomplete_gang_starts_with_the_members_that_fit() -> None:
    members = [replace(ask(0.0, HOUR, 16, 16, QUEUE), gang=1) for _ in range(3)]
    world = World(small(members))
    world.play(NobodyLends())
    # Capacity for one at a time: the first starts after the placeholders' timeout, then the next.
    assert sorted(world.ledger.waits) == [900.0, 900.0 + HOUR, 900.0 + 2 * HOUR]


def test_failed_conversion_costs_time_and_brings_no_node() -> None:
    world = played([ask(0.0, HOUR, 32, 32, QUEUE)], fails=1.0)
    assert world.ledger.conversions > 10
    assert world.ledger.failures >= world.ledger.conversions - 1  # one is running at the end
    assert world.ledger.unserved == 1
    assert world.ledger.booting == pytest.approx(world.ledger.lent)


@pytest.mark.parametrize(("rests", "fewest", "most"), [(False, 10, 99), (True, 2, 6)])
def test_failed_node_pauses_longer_each_time(rests: bool, fewest: int, most: int) -> None:
    """In six hours, the only node fails again after pauses of 20, 40, 80 and 160 minutes."""
    entry = {"a": replace(CPU_NODE, count=1)}
    asks = [ask(0.0, HOUR, 32, 32, QUEUE)]
    world = played(asks, classes=entry, broken=frozenset(("a001",)), rests=rests)
    assert fewest <= world.ledger.failures <= most


def test_lent_hours_are_work_idle_and_boot_hours() -> None:
    world = played([ask(60.0, HOUR, 32, 32, QUEUE)])
    assert world.ledger.conversions == 1
    assert world.ledger.lent == pytest.approx(HOUR + world.ledger.idle + world.ledger.booting)


def test_moved_pod_restarts_and_its_wait_includes_the_move() -> None:
    """When the first pod ends, Karpenter's rule moves the second one to the permanent node."""
    asks = [ask(0.0, HOUR, 16, 16, QUEUE), ask(1.0, 3 * HOUR, 16, 16, QUEUE)]
    world = World(small(asks))
    world.play(KarpenterPolicy())
    assert world.ledger.moved == 1
    assert max(world.ledger.waits) == pytest.approx(HOUR, abs=60)


def test_oracle_includes_a_pod_bound_at_the_last_moment() -> None:
    """A pod that is bound as the play ends uses no time, so its end could sort before its start."""
    lasts = 2 * HOUR
    world = World(small([ask(0.0, HOUR, 32, 32, QUEUE), ask(lasts, HOUR, 16, 16, QUEUE)]))
    world = World(replace(world.workload, asks=(*world.workload.asks,), lasts=lasts))
    world.play(ClusterAutoscalerPolicy())
    assert any(start == end for start, end, _ in world.trace), "else this shows nothing"
    assert volume(world) <= oracle(world) <= world.ledger.lent


def test_oracle_places_pods_by_their_end() -> None:
    """Two long and two short pods fit two on a node. If pods with equal ends share a node, the
    second node is needed for one hour, otherwise for four."""
    lengths = (4 * HOUR, 1 * HOUR, 4 * HOUR, 1 * HOUR)
    asks = [ask(float(n), length, 64, 100, QUEUE) for n, length in enumerate(lengths)]
    world = played(asks, lasts=8 * HOUR)
    boots = 2 * (480 + 600)
    assert oracle(world) == pytest.approx(5 * HOUR + boots, rel=0.02)
