"""What jobs wait for: those that are pending and would start now if there were more nodes. Pure.

The rule: Slurm's own word for why a job is pending decides. It counts where nodes are all that it
lacks (Resources, Priority), or where it is refused nodes that are out of service, ours among them.
What is held, depends on another job, is over a limit, or waits for its time, a licence or a
reservation is not helped by a node. A job counts for every node type that its partitions have;
features and generic resources that it asks for are not looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from dnm.converters.select import SlurmFacts, is_own_reservation
from dnm.converters.slurm.text import SlurmJob
from dnm.model.batch import WaitingJobs
from dnm.model.errors import SlurmError
from dnm.model.hostlist import expand_hostlist

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
    ours = {
        node
        for one in facts.reservations
        for node in one.nodes
        if is_own_reservation(one, node, reservation)
    }
    found: dict[tuple[str, str], WaitingJobs] = {}
    for job in _pending(facts.jobs):
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


def _pending(jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    return [job for job in jobs if job.state == "PENDING"][:MOST_JOBS]


def would_start(job: SlurmJob, ours: Collection[str] = ()) -> bool:
    """Returns whether a pending job lacks nodes and nothing else. `ours`: nodes that are claimed
    from Slurm; a job that must have one of them waits for it."""
    if not job.priority or job.reservation:
        return False
    if job.why_pending in _LACKS_NODES or job.why_pending.startswith(_NODES_AWAY):
        return True
    named = _UNAVAILABLE.match(job.why_pending)
    if named is None:
        return False
    try:
        return not set(expand_hostlist(named[1])).isdisjoint(ours)
    except SlurmError:
        return False  # a list that was cut short names nobody


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
    return WaitingJobs(
        partition=partition,
        node_type=node_type,
        jobs=before.jobs + tasks,
        nodes=before.nodes + tasks * job.node_count,
        since=min(filter(None, (before.since, job.submitted)), default=None),
    )
