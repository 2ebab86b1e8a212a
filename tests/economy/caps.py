"""The effect of a cap on jobs, by their size and the load of Slurm (`python -m tests.economy DAYS
SEEDS caps`): two workloads that lend much, forty nodes, and caps in percent of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from dnm.simulate.measure import play
from tests.economy.building import CPU_NODE, jobs
from tests.economy.dnm_policy import DnmPolicy
from tests.economy.everyday import three_tenants
from tests.economy.public_shapes import gangs

LOADS = (0.5, 0.7, 0.9)
PERCENTS = (0, 5, 10, 20, 75)
LARGE = 8  # nodes of a job


class CapRow(NamedTuple):
    """The results of one cap at one load: mean minutes that jobs of one node (`ones`) and larger
    jobs wait, the minutes that pods wait, and the lent node-hours."""

    load: float
    percent: int
    ones: float
    large: float
    pods: float
    lent: float


def measure_caps(lasts: float, seeds: Sequence[int]) -> list[CapRow]:
    """Plays every load under every cap, in two processes. Returns a row for each."""
    cases = [(load, percent) for load in LOADS for percent in PERCENTS]
    with ProcessPoolExecutor(2) as pool:
        futures = [pool.submit(measure_cap, *case, lasts, tuple(seeds)) for case in cases]
        return [future.result() for future in futures]


def measure_cap(load: float, percent: int, lasts: float, seeds: Sequence[int]) -> CapRow:
    """Plays both workloads with this load of jobs and this cap. Returns the means."""
    waits: dict[bool, list[float]] = {False: [], True: []}
    pods, lent = 0.0, 0.0
    for make in (gangs, three_tenants):
        for seed in seeds:
            workload = replace(
                make(seed, lasts),
                jobs=jobs(seed, lasts, load=load),
                cap=CPU_NODE.count * percent // 100,
            )
            world, figures = play(workload, DnmPolicy(workload))
            pods += figures.pods.total / len(seeds)
            lent += figures.lent / len(seeds)
            for side in world.batch.values():
                waiting = [(job, world.now - job.at) for job in side.waiting]
                for job, wait in (*side.waits, *waiting):
                    if job.nodes == 1 or job.nodes >= LARGE:
                        waits[job.nodes >= LARGE].append(wait / 60)
    return CapRow(load, percent, fmean(waits[False]), fmean(waits[True]), pods, lent)


def list_caps(rows: Iterable[CapRow]) -> Iterable[str]:
    """Yields the lines of the table about caps in docs/economy.md."""
    yield "| load | cap | jobs of 1 node | of 8 and 16 | pods waited | node-hours |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        cap = f"{row.percent} %" if row.percent else "nothing lent"
        yield (
            f"| {row.load:.1f} | {cap} | {row.ones:.1f} | {row.large:.0f} | {row.pods:,.0f} "
            f"| {row.lent:.0f} |"
        )
