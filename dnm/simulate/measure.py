"""The figures of a simulation: waiting times, node-hours, conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dnm.model.value import Value
from dnm.simulate.values import HOUR, Workload
from dnm.simulate.world import Policy, World


class Waits(Value):
    """Waiting times of pods or jobs in minutes: their sum, 95th percentile and maximum."""

    total: float
    late: float
    longest: float


class Figures(Value):
    """The cost of one policy. In node-hours: `lent` (out of Slurm's service), `idle` (without a pod
    in Kubernetes), `booting` (converted or returned). `short`: nodes lent for under 30 minutes."""

    pods: Waits
    jobs: Waits
    lent: float
    idle: float
    booting: float
    conversions: int
    failures: int
    short: int
    unserved: int
    moved: int


def play(
    workload: Workload, policy: Policy, report: Callable[[float], object] | None = None
) -> tuple[World, Figures]:
    """Simulates a workload under a policy in a new world. The same seed gives the same figures."""
    world = World(workload)
    ledger = world.play(policy, report)
    return world, Figures(
        pods=sum_up(ledger.waits),
        jobs=sum_up(world.job_waits()),
        lent=ledger.lent / HOUR,
        idle=ledger.idle / HOUR,
        booting=ledger.booting / HOUR,
        conversions=ledger.conversions,
        failures=ledger.failures,
        short=ledger.short,
        unserved=ledger.unserved,
        moved=ledger.moved,
    )


def sum_up(seconds: Iterable[float]) -> Waits:
    """Returns sum, 95th percentile and maximum of waits in minutes; zeros if there are no waits."""
    minutes = sorted(second / 60 for second in seconds) or [0.0]
    late = minutes[int(0.95 * (len(minutes) - 1))]
    return Waits(total=sum(minutes), late=late, longest=minutes[-1])
