"""A comparison of the forecast of `dnm simulate` with the simulation that wrote the history. It
covers a day of the twenty-four older workloads, with a run each minute.

    python -m tests.economy.recorded [HOURS [WORKLOAD ...]]

`dnm simulate --jobs` replays the history, under the same configuration. If conversions
fail, the forecast is the mean of five draws."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from statistics import fmean

from dnm.model.history import HistoryLine
from dnm.model.plan import Plan
from dnm.record.demand_lines import list_demand
from dnm.record.transitions import Cause, list_transitions
from dnm.simulate.accounting import parse_jobs
from dnm.simulate.compare import play_under
from dnm.simulate.measure import play
from dnm.simulate.replay import Reader, make_workload
from dnm.simulate.values import HOUR, Workload
from dnm.simulate.world import World
from tests.economy import everyday, public_shapes
from tests.economy.dnm_policy import DnmPolicy
from tests.economy.played import NODE_HOURS, WAITS, Case, Outcome
from tests.economy.workloads import ALL

OLDER: tuple[Callable[[int, float], Workload], ...] = (
    *ALL[:6], *public_shapes.ALL, *everyday.ALL,
)  # fmt: skip
DRAWS = 5  # of failing conversions
SHARES = {"lent": NODE_HOURS, "waited": WAITS}


class RecordingPolicy(DnmPolicy):
    """A dnm that plans in each run and keeps its history: `lines` (nodes, requests), `demand`."""

    may_rest = False

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload, demand_keep=timedelta(days=90))
        self.lines: list[HistoryLine] = []
        self.demand: list[HistoryLine] = []
        self._last: dict[str, HistoryLine] = {}
        self._now = workload.begins

    def run(self, world: World) -> float:
        self._now = self._begins + timedelta(seconds=world.now)
        return super().run(world)

    def _note_errors(self, plan: Plan) -> None:
        """Records the history lines of a run while the previous registry still exists."""
        super()._note_errors(plan)
        cause = Cause(
            now=self._now, run=plan.run, instance=self._config.instance_id,
            nodes={entry.node: entry for entry in plan.nodes}, decisions=plan.decisions,
        )  # fmt: skip
        some = list_transitions(self._registry, plan.registry, cause)
        self.lines += [line for line in some if line.kind in ("node", "request")]
        new = list_demand(plan.kinds, self._last.values(), cause, plan.node_capacities)
        self._last |= {line.object: line for line in new}
        self.demand += new

    def replayed(self, world: World, seed: int) -> Workload:
        """Returns the workload that `dnm simulate` makes of the recorded history."""
        workload, reader = world.workload, Reader()
        for line in (*self.lines, *self.demand):
            reader.add(line)
        until = workload.begins + timedelta(seconds=workload.lasts)
        recorded = reader.close(self._registry, workload.begins, until)
        jobs = parse_jobs(self._sacct(world), recorded.since, until, self._config.type_of)
        return make_workload(recorded, self._config, self._registry, jobs, seed)

    def _sacct(self, world: World) -> str:
        """Returns the jobs that have begun as text in the form of sacct."""
        lines = []
        for name, side in world.batch.items():
            for job, waited in side.waits:
                start = job.at + waited
                times = (f"{self._begins + timedelta(seconds=one):%Y-%m-%dT%H:%M:%S}"
                         for one in (job.at, start, start + job.lasts))  # fmt: skip
                nodes = f"{name}[001-{world.workload.classes[name].count:03}]"
                lines.append("|".join((*times, str(job.nodes), f"{job.limit // 60:.0f}", nodes)))
        return "\n".join(lines)


def compare(workload: Workload) -> Case:
    """Plays a workload, then replays its history. Returns the figures of both."""
    policy = RecordingPolicy(workload)
    world, true = play(workload, policy)
    assert not policy.errors, policy.errors
    draws = []
    for seed in range(1, 1 + (DRAWS if workload.fails else 1)):
        figures, errors = play_under(policy.replayed(world, seed), policy._config)
        assert not errors, errors
        draws.append(figures)
    told = Outcome(fmean(one.lent for one in draws), fmean(one.pods.total for one in draws))
    return Case(workload.name, Outcome(true.lent, true.pods.total), told)


def main(hours: float, names: Iterable[str]) -> None:
    """Prints a line for each workload, and for how many the forecast is close to the play."""
    cases = []
    print("| workload | node-hours | simulated | minutes waited | simulated | near |")
    print("|---|---|---|---|---|---|")
    for make in OLDER:
        if names and make.__name__ not in names:
            continue
        case = compare(make(1, hours * HOUR))
        cases.append(case)
        near = ", ".join(field for field in SHARES if case.is_near(field, SHARES[field]))
        print(
            f"| {case.name} | {case.played.lent:.1f} | {case.replayed.lent:.1f} | "
            f"{case.played.waited:,.0f} | {case.replayed.waited:,.0f} | {near} |",
            flush=True,
        )
    for field, share in SHARES.items():
        print(f"{field}: {sum(case.is_near(field, share) for case in cases)} of {len(cases)}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 24.0, sys.argv[2:])
