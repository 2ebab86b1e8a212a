"""Verdicts: which nodes may be lent now, and why others may not. --list and conversions use them.
The module does no I/O.

A node is OK only if its base state is IDLE without any other flag and nothing of a job is on it. It
must not be planned for a pending job, nor reserved now or soon, and must have been idle for long
enough. It is PREEMPT if only single-node jobs of one named user *and* account keep it from OK. All
others are SKIP. Facts that cannot be read raise an error before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from dnm.converters.marks import foreign_reason, maintained_nodes, plain_state
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import Reservation, SlurmJob, SlurmNode
from dnm.model.batch import SlurmReason
from dnm.model.calendar import occurrence_of
from dnm.model.printable import count_of
from dnm.model.slurm_state import in_service_of
from dnm.model.value import Value

NOT_OWN = frozenset(("CLOUD", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "EXTERNAL"))
"""State flags of nodes that join and leave Slurm by other means than a power switch."""
_WHILE_RESERVED = frozenset(("RESERVED", "PLANNED"))


class ListVerdict(Enum):
    OK = "OK"
    PREEMPT = "PREEMPT"
    SKIP = "SKIP"


class SlurmFacts(Value, frozen=True):
    """Slurm's nodes, jobs and reservations, read together."""

    nodes: tuple[SlurmNode, ...]
    jobs: tuple[SlurmJob, ...]
    reservations: tuple[Reservation, ...]
    read_at: datetime

    def in_own_reservations(self, prefix: str) -> set[str]:
        """Returns the nodes in dnm's reservations for conversions, which are named by `prefix`."""
        return {
            node
            for reservation in self.reservations
            for node in reservation.nodes
            if is_own_reservation(reservation, node, prefix)
        }


class Judged(Value, frozen=True):
    """The verdict on a node. `jobs` are on it; `idle` is None if its idle time is unknown."""

    node: SlurmNode
    verdict: ListVerdict
    reason: str
    idle: timedelta | None
    in_service: bool | None
    jobs: tuple[SlurmJob, ...] = ()
    slurm_reason: SlurmReason | None = None  # set for --list


def held(node: Judged, refusal: str) -> Judged:
    """Returns the node as SKIP with reason `refusal`; unchanged if that is empty or it is SKIP."""
    if node.verdict is ListVerdict.SKIP or not refusal:
        return node
    return msgspec.structs.replace(node, verdict=ListVerdict.SKIP, reason=refusal)


class _Index:
    """The settings, and Slurm's jobs and reservations indexed by node."""

    def __init__(self, facts: SlurmFacts, settings: Settings) -> None:
        self.now, self.settings = facts.read_at, settings
        self.jobs: dict[str, list[SlurmJob]] = defaultdict(list)
        self.planned: dict[str, str] = {}
        self.reserved: dict[str, str] = {}
        self.own: dict[str, str] = {}
        self.event_nodes: dict[str, str] = {}  # by dnm, for an event that has begun
        maintained = maintained_nodes(facts.reservations)
        self.foreign = {
            node.name: reason
            for node in facts.nodes
            if (reason := foreign_reason(settings.machines, node, maintained))
        }
        for job in facts.jobs:
            for node in job.nodes:
                self.jobs[node].append(job)
            for node in job.planned_nodes:
                self.planned.setdefault(node, job.display_id)
        ahead: dict[str, str] = {}  # reserved by dnm, for an event that is ahead
        # slurmrestd can't lend a node that dnm reserved for an event, so the node counts as
        # reserved.
        instance = "" if settings.slurmrestd_url else settings.instance
        horizon = facts.read_at + settings.res_lookahead_seconds
        for reservation in facts.reservations:
            if reservation.end is not None and reservation.end < facts.read_at:
                continue
            if reservation.start is not None and reservation.start > horizon:
                continue
            is_begun = reservation.start is not None and reservation.start <= facts.read_at
            for node in reservation.nodes:
                if is_for_own_event(reservation, node, instance):
                    (self.event_nodes if is_begun else ahead).setdefault(node, reservation.name)
                    continue
                is_own = is_own_reservation(reservation, node, settings.res_name)
                (self.own if is_own else self.reserved).setdefault(node, reservation.name)
        for node in ahead.keys() - self.event_nodes.keys():  # else the event of today wins
            self.reserved.setdefault(node, ahead[node])


def is_own_reservation(reservation: Reservation, node: str, prefix: str) -> bool:
    """Returns whether a conversion made this reservation of the node: dnm names it
    `<prefix>-<node>`; node-convert's predecessor had one `<prefix>` for all its nodes."""
    is_of_node = reservation.name == f"{prefix}-{node}" and reservation.nodes == (node,)
    return is_of_node or (reservation.name == prefix and node in reservation.nodes)


def is_for_own_event(reservation: Reservation, node: str, instance: str) -> bool:
    """Returns whether this instance reserved the node, and only this node, for an event."""
    return reservation.nodes == (node,) and bool(occurrence_of(reservation.name, node, instance))


def judge_nodes(facts: SlurmFacts, settings: Settings) -> tuple[Judged, ...]:
    """Returns every node with its verdict; nodes that may be lent are first, in order of choice."""
    index = _Index(facts, settings)
    nodes = (plain_state(settings.machines, node) for node in facts.nodes)
    judged = [_judge(node, index) for node in nodes]
    event_nodes = frozenset(index.event_nodes)
    judged.sort(key=lambda node: _rank(node, event_nodes))
    if settings.protect_largest_pending:
        judged = _protect(judged, facts.jobs, event_nodes)
        judged.sort(key=lambda node: _rank(node, event_nodes))
    return tuple(judged)


def _rank(judged: Judged, event_nodes: frozenset[str]) -> tuple[int, float, str]:
    """Returns the sort key of a node: nodes reserved for an event first, then those that are idle
    longest, then those with the youngest jobs."""
    name = judged.node.name
    if judged.verdict is ListVerdict.OK and name in event_nodes:
        return -1, 0.0, name
    if judged.verdict is ListVerdict.PREEMPT:
        started = min(job.start.timestamp() for job in judged.jobs if job.start)
        return 1, -started, name
    idle = judged.idle.total_seconds() if judged.idle is not None else -1.0
    return 0 if judged.verdict is ListVerdict.OK else 2, -idle, name


def _judge(node: SlurmNode, index: _Index) -> Judged:
    jobs = tuple(index.jobs.get(node.name, ()))
    idle = None if jobs else _idle_time(node, index.now)
    verdict, reason = _verdict(node, jobs, idle, index)
    return Judged(
        node=node,
        verdict=verdict,
        reason=reason,
        idle=idle,
        in_service=service_of(node, jobs, index.own.get(node.name, "")),
        jobs=jobs,
    )


def has_work(node: SlurmNode, jobs: Sequence[SlurmJob]) -> bool:
    """Returns whether a job is on the node. A suspended job only shows as allocated memory."""
    is_allocated = node.cpus_allocated or node.memory_allocated
    return bool(jobs or is_allocated or node.state.has_work)


def service_of(node: SlurmNode, jobs: Sequence[SlurmJob], own_reservation: str) -> bool | None:
    """Returns whether Slurm has the node in service; None if unknown. A node with work is in
    service. Without work, a node in dnm's own reservation is not in service."""
    if has_work(node, jobs):
        return True
    in_service = in_service_of(node.state)
    return False if in_service and own_reservation else in_service


def _verdict(
    node: SlurmNode, jobs: tuple[SlurmJob, ...], idle: timedelta | None, index: _Index
) -> tuple[ListVerdict, str]:
    name, state, is_for_event = node.name, node.state, node.name in index.event_nodes
    if name in index.own:
        return ListVerdict.SKIP, f"lent or being lent (reservation {index.own[name]})"
    if name in index.foreign:
        return ListVerdict.SKIP, index.foreign[name]
    if not state.is_understood or state.base not in ("IDLE", "ALLOCATED", "MIXED"):
        return ListVerdict.SKIP, _explained(f"not idle ({state.base or 'unknown'})", node)
    if flagged := _held_by_flag(node, index):
        return ListVerdict.SKIP, flagged
    if name in index.planned and not is_for_event:  # else Slurm plans for the time after the event
        return ListVerdict.SKIP, f"planned for pending job {index.planned[name]}"
    if name in index.reserved:
        return ListVerdict.SKIP, f"reservation {index.reserved[name]}"
    if has_work(node, jobs):
        return _judge_work(node, jobs, index)
    too_soon = "" if is_for_event else _not_idle_long_enough(node, idle, index.settings)
    return (ListVerdict.SKIP, too_soon) if too_soon else (ListVerdict.OK, "-")


def _held_by_flag(node: SlurmNode, index: _Index) -> str:
    """Returns why a state flag forbids lending the node, except flags of reservations and plans."""
    flags = node.state.flags - (_WHILE_RESERVED if node.name in index.event_nodes else set())
    flags -= {"PLANNED"} if node.name in index.planned else set()
    flags -= {"RESERVED", "MAINTENANCE"} if node.name in index.reserved else set()
    for flag in sorted(flags & NOT_OWN):
        return f"state flag {flag}: not a machine of its own"
    if flags == {"COMPLETING"}:
        return "a job is still completing"
    for flag in sorted(flags - {"COMPLETING"}):
        return _explained(f"state flag {flag}", node)
    return ""


def _explained(text: str, node: SlurmNode) -> str:
    """Returns the text, and after it the Reason that Slurm has for the node, which may be old."""
    return f"{text}: {node.reason}" if node.reason else text


def _judge_work(
    node: SlurmNode, jobs: tuple[SlurmJob, ...], index: _Index
) -> tuple[ListVerdict, str]:
    base, memory = node.state.base, node.memory_allocated
    if not jobs:
        return ListVerdict.SKIP, f"not idle ({base}, {memory} MB allocated)"
    if obstacle := next(filter(None, (_not_preemptible(job, index) for job in jobs)), ""):
        return ListVerdict.SKIP, f"not idle ({base}): {obstacle}"
    shown = jobs[0]
    age = format_duration(index.now - shown.start) if shown.start else "?"
    more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    user = f"{shown.user}/{shown.account}"
    return ListVerdict.PREEMPT, f"job {shown.display_id}{more} ({user}) running {age}"


def _not_preemptible(job: SlurmJob, index: _Index) -> str:
    """Returns why a job must not be preempted; empty for a preemptible job of the preempt user."""
    shown, settings = f"job {job.display_id} of {job.user}", index.settings
    if not settings.preempt_user or not settings.preempt_account:
        return shown
    if (job.user, job.account) != (settings.preempt_user, settings.preempt_account):
        return shown
    if job.state != "RUNNING":
        return f"{shown} is {job.state}"
    if job.node_count != 1 or len(job.nodes) != 1 or "+" in job.display_id:
        return f"{shown} spans several nodes; only single-node jobs are preemptible"
    if job.start is None:
        return f"{shown} has no start time"
    longest, age = settings.preempt_max_runtime_seconds, index.now - job.start
    if longest and age > longest:
        return f"{shown} has run for {format_duration(age)}, too long to be preempted"
    return ""


def _idle_time(node: SlurmNode, now: datetime) -> timedelta | None:
    """Returns how long the node has been idle, or less: restarts of slurmctld and resumes reset it.
    A node that was never busy is idle since slurmd's start. None if busy, or before Slurm 21.08."""
    if node.state.base != "IDLE":
        return None
    since = node.last_busy or (node.slurmd_started if node.has_last_busy else None)
    return max(now - since, timedelta(0)) if since else None


def _not_idle_long_enough(node: SlurmNode, idle: timedelta | None, settings: Settings) -> str:
    if not (shortest := settings.min_idle_seconds):
        return ""
    if idle is not None:
        shown = f"{int(idle.total_seconds())}s (< {int(shortest.total_seconds())}s)"
        return f"idle only {shown}" if idle < shortest else ""
    if node.has_last_busy:
        return "Slurm has no idle time for it"
    return "this Slurm (before 21.08) has no idle times; MIN_IDLE_SECONDS=0 allows this node"


def _protect(
    judged: Sequence[Judged], jobs: Iterable[SlurmJob], event_nodes: frozenset[str]
) -> list[Judged]:
    """Changes OK to SKIP for as many nodes as the largest pending job of each partition needs, the
    last in the list first. Nodes reserved for an event stay OK, since no job could use them. Held
    jobs and jobs with a reservation do not count, since they wait for something else."""
    largest: dict[str, SlurmJob] = {}
    for job in jobs:
        if job.state == "PENDING" and job.priority and not job.reservation:
            for partition in job.partitions:
                if partition not in largest or job.node_count > largest[partition].node_count:
                    largest[partition] = job
    verdicts = list(judged)
    for job in {job.id: job for job in largest.values()}.values():
        free = [
            place
            for place, node in enumerate(verdicts)
            if node.verdict is ListVerdict.OK
            and node.node.name not in event_nodes
            and not set(node.node.partitions).isdisjoint(job.partitions)
        ]
        for place in free[-job.node_count :]:
            needs = count_of(job.node_count, "node")
            verdicts[place] = held(verdicts[place], f"pending job {job.display_id} needs {needs}")
    return verdicts


def format_duration(duration: timedelta) -> str:
    """Returns a duration as `2d3h`, `2h5m`, `45m` or `12s`, for a column of a table."""
    seconds = max(0, int(duration.total_seconds()))
    days, hours, minutes = seconds // 86400, seconds // 3600, seconds // 60
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60}m"
    return f"{minutes}m" if minutes else f"{seconds}s"
