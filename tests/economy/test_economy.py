"""A small version of the economy benchmark: one day of a few workloads (`python -m tests.economy`
plays all of them, for two days and with five seeds).

The goals hold at the default settings; docs/decisions.md lists those that do not, and why.
"""

from __future__ import annotations

import pytest

from dnm.simulate.measure import play
from dnm.simulate.values import DAY
from dnm.simulate.world import World
from tests.economy.building import MINUTE, ask, free, limit, workload
from tests.economy.dnm_policy import DnmPolicy
from tests.economy.measure import Row, measure
from tests.economy.public_shapes import (
    always_full,
    failing,
    full_batch,
    gangs,
    oscillation,
    workshop_breaks,
)
from tests.economy.workloads import gpu_pods, nightly_batch, workshops
from tests.night import sample_by_day

PLAYED = (
    workshops, nightly_batch, gpu_pods, workshop_breaks, gangs, oscillation, full_batch, failing,
    always_full,
)  # fmt: skip
LENT_FOR_PODS = [make(1, DAY).name for make in PLAYED if make is not always_full]
# The accepted excess where a goal is missed: Slurm is full when the pods start.
TIMES_THE_PREDECESSORS_WAIT = {"batch full by day": 1.05}
# Nodes stay as long as a return costs, and a few pods of hours land on one of them.
TIMES_THE_CLAIRVOYANT = {"workshop bursts": 1.6}


pytestmark = pytest.mark.xdist_group("economy")  # one process builds the fixture's rows once


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], Row]:
    result = [measure(make(1, DAY), policy) for make in PLAYED for policy in ("dnm", "predecessor")]
    return {(row.workload, row.policy): row for row in result}


@pytest.mark.parametrize("workload", LENT_FOR_PODS)
def test_every_pod_runs_within_a_day(rows: dict[tuple[str, str], Row], workload: str) -> None:
    still_converting = 8  # pods of the last minutes
    assert rows[workload, "dnm"].unserved <= still_converting


@pytest.mark.parametrize("workload", LENT_FOR_PODS)
def test_pods_wait_no_longer_than_with_the_predecessor(
    rows: dict[tuple[str, str], Row], workload: str
) -> None:
    own, theirs = rows[workload, "dnm"].pods, rows[workload, "predecessor"].pods
    assert own.total <= TIMES_THE_PREDECESSORS_WAIT.get(workload, 1.0) * theirs.total


@pytest.mark.parametrize("workload", LENT_FOR_PODS)
def test_lent_amount_is_close_to_the_clairvoyant_optimum(
    rows: dict[tuple[str, str], Row], workload: str
) -> None:
    row = rows[workload, "dnm"]
    assert row.volume <= row.oracle * 1.001
    assert row.lent <= TIMES_THE_CLAIRVOYANT.get(workload, 1.35) * row.oracle


def test_dnm_needs_fewer_conversions_than_the_predecessor(rows: dict[tuple[str, str], Row]) -> None:
    def conversions(policy: str) -> int:
        return sum(row.conversions for row in rows.values() if row.policy == policy)

    assert conversions("dnm") <= 0.75 * conversions("predecessor")


def test_full_queue_without_waiting_pods_keeps_no_node(
    rows: dict[tuple[str, str], Row],
) -> None:
    row = rows["full, nobody waits", "dnm"]
    assert row.conversions == 0


class AsksAgain(DnmPolicy):
    """dnm against an adversary who adds pods for ten nodes for a minute, once no node is lent."""

    pods_of_a_node = 1

    def run(self, world: World) -> float:
        began = super().run(world)
        is_lent = any(node.node_type for node in world.nodes.values())
        if not (is_lent or world.pending or "converting" in world.away.values()):
            count = self.pods_of_a_node
            pod = ask(world.now + 1, MINUTE, 100 / count, 100 // count, ASKED)
            for _ in range(10 * count):
                world.at(pod.at, lambda: world._arrive(pod))
        return began


ASKED = "root.asked"


@pytest.mark.parametrize(("pods", "before"), sample_by_day(2, [(16, 340), (50, 349)]))
def test_adversarial_tenant_causes_fewer_conversions(pods: int, before: int) -> None:
    """Plays a day. With a fixed idle time, it took `before` conversions; now it takes 216."""
    limits, permanent = {ASKED: limit(1, 4)}, (free(1, 4),)
    some = workload("asks", [], limits, permanent, {"n": (ASKED, "a")}, 1, DAY, jobs=())
    policy = AsksAgain(some)
    policy.pods_of_a_node = pods
    assert 0 < play(some, policy)[1].conversions <= before * 2 / 3


def test_pauses_slightly_longer_than_the_idle_time_are_learned(
    rows: dict[tuple[str, str], Row],
) -> None:
    """The day has 33 such pauses. dnm learns to keep nodes in them; the predecessor never did."""
    row, theirs = rows["oscillation", "dnm"], rows["oscillation", "predecessor"]
    assert row.conversions <= 10 and theirs.conversions >= 60
