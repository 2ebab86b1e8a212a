"""The parser of `sacct`'s output: it returns the jobs to simulate. Pure.

    TZ=UTC sacct -a -X -n -P -S 2026-03-02 -s CD,F,TO,CA,OOM,NF \\
        -o Submit,Start,End,NNodes,TimelimitRaw,NodeList

A job has the type of its first node. Jobs that never began, jobs on nodes that are never lent, and
unreadable lines are left out; their number is reported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from dnm.model.errors import DnmError, ExitCode, SlurmError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.value import Value
from dnm.simulate.batch import SimJob

MOST_JOBS = 1_000_000
_NO_LIMIT = 365 * 86_400.0


class SimulationError(DnmError):
    """The error of an input that cannot be simulated."""

    exit_code = ExitCode.NEEDS_PERSON


class Accounting(Value):
    """The jobs that `sacct` lists, their nodes by type, and the number of omitted lines."""

    jobs: tuple[SimJob, ...] = ()
    nodes: dict[str, frozenset[str]] = {}
    left_out: int = 0


def parse_jobs(
    text: str, since: datetime, until: datetime, type_of: Callable[[str], str | None]
) -> Accounting:
    """Returns the jobs that were submitted from `since` to `until`, and the remaining part of jobs
    that waited or ran at `since`. Raises SimulationError if no line is one of sacct's."""
    lines = text.splitlines()
    if len(lines) > MOST_JOBS:
        raise SimulationError(
            f"{len(lines):,} jobs are more than {MOST_JOBS:,}: run sacct for a shorter time"
        )
    jobs, nodes, left_out, understood = [], dict[str, set[str]](), 0, 0
    for line in lines:
        fields = line.split("|")
        times = [_moment(field) for field in fields[:3]]
        understood += len(fields) == 6 and times[0] is not None
        names = _names(fields[-1])
        node_type = type_of(names[0]) if names else None
        job = _job(times, fields, node_type or "", since) if node_type else None
        if job is None or job.at > (until - since).total_seconds():
            left_out += 1
            continue
        jobs.append(job)
        nodes.setdefault(job.node_type, set()).update(names)
    if lines and not understood:
        raise SimulationError(
            "no line is one of sacct -X -n -P -o Submit,Start,End,NNodes,TimelimitRaw,NodeList: "
            f"the first is {lines[0][:80]!r}"
        )
    return Accounting(
        jobs=tuple(sorted(jobs, key=lambda job: job.at)),
        nodes={kind: frozenset(names) for kind, names in nodes.items()},
        left_out=left_out,
    )


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


def _names(text: str) -> tuple[str, ...]:
    try:
        return expand_hostlist(text)
    except SlurmError:
        return ()


def _job(
    times: list[datetime | None], fields: list[str], node_type: str, since: datetime
) -> SimJob | None:
    if len(fields) != 6 or not fields[3].isdecimal():
        return None
    submit, start, end = times
    if submit is None or start is None or end is None or end <= max(start, since):
        return None
    lasts = (end - max(start, since)).total_seconds()
    limit = int(fields[4]) * 60.0 if fields[4].isdecimal() else _NO_LIMIT
    limit -= max((since - start).total_seconds(), 0.0)
    at = max((submit - since).total_seconds(), 0.0)
    return SimJob(
        at=at, nodes=int(fields[3]), lasts=lasts, limit=max(limit, lasts), node_type=node_type
    )
