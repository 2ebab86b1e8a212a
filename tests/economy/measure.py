"""Functions that play the workloads under the policies and compare the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from statistics import fmean

import msgspec

from dnm.simulate.measure import Figures, play
from dnm.simulate.values import HOUR, Workload
from dnm.simulate.world import NobodyLends, Policy
from tests.economy.autoscalers import ClusterAutoscalerPolicy, KarpenterPolicy
from tests.economy.bound import oracle, volume
from tests.economy.dnm_policy import DnmPolicy, MinutePolicy
from tests.economy.policies import PredecessorPolicy
from tests.economy.public_shapes import scarce_nodes, three_queues
from tests.economy.workloads import ALL

POLICIES: dict[str, Callable[[Workload], Policy]] = {
    "dnm": DnmPolicy,
    "predecessor": lambda workload: PredecessorPolicy(),
    "cluster-autoscaler": lambda workload: ClusterAutoscalerPolicy(),
    "cluster-autoscaler, a minute": lambda workload: ClusterAutoscalerPolicy(60.0),
    "Karpenter": lambda workload: KarpenterPolicy(),
    "nobody lends": lambda workload: NobodyLends(),
}

# dnm without one of its rules.
WITHOUT: dict[str, Callable[[Workload], Policy]] = {
    "joins seen a minute later": lambda workload: MinutePolicy(workload),
    "a grace of a minute": lambda workload: DnmPolicy(workload, pending_grace=timedelta(minutes=1)),
    "headroom 0.95": lambda workload: DnmPolicy(workload, headroom=0.95),
}

# dnm with nodes that change their queue without a reboot, where queues share few nodes.
WITH_MOVES: dict[str, Callable[[Workload], Policy]] = {
    "moves in place": lambda workload: DnmPolicy(workload, move_in_place=True),
}
WITH_FEW_NODES: tuple[Callable[[int, float], Workload], ...] = (three_queues, scarce_nodes)


class Row(Figures):
    """The figures of one workload under one policy. `oracle` and `volume` are the lower bounds of
    node-hours in tests/economy/bound.py, which only rows of dnm have."""

    workload: str
    policy: str
    seed: int
    oracle: float
    volume: float


def measure(workload: Workload, policy: str) -> Row:
    make = {**POLICIES, **WITHOUT, **WITH_MOVES}[policy]
    return measure_policy(workload, policy, make(workload))


def measure_policy(workload: Workload, name: str, policy: Policy) -> Row:
    """Plays one workload under a policy. Returns the figures."""
    world, figures = play(workload, policy)
    is_dnm = isinstance(policy, DnmPolicy)
    if isinstance(policy, DnmPolicy):
        assert not policy.errors, policy.errors
    return Row(
        workload=workload.name,
        policy=name,
        seed=workload.seed,
        oracle=oracle(world) / HOUR if is_dnm else 0.0,
        volume=volume(world) / HOUR if is_dnm else 0.0,
        **msgspec.structs.asdict(figures),
    )


def measure_all(
    lasts: float,
    seeds: Sequence[int],
    policies: Iterable[str],
    workloads: Sequence[Callable[[int, float], Workload]] = ALL,
) -> list[Row]:
    """Plays every workload under every policy with every seed, in two processes."""
    cases = [
        (workload, seed, lasts, policy)
        for workload in workloads
        for policy in policies
        for seed in seeds
    ]
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(_measure_case, cases, chunksize=1))


def _measure_case(case: tuple[Callable[[int, float], Workload], int, float, str]) -> Row:
    make, seed, lasts, policy = case
    return measure(make(seed, lasts), policy)


PRICES = (0.1, 0.3, 1.0)  # the cost of a minute of a waiting pod, in node-minutes
COMPARED = ("dnm", "predecessor", "cluster-autoscaler, a minute", "Karpenter")


def worth(row: Figures, price: float) -> float:
    """Returns a policy's cost: lent node-hours, plus `price` for each hour that a pod waits."""
    return row.lent + price * row.pods.total / 60


def list_prices(rows: Sequence[Row]) -> Iterable[str]:
    """Yields CSV lines: the cost of each workload, and of all together, under each policy at each
    price, as means over the seeds."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    seeds = len({row.seed for row in rows})
    cells = ("pod-minutes", "node-hours", "conversions", "to and fro", *(f"J {p}" for p in PRICES))
    yield "workload,policy," + ",".join(cells)
    for workload in (*dict.fromkeys(row.workload for row in rows), "all"):
        for policy in policies:
            some = [r for r in rows if r.policy == policy and workload in (r.workload, "all")]
            values = [
                sum(row.pods.total for row in some),
                sum(row.lent for row in some),
                sum(row.conversions for row in some),
                sum(row.short for row in some),
                *(sum(worth(row, price) for row in some) for price in PRICES),
            ]
            yield f'"{workload}","{policy}",' + ",".join(f"{v / seeds:.1f}" for v in values)


HEAD = (
    "workload", "policy", "pods waited", "95th", "longest", "jobs waited", "95th", "longest",
    "node-hours", "to the bound", "idle", "booting", "conversions", "failed", "back within 30 min",
)  # fmt: skip


def list_lines(rows: Sequence[Row]) -> Iterable[str]:
    """Yields a table with a line for each workload and policy: means over seeds, longest waits."""
    yield "| " + " | ".join(HEAD) + " |"
    yield "|" + "---|" * len(HEAD)
    for workload in dict.fromkeys(row.workload for row in rows):
        for policy in dict.fromkeys(row.policy for row in rows):
            some = [row for row in rows if (row.workload, row.policy) == (workload, policy)]
            yield _line(workload, policy, some)
    for policy in dict.fromkeys(row.policy for row in rows):
        yield _line("**all**", policy, [row for row in rows if row.policy == policy])


def _line(workload: str, policy: str, rows: Sequence[Row]) -> str:
    seeds = len({row.seed for row in rows})

    def per_seed(of: Callable[[Row], float]) -> float:
        return sum(map(of, rows)) / seeds

    bound = per_seed(lambda row: row.oracle)
    lent = per_seed(lambda row: row.lent)
    cells = [
        f"{per_seed(lambda row: row.pods.total):,.0f}",
        f"{fmean(row.pods.late for row in rows):,.1f}",
        f"{max(row.pods.longest for row in rows):,.0f}",
        f"{per_seed(lambda row: row.jobs.total):,.0f}",
        f"{fmean(row.jobs.late for row in rows):,.0f}",
        f"{max(row.jobs.longest for row in rows):,.0f}",
        f"{lent:,.0f}",
        f"{lent / bound:.2f}" if bound >= 1 else "–",
        f"{per_seed(lambda row: row.idle):,.0f}",
        f"{per_seed(lambda row: row.booting):,.1f}",
        f"{per_seed(lambda row: row.conversions):,.0f}",
        f"{per_seed(lambda row: row.failures):,.1f}",
        f"{per_seed(lambda row: row.short):,.0f}",
    ]
    return f"| {workload} | {policy} | " + " | ".join(cells) + " |"
