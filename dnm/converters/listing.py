"""`--list`: every node with its verdict and the reason, for people and for dnm, and what jobs wait
for: those that are pending and would start now if there were more nodes.

The rule: Slurm's own word for why a job is pending decides. It counts where nodes are all that it
lacks (Resources, Priority), or where it is refused nodes that are out of service, ours among them.
What is held, depends on another job, is over a limit, or waits for its time, a licence or a
reservation is not helped by a node. A job counts for every node type that its partitions have;
features and generic resources that it asks for are not looked at.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from dnm.converter.contract import LEAVE_OUT
from dnm.converters.marks import slurm_reason_of
from dnm.converters.select import (
    Judged,
    ListVerdict,
    SlurmFacts,
    format_duration,
    is_own_reservation,
)
from dnm.converters.settings import Settings
from dnm.converters.slurm.commands import SlurmClient
from dnm.converters.slurm.text import SlurmJob
from dnm.model.batch import BatchClaim, WaitingJobs
from dnm.model.errors import SlurmError
from dnm.model.hostlist import expand_hostlist
from dnm.model.printable import count_of, json_text, printable

if TYPE_CHECKING:
    from dnm.converters.slurm.rest import SlurmRestClient

Slurm: TypeAlias = "SlurmClient | SlurmRestClient"
"""Slurm, whichever way it is asked; what each call means is told at `SlurmClient`."""

SCHEMA = "node-convert.list/1"


def connect_slurm(settings: Settings) -> Slurm:
    """Returns Slurm; nothing is asked of it yet."""
    if not settings.slurmrestd_url:
        return SlurmClient(os.environ)
    from dnm.converters.slurm.rest import SlurmRestClient  # 20 ms that only those who use it pay

    return SlurmRestClient(settings.slurmrestd_url, settings.slurmrestd_token_file)


def read_facts(client: Slurm) -> SlurmFacts:
    """Reads what nodes are judged by; jobs after nodes, so that what starts in between is seen.
    Raises SlurmError."""
    client.check_controller()
    nodes = client.read_nodes()
    reservations = client.read_reservations()
    jobs = client.read_jobs()
    return SlurmFacts(nodes=nodes, jobs=jobs, reservations=reservations, read_at=datetime.now(UTC))


def reservations_of(facts: SlurmFacts, prefix: str) -> dict[str, dict[str, datetime | None]]:
    """Returns node -> the reservations that name it and are not over, however far ahead, and when
    each begins; not those of conversions."""
    found: dict[str, dict[str, datetime | None]] = defaultdict(dict)
    for one in facts.reservations:
        if one.end is None or one.end >= facts.read_at:
            for node in one.nodes:
                if not is_own_reservation(one, node, prefix):
                    found[node][one.name] = one.start
    return found


def with_reasons(
    judged: Sequence[Judged], claims: Mapping[str, BatchClaim], settings: Settings
) -> tuple[Judged, ...]:
    """Returns the verdicts with Slurm's Reason of each; of a claimed node that somebody else has
    drained, the verdict's own reason says so too."""
    return tuple(_with_reason(one, claims.get(one.node.name), settings) for one in judged)


def _with_reason(one: Judged, claim: BatchClaim | None, settings: Settings) -> Judged:
    is_claimed = claim is not None and claim.instance == settings.instance
    said = slurm_reason_of(settings, one.node, is_claimed)
    one = msgspec.structs.replace(one, slurm_reason=said)
    is_drained = "DRAIN" in one.node.state.flags
    if claim is None or said is None or said.instance or not is_drained:
        return one
    return msgspec.structs.replace(one, reason=f"{one.reason}; drained by another: {said.line}")


def list_as_json(
    judged: Sequence[Judged],
    claims: Mapping[str, BatchClaim] | None = None,
    waiting: Sequence[WaitingJobs] = (),
    reserved: Mapping[str, Mapping[str, datetime | None]] = {},
    options: Sequence[str] = (),
) -> str:
    """Returns the document; without `claims` the rows don't tell of them. `reserved`: node -> its
    reservations, and when each begins. `options`: those of the contract besides --exclude."""
    nodes = [
        {
            "node": one.node.name,
            "state": one.node.state.text,
            "idle_seconds": None if one.idle is None else int(one.idle.total_seconds()),
            "verdict": one.verdict.value,
            "reason": one.reason,
            "in_service": one.in_service,
            "partitions": one.node.partitions,
            "features": one.node.features,
            "reservations": list(reserved.get(one.node.name, ())),
            "reservations_begin": reserved.get(one.node.name, {}),
            "slurm_reason": one.slurm_reason,
            **({} if claims is None else {"claim": claims.get(one.node.name)}),
        }
        for one in judged
    ]
    document = {"schema": SCHEMA, "options": [LEAVE_OUT, *options], "nodes": nodes}
    return json_text({**document, "waiting_jobs": waiting})


def list_as_text(
    judged: Sequence[Judged],
    jobs: Sequence[SlurmJob],
    settings: Settings,
    of: str,
    more: Sequence[str] = (),
) -> str:
    """Returns a table whose last column is free text, an empty line, what the verdicts depend on,
    and `more` lines. `of` says which nodes were asked for."""
    rows = [("NODE", "STATE", "IDLE", "VERDICT", "REASON"), *map(_row, judged)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join((*map(str.ljust, row, widths), row[4])) for row in rows]
    return "\n".join([*lines, "", *_summary(judged, jobs, settings, of), *map(printable, more)])


def describe_waiting(waiting: Sequence[WaitingJobs], now: datetime) -> list[str]:
    """Returns a line for each partition and type that jobs wait for nodes in."""
    lines = []
    for one in waiting:
        since = f", the first for {format_duration(now - one.since)}" if one.since else ""
        lines.append(
            f"Partition {one.partition}: {count_of(one.jobs, 'job')} would start on "
            f"{count_of(one.nodes, 'more node')} of type '{one.node_type}'{since}"
        )
    return lines


def _row(one: Judged) -> tuple[str, str, str, str, str]:
    idle = "-" if one.idle is None else format_duration(one.idle)
    return one.node.name, one.node.state.text, idle, one.verdict.value, printable(one.reason)


def _summary(
    judged: Sequence[Judged], jobs: Sequence[SlurmJob], settings: Settings, of: str
) -> list[str]:
    count: Callable[[ListVerdict], int] = [one.verdict for one in judged].count
    largest = max((job.node_count for job in jobs if job.state == "PENDING"), default=0)
    holders = f"{settings.preempt_user}/{settings.preempt_account}".strip("/")
    preemption = (
        f"enabled, mode={settings.preempt_mode}, "
        f"grace={settings.preempt_grace_seconds.total_seconds():g}s"
        if settings.allow_preempt
        else f"disabled (--allow-preempt), mode={settings.preempt_mode}"
    )
    guard = "on" if settings.protect_largest_pending else "off"
    return [
        f"Viable now: {count(ListVerdict.OK)} of {len(judged)} node(s){of}",
        f"Thresholds: MIN_IDLE_SECONDS={settings.min_idle_seconds.total_seconds():g} "
        f"RES_LOOKAHEAD_SECONDS={settings.res_lookahead_seconds.total_seconds():g}",
        f"Preemptible: {count(ListVerdict.PREEMPT)} node(s) held by {holders or 'nobody named'}",
        f"Preemption: {preemption}",
        f"Largest pending job: {largest} node(s); PROTECT_LARGEST_PENDING is {guard}",
    ]


MOST_JOBS = 100_000
"""So many pending jobs are counted, the first that Slurm prints."""

_LACKS_NODES = frozenset(("Resources", "Priority"))
# What slurmctld says of a job whose partition has enough nodes, but not in service.
_NODES_AWAY = "Nodes_required_for_job_are_DOWN"
_UNAVAILABLE = re.compile(r"ReqNodeNotAvail,_(?:UnavailableNodes:|\(?Unavailable:)([^)\s]+)")
_ARRAY = re.compile(r"[0-9]+_\[([^]%]*)(?:%([0-9]+))?")
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def list_waiting_jobs(
    facts: SlurmFacts, reservation: str, type_of: Callable[[str], str]
) -> tuple[WaitingJobs, ...]:
    """Returns a row for each node type and partition that jobs wait in; a job of several partitions
    stands in the first of them that has nodes of the type. `reservation`: the prefix of ours;
    `type_of`: the type of a node by its name, empty: none."""
    types: dict[str, dict[str, None]] = {}  # of each partition, in the order of the nodes
    sizes: Counter[str] = Counter()
    for node in facts.nodes:
        for partition in node.partitions:
            sizes[partition] += 1
            types.setdefault(partition, {})[type_of(node.name)] = None
    ours = facts.in_own_reservations(reservation)
    found: dict[tuple[str, str], WaitingJobs] = {}
    pending = [job for job in facts.jobs if job.state == "PENDING"]
    for job in pending[:MOST_JOBS]:
        if not would_start(job, ours) or job.node_count > max(sizes[p] for p in job.partitions):
            continue
        rows: dict[str, str] = {}
        for partition in job.partitions:
            for node_type in types.get(partition, ()):
                rows.setdefault(node_type, partition)
        for node_type, partition in rows.items():
            if node_type:
                row = found.get((node_type, partition))
                found[node_type, partition] = _with_job(row, partition, node_type, job)
    return tuple(found[key] for key in sorted(found))


def would_start(job: SlurmJob, ours: Set[str] = frozenset()) -> bool:
    """Returns whether a pending job lacks nodes and nothing else. `ours`: nodes that are claimed
    from Slurm; a job that must have one of them waits for it."""
    if not job.priority or job.reservation:
        return False
    if job.why_pending in _LACKS_NODES or job.why_pending.startswith(_NODES_AWAY):
        return True
    with suppress(SlurmError):  # a list that was cut short names nobody
        if named := _UNAVAILABLE.match(job.why_pending):
            return not ours.isdisjoint(expand_hostlist(named[1]))
    return False


def count_tasks(display_id: str) -> int:
    """Returns how many jobs a line of squeue stands for: the pending tasks of an array that may run
    at once, as far as Slurm prints them; else one."""
    array = _ARRAY.match(display_id)
    if array is None:
        return 1
    count = 0
    for part in array[1].split(","):
        if task := _TASKS.fullmatch(part):
            first, last = int(task[1]), int(task[2] or task[1])
            count += max(0, last - first) // max(1, int(task[3] or 1)) + 1
    at_once = int(array[2] or MOST_JOBS)
    return max(1, min(count, at_once, MOST_JOBS))


def _with_job(
    row: WaitingJobs | None, partition: str, node_type: str, job: SlurmJob
) -> WaitingJobs:
    tasks = count_tasks(job.display_id)
    before = row or WaitingJobs(partition=partition, node_type=node_type, jobs=0, nodes=0)
    return msgspec.structs.replace(
        before,
        jobs=before.jobs + tasks,
        nodes=before.nodes + tasks * job.node_count,
        since=min(filter(None, (before.since, job.submitted)), default=None),
    )
