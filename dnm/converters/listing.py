"""`--list`: every node with its verdict and the reason, for administrators and for dnm. It also
shows the pending jobs that would start now if there were more nodes.

Slurm's reason of a pending job decides whether the job counts. It counts if it only lacks nodes
(Resources, Priority), or if the nodes it needs are out of service, e.g. lent. It does not count if
it is held, over a limit, or waits for a job, a time, a licence or a reservation. It counts for
every node type in its partitions; its features and generic resources are ignored."""

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
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.printable import count_of, json_text, printable

if TYPE_CHECKING:
    from dnm.converters.slurm.rest import SlurmRestClient

Slurm: TypeAlias = "SlurmClient | SlurmRestClient"
"""Slurm, read by commands or by slurmrestd; `SlurmClient` describes the methods."""

SCHEMA = "node-convert.list/1"


def connect_slurm(settings: Settings) -> Slurm:
    """Returns the client for Slurm, by commands or slurmrestd. It sends no request yet."""
    if not settings.slurmrestd_url:
        return SlurmClient(os.environ)
    from dnm.converters.slurm.rest import SlurmRestClient  # costs 20 ms

    return SlurmRestClient(settings.slurmrestd_url, settings.slurmrestd_token_file)


def read_facts(client: Slurm) -> SlurmFacts:
    """Reads nodes, reservations and jobs of Slurm. Jobs come last, so that none that starts
    meanwhile is missed. Raises SlurmError."""
    client.check_controller()
    nodes = client.read_nodes()
    reservations = client.read_reservations()
    jobs = client.read_jobs()
    return SlurmFacts(nodes=nodes, jobs=jobs, reservations=reservations, read_at=datetime.now(UTC))


def reservations_of(facts: SlurmFacts, prefix: str) -> dict[str, dict[str, datetime | None]]:
    """Returns the current and all future reservations of each node, with their begins, except dnm's
    reservations for conversions."""
    by_node: dict[str, dict[str, datetime | None]] = defaultdict(dict)
    for reservation in facts.reservations:
        if reservation.end is None or reservation.end >= facts.read_at:
            for node in reservation.nodes:
                if not is_own_reservation(reservation, node, prefix):
                    by_node[node][reservation.name] = reservation.start
    return by_node


def with_reasons(
    judged: Sequence[Judged], claims: Mapping[str, BatchClaim], settings: Settings
) -> tuple[Judged, ...]:
    """Adds Slurm's Reason to each verdict. If dnm has claimed a node but another client has drained
    it, the verdict's reason mentions that drain."""
    return tuple(_with_reason(node, claims.get(node.node.name), settings) for node in judged)


def _with_reason(node: Judged, claim: BatchClaim | None, settings: Settings) -> Judged:
    is_claimed = claim is not None and claim.instance == settings.instance
    note = slurm_reason_of(settings, node.node, is_claimed)
    node = msgspec.structs.replace(node, slurm_reason=note)
    is_drained = "DRAIN" in node.node.state.flags
    if claim is None or note is None or note.instance or not is_drained:
        return node
    return msgspec.structs.replace(node, reason=f"{node.reason}; drained outside dnm: {note.line}")


def list_as_json(
    judged: Sequence[Judged],
    claims: Mapping[str, BatchClaim] | None = None,
    waiting: Sequence[WaitingJobs] = (),
    reserved: Mapping[str, Mapping[str, datetime | None]] = {},
    options: Sequence[str] = (),
) -> str:
    """Returns the JSON that `--list` prints, without claims if `claims` is None. `reserved` has the
    begins of each node's reservations, `options` the supported options besides --exclude."""
    nodes = [
        {
            "node": node.node.name,
            "state": node.node.state.text,
            "idle_seconds": None if node.idle is None else int(node.idle.total_seconds()),
            "verdict": node.verdict.value,
            "reason": node.reason,
            "in_service": node.in_service,
            "partitions": node.node.partitions,
            "features": node.node.features,
            "reservations": list(reserved.get(node.node.name, ())),
            "reservations_begin": reserved.get(node.node.name, {}),
            "slurm_reason": node.slurm_reason,
            **({} if claims is None else {"claim": claims.get(node.node.name)}),
        }
        for node in judged
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
    """Returns the table of `--list`, a summary, and the lines in `more`. `of` describes the choice
    of nodes in the summary, e.g. by their type."""
    rows = [("NODE", "STATE", "IDLE", "VERDICT", "REASON"), *map(_row, judged)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join((*map(str.ljust, row, widths), row[4])) for row in rows]
    return "\n".join([*lines, "", *_summary(judged, jobs, settings, of), *map(printable, more)])


def describe_waiting(waiting: Sequence[WaitingJobs], now: datetime) -> list[str]:
    """Returns a line about the waiting jobs of each partition and node type."""
    lines = []
    for jobs in waiting:
        since = f", the first for {format_duration(now - jobs.since)}" if jobs.since else ""
        lines.append(
            f"Partition {jobs.partition}: {count_of(jobs.jobs, 'job')} would start on "
            f"{count_of(jobs.nodes, 'more node')} of type '{jobs.node_type}'{since}"
        )
    return lines


def _row(node: Judged) -> tuple[str, str, str, str, str]:
    idle = "-" if node.idle is None else format_duration(node.idle)
    return node.node.name, node.node.state.text, idle, node.verdict.value, printable(node.reason)


def _summary(
    judged: Sequence[Judged], jobs: Sequence[SlurmJob], settings: Settings, of: str
) -> list[str]:
    count: Callable[[ListVerdict], int] = [node.verdict for node in judged].count
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
        f"Preemptible: {count(ListVerdict.PREEMPT)} node(s) held by {holders or 'no set user'}",
        f"Preemption: {preemption}",
        f"Largest pending job: {largest} node(s); PROTECT_LARGEST_PENDING is {guard}",
    ]


MOST_JOBS = 100_000
"""The number of pending jobs that are counted, in the order in which Slurm prints them."""

_LACKS_NODES = frozenset(("Resources", "Priority"))
# slurmctld's reason for a job if too many nodes of its partition are out of service
_NODES_AWAY = "Nodes_required_for_job_are_DOWN"
_UNAVAILABLE = re.compile(r"ReqNodeNotAvail,_(?:UnavailableNodes:|\(?Unavailable:)([^)\s]+)")
_ARRAY = re.compile(r"[0-9]+_\[([^]%]*)(?:%([0-9]+))?")
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def list_waiting_jobs(
    facts: SlurmFacts, reservation: str, type_of: Callable[[str], str]
) -> tuple[WaitingJobs, ...]:
    """Returns a row for each node type and partition in which jobs wait. A job with several
    partitions counts in the first that has nodes of the type. `reservation` is the prefix of dnm's
    reservations; `type_of` returns a node's type, or an empty text."""
    types: dict[str, dict[str, None]] = {}  # of each partition, in the order of the nodes
    sizes: Counter[str] = Counter()
    for node in facts.nodes:
        for partition in node.partitions:
            sizes[partition] += 1
            types.setdefault(partition, {})[type_of(node.name)] = None
    claimed = facts.in_own_reservations(reservation)
    waiting: dict[tuple[str, str], WaitingJobs] = {}
    pending = [job for job in facts.jobs if job.state == "PENDING"]
    for job in pending[:MOST_JOBS]:
        if not would_start(job, claimed) or job.node_count > max(sizes[p] for p in job.partitions):
            continue
        rows: dict[str, str] = {}
        for partition in job.partitions:
            for node_type in types.get(partition, ()):
                rows.setdefault(node_type, partition)
        for node_type, partition in rows.items():
            if node_type:
                row = waiting.get((node_type, partition))
                waiting[node_type, partition] = _with_job(row, partition, node_type, job)
    return tuple(waiting[key] for key in sorted(waiting))


def would_start(job: SlurmJob, claimed: Set[str] = frozenset()) -> bool:
    """Returns whether a pending job lacks only nodes, or requires one of the nodes that dnm has
    `claimed` and that are therefore not available."""
    if not job.priority or job.reservation:
        return False
    if job.pending_reason in _LACKS_NODES or job.pending_reason.startswith(_NODES_AWAY):
        return True
    with suppress(SlurmError):  # a shortened list of nodes can't be parsed
        if named := _UNAVAILABLE.match(job.pending_reason):
            return not claimed.isdisjoint(expand_hostlist(named[1]))
    return False


def count_tasks(display_id: str) -> int:
    """Returns the number of jobs in a line of squeue. For an array these are the pending tasks that
    may run at once, as far as Slurm prints them."""
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
