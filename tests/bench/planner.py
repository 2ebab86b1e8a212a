"""The CPU time of `make_plan` in a large installation: 5,000 batch nodes, 40 queues, 8,000 pods.

    python -m tests.bench.planner

The world is that of `dnm simulate`, with a run each minute for three hours. Each queue gets 200
pods in the first hour, so that all pods exist at its end, on about 500 lent nodes.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace
from statistics import fmean

from dnm.model.value import Unreadable
from dnm.plan.planner import make_plan
from dnm.simulate.measure import play
from dnm.simulate.values import HOUR, Workload
from dnm.simulate.world import World
from tests.economy.building import CPU_NODE, ask, free, limit, workload
from tests.economy.dnm_policy import AwakePolicy

NODES, QUEUES, PODS, CAP = 5_000, 40, 8_000, 600
LASTS = 3 * HOUR


class TimedPolicy(AwakePolicy):
    """A dnm that plans in each run. `seconds` are the plans' CPU times; `pods` is the most pods."""

    def __init__(self, of: Workload) -> None:
        super().__init__(of)
        self.seconds: list[float] = []
        self.pods = 0

    def run(self, world: World) -> float:
        snapshot = self.snapshot(world)
        assert not isinstance(snapshot.pods, Unreadable)
        self.pods = max(self.pods, len(snapshot.pods.pods))
        began = time.process_time()
        make_plan(self._config, self._registry, snapshot)
        self.seconds.append(time.process_time() - began)
        return super().run(world)


def large_site() -> Workload:
    """Returns a workload for 40 queues. Its pods run for up to two hours and have five sizes."""
    source = random.Random(1)
    queues = [f"root.anvil.team{number:02}" for number in range(QUEUES)]
    asks = [
        ask(source.uniform(0, HOUR), source.uniform(1, 2) * HOUR, cores, 2 * cores, queue)
        for queue in queues
        for cores in source.choices((2, 4, 8, 8, 16), k=PODS // QUEUES)
    ]
    site = workload(
        "a large site",
        asks,
        {"root.anvil": limit(200_000, 400_000)} | {queue: limit(64, 128) for queue in queues},
        (free(64, 128),) * QUEUES,
        {queue.rpartition(".")[2]: (queue, "a") for queue in queues},
        1,
        LASTS,
        jobs=(),
        cap=CAP,
    )
    return replace(site, classes={"a": replace(CPU_NODE, count=NODES)})


def main() -> int:
    """Prints the mean and the maximum CPU time of a plan. Returns 1 if a plan has an error."""
    site = large_site()
    policy = TimedPolicy(site)
    _, figures = play(site, policy)
    seconds = policy.seconds
    print(
        f"{NODES:,} batch nodes, {QUEUES} queues, {policy.pods:,} pods at most, "
        f"{figures.conversions} conversions, {len(seconds)} plans: "
        f"{fmean(seconds) * 1000:.0f} ms of CPU in the mean, {max(seconds) * 1000:.0f} ms at most"
    )
    for error in policy.errors:
        print(error, file=sys.stderr)
    return 1 if policy.errors else 0


if __name__ == "__main__":
    sys.exit(main())
