"""The bodies of slurmrestd: parses answers into the values of `text`, reads errors, chooses the API
version, and encodes changes of nodes and reservations. Pure; API v0.0.38 (Slurm 22.05) to v0.0.45.

The body shows whether a request succeeded: 22.05 answers 500 for an unknown node, later ones 200
with `errors`. dnm uses the newest version that it and slurmrestd know and that hides no state of a
node: a busy or foreign node would look idle. A missing key is an error and never an empty list. Two
shapes differ: up to v0.0.38 a state is a word in small letters with `state_flags`, and a number is
a number or null. Later a state is a list of words, and a number is `{set, infinite, number}`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from dnm.converters.slurm.text import JobRecord, Reservation, SlurmJob, SlurmNode, parse_time
from dnm.model.errors import SlurmError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.slurm_state import BASES, NodeState, parse_state

T = TypeVar("T")
OLDEST, NEWEST = 38, 45  # v0.0.37 (Slurm 21.08) and before hide states


class RestError(msgspec.Struct):
    """An entry of `errors` in an answer. Slurm 22.05 has two shapes of it."""

    description: str | None = None
    error: str | None = None
    error_number: int | None = None
    errno: int | None = None

    @property
    def number(self) -> int:
        return self.error_number or self.errno or 0

    @property
    def text(self) -> str:
        error = "" if self.number == 0 else self.error  # error 0 has the text "No error"
        parts = [part for part in (self.description, error) if part]
        return " ".join(": ".join(parts).split())[:300] or f"error {self.number}"


class RestAnswer(msgspec.Struct):
    """The common part of answers. The request has succeeded if `errors` is empty."""

    errors: list[RestError] = []


def read_errors(body: bytes) -> list[RestError] | None:
    """Returns the errors in an answer's body; None if slurmrestd did not write the body."""
    try:
        return msgspec.json.decode(body, type=RestAnswer).errors
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode_list(body: bytes, name: str, item: type[T]) -> list[T]:
    """Returns the list with this name in a body. Raises SlurmError if there is none."""
    fields = decode(body, name, dict[str, msgspec.Raw])
    if name not in fields:
        raise _unreadable(name, f"it has no `{name}`")
    return decode(fields[name], name, list[item])  # type: ignore[valid-type]


def decode(body: bytes | msgspec.Raw, subject: str, shape: type[T]) -> T:
    """Decodes the body as type `shape`. Raises SlurmError if it does not fit."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(subject, str(error)) from error


def _unreadable(subject: str, cause: str) -> SlurmError:
    return SlurmError(
        f"slurmrestd's answer about {subject} can't be read ({cause}); nothing is done: "
        "leave slurmrestd_url out, and report it"
    )


class _Info(msgspec.Struct):
    version: str = ""  # Slurm-24.11.5&openapi/slurmctld


class _Specification(msgspec.Struct):
    paths: Mapping[str, Mapping[str, msgspec.Raw]]
    info: _Info = msgspec.field(default_factory=_Info)


class Offer(msgspec.Struct, frozen=True):
    """The API version that dnm uses, with its requests (method, path below the version)."""

    version: str
    methods: frozenset[tuple[str, str]]

    def can(self, method: str, path: str) -> bool:
        return (method, path) in self.methods


def choose_version(body: bytes, newest: int = NEWEST) -> Offer:
    """Returns the newest API version that both slurmrestd and dnm know, from the answer to
    `/openapi/v3`. Raises SlurmError with the next step if there is none."""
    specification = decode(body, "openapi/v3", _Specification)
    versions: dict[int, set[tuple[str, str]]] = {}
    for path, methods in specification.paths.items():
        if match := re.fullmatch(r"/slurm/v0\.0\.([0-9]{1,4})/([^/]+)(/.*)?", path):
            below = match[2] + ("/" if (match[3] or "").strip("/") else "")
            changes = versions.setdefault(int(match[1]), set())
            changes.update((method.upper(), below) for method in methods)
    hidden = _hiding(specification.info.version)
    if usable := [
        version for version in versions if OLDEST <= version <= newest and version not in hidden
    ]:
        return Offer(version=f"v0.0.{max(usable)}", methods=frozenset(versions[max(usable)]))
    offered = ", ".join(f"v0.0.{number}" for number in sorted(versions)) or "no version"
    raise SlurmError(
        f"slurmrestd offers {offered} of Slurm's API, and dnm reads v0.0.{OLDEST} to "
        f"v0.0.{NEWEST}, of Slurm 25.05 and later v0.0.44 and v0.0.45, since the ones before hide "
        "EXTERNAL nodes: start slurmrestd with one of these, or leave slurmrestd_url out"
    )


def _hiding(version: str) -> range:
    """Returns the API versions that hide states of nodes in this Slurm. EXTERNAL exists since
    25.05, and e.g. v0.0.43 of 26.05 shows an EXTERNAL node as IDLE."""
    release = re.match(r"Slurm-([0-9]{2})\.([0-9]{2})\b", version)
    is_old = release is not None and (int(release[1]), int(release[2])) < (25, 5)
    return range(0) if is_old else range(40, 44)


# --- changes: a number counts only with `set`; what is left out stays unchanged


def _amount(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": value is None, "number": value or 0}


def encode_node_change(marks: Mapping[str, str], state: str = "", reason: str = "") -> bytes:
    """Returns the body of POST node/NAME, which is one RPC. An empty mark clears the field."""
    states = {"state": [state]} if state else {}
    return msgspec.json.encode({**states, **({"reason": reason} if reason else {}), **marks})


def encode_reservation(
    name: str, node: str, start: datetime, end: datetime | timedelta | None, flags: Sequence[str]
) -> bytes:
    """Returns the body of POST reservation (user root, one node); without `end`, it never ends."""
    if isinstance(end, datetime):
        until = {"end_time": _amount(int(end.timestamp()))}
    else:
        until = {"duration": _amount(int(end.total_seconds() // 60) if end else None)}
    return msgspec.json.encode(
        {
            "name": name,
            "node_list": [node],
            "start_time": _amount(int(start.timestamp())),
            "users": ["root"],
            **until,
            **({"flags": list(flags)} if flags else {}),
        }
    )


_NO_NUMBER = 2**32 - 2  # and INFINITE above it; old versions return them
# From slurm_protocol_defs.c: squeue shows the first of these flags instead of the base.
_JOB_FLAGS = (
    "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING", "STAGE_OUT",
)  # fmt: skip
_FINISHED = frozenset((
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
))  # fmt: skip
_JOB_BASES = ("PENDING", "RUNNING", "SUSPENDED", *sorted(_FINISHED))


class _Amount(msgspec.Struct):
    set: bool
    number: float
    infinite: bool = False


_Number = int | _Amount | None
_Words = str | list[str]


class _Node(msgspec.Struct):
    name: str
    state: _Words
    alloc_cpus: int
    alloc_memory: int
    slurmd_start_time: _Number
    last_busy: _Number
    partitions: list[str] = []
    features: list[str] | str | None = None
    state_flags: list[str] = []
    reason: str | None = None
    reason_set_by_user: str | None = None
    reason_changed_at: _Number = None
    comment: str | None = None
    extra: str | None = None


class _Job(msgspec.Struct):
    job_id: int
    job_state: _Words
    user_name: str | None
    account: str | None
    partition: str | None
    node_count: _Number
    priority: _Number
    start_time: _Number
    resv_name: str | None
    nodes: str | None
    requeue: bool
    batch_flag: bool
    submit_time: _Number
    state_reason: str | None
    admin_comment: str | None = ""
    state_description: str | None = ""  # a text that replaces the reason
    required_nodes: str | None = ""
    scheduled_nodes: str | None = ""  # missing in v0.0.38
    array_job_id: _Number = 0
    array_task_id: _Number = None
    array_task_string: str | None = ""
    het_job_id: _Number = 0
    het_job_offset: _Number = 0


class _Reservation(msgspec.Struct):
    name: str
    start_time: _Number
    end_time: _Number
    node_list: str | None
    users: str | None
    flags: list[str]
    accounts: str | None = None


class _Partition(msgspec.Struct):
    name: str


def parse_nodes(body: bytes) -> tuple[SlurmNode, ...]:
    """Parses GET nodes or node/NAME."""
    return tuple(map(_make_node, decode_list(body, "nodes", _Node)))


def parse_partitions(body: bytes) -> tuple[str, ...]:
    """Parses GET partitions and returns the names."""
    return tuple(partition.name for partition in decode_list(body, "partitions", _Partition))


def parse_jobs(body: bytes) -> tuple[SlurmJob, ...]:
    """Parses GET jobs and returns the unfinished jobs, which squeue lists too."""
    jobs = decode_list(body, "jobs", _Job)
    return tuple(_make_job(job) for job in jobs if not _has_finished(job))


def parse_job_record(body: bytes) -> JobRecord:
    """Parses GET job/ID and returns the first record."""
    jobs = decode_list(body, "jobs", _Job)
    if not jobs:
        raise SlurmError("slurmrestd's answer about a job has no job in it; nothing is done")
    return JobRecord(
        state=_job_state(jobs[0]),
        is_requeueable=jobs[0].requeue,
        is_batch=jobs[0].batch_flag,
        admin_comment=jobs[0].admin_comment or "",
    )


def parse_reservations(body: bytes) -> tuple[Reservation, ...]:
    """Parses GET reservations."""
    rows = decode_list(body, "reservations", _Reservation)
    return tuple(
        Reservation(
            name=row.name,
            start=_time(row.start_time),
            end=_time(row.end_time),
            nodes=expand_hostlist(row.node_list or ""),
            users=row.users or "",
            accounts=row.accounts or "",
            flags=tuple(row.flags),
        )
        for row in rows
    )


def _words(state: _Words) -> list[str]:
    return [state.upper()] if isinstance(state, str) else state


def _number(value: _Number) -> int | None:
    """Returns a number of an answer; None if it is unset, infinite, or Slurm's number for none."""
    if isinstance(value, _Amount):
        value = int(value.number) if value.set and not value.infinite else None
    return None if value is None or value >= _NO_NUMBER else value


def _time(value: _Number) -> datetime | None:
    seconds = _number(value)
    return parse_time(str(seconds)) if seconds else None


def _state(node: _Node) -> NodeState:
    words = [*_words(node.state), *node.state_flags]
    bases = [word for word in words if word in BASES]
    if len(bases) != 1:
        raise SlurmError(
            f"slurmrestd reports node {node.name[:64]!r} as {'+'.join(words)[:80]!r}, which "
            "is not one state; nothing is done"
        )
    return parse_state("+".join([*bases, *(word for word in words if word not in BASES)]))


def _make_node(node: _Node) -> SlurmNode:
    return SlurmNode(
        name=node.name,
        state=_state(node),
        cpus_allocated=node.alloc_cpus,
        memory_allocated=node.alloc_memory,
        partitions=tuple(node.partitions),
        features=_features(node.features),
        slurmd_started=_time(node.slurmd_start_time),
        last_busy=_time(node.last_busy),
        reason=node.reason or "",
        reason_by=(node.reason_set_by_user or "") if node.reason else "",
        reason_at=_time(node.reason_changed_at) if node.reason else None,
        comment=node.comment or "",
        extra=node.extra or None,
    )


def _features(listed: list[str] | str | None) -> tuple[str, ...]:
    """Returns the features of a node. v0.0.38 has them in one text."""
    words = listed.split(",") if isinstance(listed, str) else listed or ()
    return tuple(filter(None, words))


def _job_state(job: _Job) -> str:
    """Returns a job's state as squeue prints it: its flag, or if it has none, its base state."""
    words = _words(job.job_state)
    for word in (*_JOB_FLAGS, *_JOB_BASES):
        if word in words:
            return word
    raise SlurmError(
        f"slurmrestd reports job {job.job_id} as {'+'.join(words)[:80]!r}, a state that dnm does "
        "not know; nothing is done"
    )


def _has_finished(job: _Job) -> bool:
    return _job_state(job) != "COMPLETING" and not _FINISHED.isdisjoint(_words(job.job_state))


def _make_job(job: _Job) -> SlurmJob:
    nodes = expand_hostlist(job.nodes or "")
    count, priority = _number(job.node_count), _number(job.priority)
    if count is None or priority is None:
        raise SlurmError(f"slurmrestd reports no node count or priority for job {job.job_id}")
    return SlurmJob(
        id=shown if (shown := _display_id(job)).replace("_", "").isdecimal() else str(job.job_id),
        display_id=shown,
        state=_job_state(job),
        user=job.user_name or "",
        account=job.account or "",
        partitions=tuple((job.partition or "").split(",")),
        node_count=len(nodes) or max(count, len(expand_hostlist(job.required_nodes or ""))),
        priority=priority,
        start=_time(job.start_time),
        reservation=job.resv_name or "",
        nodes=nodes,
        planned_nodes=expand_hostlist(job.scheduled_nodes or ""),
        submitted=_time(job.submit_time),
        pending_reason=(job.state_description or job.state_reason or "").replace(" ", "_"),
    )


def _display_id(job: _Job) -> str:
    """Returns a job's id as %i of squeue prints it, for arrays and heterogeneous jobs too."""
    array, task = _number(job.array_job_id), _number(job.array_task_id)
    if job.array_task_string:
        return f"{array}_[{job.array_task_string}]"
    if array and task is not None:
        return f"{array}_{task}"
    if het_job := _number(job.het_job_id):
        return f"{het_job}+{_number(job.het_job_offset) or 0}"
    return str(job.job_id)
