"""The simulated Slurm: jobs of whole nodes, first come first served, with backfill.

The rule is EASY backfill, as Slurm's sched/backfill does it for the first job in line: that job is
promised the moment at which enough nodes will be free by the time limits of running jobs. A later
job starts before it only if it keeps that promise. Nodes are taken by name, as Slurm does among
equals, so that those with high numbers are idle for longest. As with the shipped converter, idle
nodes that are planned for the first job are not lent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MIN_IDLE = 600.0  # min_idle_seconds of the shipped converter: what is idle for less is not lent


@dataclass(frozen=True)
class SimJob:
    """A job that requests `nodes` whole nodes of a type, and ends before its time limit."""

    at: float
    nodes: int
    lasts: float
    limit: float
    node_type: str = "a"


@dataclass
class BatchSide:
    """The nodes of one type that Slurm has in service, and its queue of jobs. `idle`: node -> the
    start of its idle time. `waits`: each started job and the seconds that it has waited."""

    idle: dict[str, float]
    at: Callable[[float, Callable[[], None]], None]  # calls something back at a time
    waiting: list[SimJob] = field(default_factory=list)
    waits: list[tuple[SimJob, float]] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    # When each running job ends by its limit, and its nodes.
    _ends: dict[int, tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    _number: int = 0

    def submit(self, job: SimJob, now: float) -> None:
        self.waiting.append(job)
        self.start_jobs(now)

    def give(self, name: str, now: float) -> None:
        """Adds a node that is in service in Slurm again, and starts jobs on it."""
        self.idle[name] = now
        self.start_jobs(now)

    def lendable(self, now: float) -> list[str]:
        """Returns the nodes that could be lent, the longest idle first: they have been idle for
        long enough, and no waiting job is planned for them."""
        idle = [name for name, since in self.idle.items() if now - since >= MIN_IDLE]
        planned = self._promise()[1] if idle and self.waiting else frozenset()
        return sorted((name for name in idle if name not in planned),
                      key=lambda name: (self.idle[name], name))  # fmt: skip

    def start_jobs(self, now: float) -> None:
        while self.waiting and self.waiting[0].nodes <= len(self.idle):
            self._start(self.waiting.pop(0), now)
        if not self.waiting or not self.idle:
            return
        promised, _, spare = self._promise()
        for job in list(self.waiting[1:]):
            in_time = now + job.limit <= promised
            if job.nodes <= len(self.idle) and (in_time or job.nodes <= spare):
                self.waiting.remove(job)
                self._start(job, now)
                spare -= 0 if in_time else job.nodes

    def _promise(self) -> tuple[float, frozenset[str], int]:
        """Returns when the first waiting job starts at the latest, by the time limits of running
        jobs, on which nodes, and how many nodes are free then besides."""
        free, first = list(self.idle), self.waiting[0]
        for when, names in sorted(self._ends.values()):
            free += names
            if len(free) >= first.nodes:
                return when, frozenset(sorted(free)[: first.nodes]), len(free) - first.nodes
        return float("inf"), frozenset(), 0  # too few nodes are in service: only a return helps it

    def _start(self, job: SimJob, now: float) -> None:
        taken = sorted(self.idle)[: job.nodes]
        for name in taken:
            del self.idle[name]
        self.busy.update(taken)
        self.waits.append((job, now - job.at))
        self._number += 1
        number = self._number
        self._ends[number] = (now + job.limit, tuple(taken))
        self.at(now + job.lasts, lambda: self._end(number, taken, now + job.lasts))

    def _end(self, number: int, names: list[str], now: float) -> None:
        del self._ends[number]
        self.busy.difference_update(names)
        self.idle |= dict.fromkeys(names, now)
        self.start_jobs(now)
