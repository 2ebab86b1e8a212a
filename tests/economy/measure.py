"""Plays the workloads under the policies and puts the figures side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.economy.bound import oracle, volume
from tests.economy.dnm_policy import DnmPolicy
from tests.economy.policies import NodePerPodPolicy, PredecessorPolicy
from tests.economy.workloads import ALL
from tests.economy.world import HOUR, Policy, Workload, World

POLICIES: dict[str, Callable[[Workload], Policy]] = {
    "dnm": lambda workload: DnmPolicy(workload, headroom=1.0),
    "predecessor": lambda workload: PredecessorPolicy(headroom=1.0),
    "node per pod": lambda workload: NodePerPodPolicy(),
    "dnm, headroom 0.95": lambda workload: DnmPolicy(workload, headroom=0.95),
    "predecessor, 0.95": lambda workload: PredecessorPolicy(headroom=0.95),
}


@dataclass(frozen=True)
class Row:
    """One workload under one policy; hours, and pod-minutes waited. `oracle`, `volume`: the
    node-hours of the two bounds, for the same waiting."""

    workload: str
    policy: str
    waited: float
    lent: float
    idle: float
    conversions: int
    unserved: int
    oracle: float
    volume: float


def measure(workload: Workload, policy_name: str) -> Row:
    world = World(workload)
    ledger = world.play(POLICIES[policy_name](workload))
    return Row(
        workload=workload.name,
        policy=policy_name,
        waited=ledger.waited / 60,
        lent=ledger.lent / HOUR,
        idle=ledger.idle / HOUR,
        conversions=ledger.conversions,
        unserved=ledger.unserved,
        oracle=oracle(world) / HOUR,
        volume=volume(world) / HOUR,
    )


def print_table(lasts: float) -> None:
    head = ("workload", "policy", "pod-minutes waited", "node-hours lent", "of them idle",
            "conversions", "clairvoyant", "ratio", "no schedule below", "never ran")  # fmt: skip
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    rows = []
    for make in ALL:
        for name in POLICIES:
            rows.append(measure(make(lasts), name))
            print(_line(rows[-1]), flush=True)
    print()
    for name in POLICIES:
        print(_sum(name, [row for row in rows if row.policy == name]))


def _line(row: Row) -> str:
    ratio = f"{row.lent / row.oracle:.2f}" if row.oracle else "-"
    return (
        f"| {row.workload} | {row.policy} | {row.waited:,.0f} | {row.lent:,.1f} | {row.idle:,.1f} "
        f"| {row.conversions} | {row.oracle:,.1f} | {ratio} | {row.volume:,.1f} | {row.unserved} |"
    )


def _sum(name: str, rows: list[Row]) -> str:
    ratios = [row.lent / row.oracle for row in rows if row.oracle]
    return (
        f"{name}: {sum(row.waited for row in rows):,.0f} pod-minutes waited, "
        f"{sum(row.lent for row in rows):,.0f} node-hours lent, "
        f"{sum(row.conversions for row in rows)} conversions, on average "
        f"{sum(ratios) / len(ratios):.2f} times the clairvoyant's node-hours"
    )
