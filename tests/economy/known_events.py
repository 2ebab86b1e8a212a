"""What it saves and costs if dnm knows a calendar of the workshops (the key `calendar`)."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta

from dnm.model.calendar import CalendarEvent
from dnm.model.observed import LendTimes
from dnm.simulate.values import MONDAY, WEEK, Workload
from tests.economy.dnm_policy import DnmPolicy
from tests.economy.measure import Row, measure_policy
from tests.economy.workloads import list_workshops, workshops

SEEDS = range(1, 6)


def events_of(seed: int) -> tuple[CalendarEvent, ...]:
    """Returns the workshops as events of a calendar, with people and hours."""
    begins = MONDAY.replace(tzinfo=None)
    return tuple(
        CalendarEvent(
            name=f"workshop-{number}",
            namespace="workshop",
            begins=begins + timedelta(seconds=pair.begins),
            ends=begins + timedelta(seconds=pair.ends),
            pods=pair.people,
            request={"cpu": 4000, "memory": 16 * 10**9},
        )
        for number, pair in enumerate(list_workshops(seed))
    )


def measure_calendar(seed: int, has_jobs: bool) -> tuple[Row, Row]:
    """Plays a week without and with the calendar, for a dnm that has measured lend times before. If
    `has_jobs` is false, all nodes of Slurm are idle."""
    workload: Workload = workshops(seed, WEEK)
    workload = workload if has_jobs else replace(workload, jobs=())
    without = measure_policy(workload, "not known", DnmPolicy(workload))
    dnm_policy = DnmPolicy(workload, calendar_events=events_of(seed))
    dnm_policy._record(lend_times={"a": LendTimes(lends=(600,) * 10, returns=(720,) * 10)})
    return without, measure_policy(workload, "known", dnm_policy)


def main() -> None:
    """Prints a line for each seed and one for all. The argument `idle` removes Slurm's jobs."""
    rows = [measure_calendar(seed, has_jobs="idle" not in sys.argv) for seed in SEEDS]
    print("| seed | minutes waited | with events | node-hours | with events |")
    print("|---|---|---|---|---|")
    for seed, pair in zip(SEEDS, rows, strict=True):
        print(_line(str(seed), [pair]))
    print(_line("all", rows))


def _line(name: str, rows: list[tuple[Row, Row]]) -> str:
    waited = [sum(pair[side].pods.total for pair in rows) for side in (0, 1)]
    lent = [sum(pair[side].lent for pair in rows) for side in (0, 1)]
    return (
        f"| {name} | {waited[0]:,.0f} | {waited[1]:,.0f} | {lent[0]:.0f} | {lent[1]:.0f} "
        f"({100 * (lent[1] / lent[0] - 1):+.0f} %) |"
    )


if __name__ == "__main__":
    main()
