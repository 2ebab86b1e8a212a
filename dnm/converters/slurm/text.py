"""Parsers of scontrol's and squeue's output, which is equal for Slurm 20.11 to 26.05.

The commands print text. JSON is no alternative: before 23.02 it lacks reservations, it has had
three shapes since, and 21.08 and 22.05 report no jobs with exit 0 if the controller is away. Times
are epoch seconds (SLURM_TIME_FORMAT=%s), or ISO in UTC if Slurm does not know that format.

Free text (OS, Reason, Comment, Extra) is cut out by its position in the line, so that a Reason with
`State=IDLE` has no effect. Unparsable text raises a SlurmError and has no default."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from dnm.model.errors import SlurmError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.slurm_state import NodeState, parse_state
from dnm.model.value import Value

_NO_TIME = frozenset(("None", "Unknown", "N/A", "(null)", "NONE", "0", ""))
# `[user@time]`; a Reason may have other brackets with an @, and a domain user may have blanks.
_REASON_END = re.compile(r" \[([^\[\]]+)@([0-9]+|[0-9-]{10}T[0-9:]{8}|Unknown)\]")

NOBODY, ABOVE_ALL = "-", "root"
"""The account name for a lend without an account, and Slurm's own account for it: every slurmdbd
has it, and no project uses it."""

JOB_FORMAT = "%A|%i|%T|%u|%a|%P|%D|%Q|%S|%v|%N|%Y|%V|%r"
"""The format for `squeue -o`. Only two fields are free text that could contain bars. The last is
the reason why a job is pending: Slurm's keyword, or a text of slurmctld or of a site's plug-in.
Without slurmdbd, %a, the account, is any text of the user, even several lines."""


class SlurmNode(Value, frozen=True, gc=False):
    """A node as slurmctld reports it. A time is None if Slurm has none."""

    name: str
    state: NodeState
    cpus_allocated: int
    memory_allocated: int  # MB
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    slurmd_started: datetime | None = None
    last_busy: datetime | None = None
    has_last_busy: bool = True  # False: a Slurm before 21.08, without LastBusyTime
    reason: str = ""
    reason_by: str = ""  # the user that set it
    reason_at: datetime | None = None
    comment: str = ""
    extra: str | None = None  # None: empty, or a Slurm before 21.08


class SlurmJob(Value, frozen=True, gc=False):
    """An unfinished job, the nodes it runs on, and those on which backfill plans to start it."""

    id: str
    display_id: str  # with the array index
    state: str
    user: str
    account: str
    partitions: tuple[str, ...]
    node_count: int
    priority: int  # 0: held
    start: datetime | None
    reservation: str
    nodes: tuple[str, ...]
    planned_nodes: tuple[str, ...]
    submitted: datetime | None = None
    pending_reason: str = ""  # Slurm's reason, without blanks: Resources, Priority, Dependency, ...


class Reservation(Value, frozen=True):
    name: str
    start: datetime | None
    end: datetime | None
    nodes: tuple[str, ...]
    users: str = ""
    accounts: str = ""
    flags: tuple[str, ...] = ()

    def holds_at(self, moment: datetime) -> bool:
        """Returns whether the reservation has begun and has not ended at that time."""
        is_over = self.end is not None and self.end <= moment
        return self.start is not None and self.start <= moment and not is_over

    @property
    def is_charged(self) -> bool:
        """Returns whether Slurm's accounting counts the reservation's time as planned."""
        return "MAINT" in self.flags

    @property
    def charged_to(self) -> str:
        """Returns the account that is charged, `-` for root; empty if the time is not charged."""
        if not self.is_charged:
            return ""
        return NOBODY if self.accounts == ABOVE_ALL else self.accounts


class JobRecord(Value, frozen=True):
    """The facts of `scontrol show job` that decide whether the job can be requeued."""

    state: str
    is_requeueable: bool
    is_batch: bool
    admin_comment: str = ""  # up to its first blank


def parse_time(text: str) -> datetime | None:
    """Parses epoch seconds or ISO in UTC. Returns None for Slurm's words that mean no time."""
    if text in _NO_TIME:
        return None
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text), UTC)
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise SlurmError(
            f"Slurm's time {text[:40]!r} can't be read: expected epoch seconds", "nothing is done"
        ) from error


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """Parses `scontrol -a -o show nodes`, in the order printed."""
    return tuple(_parse_node(name, line) for name, line in records(text, "Node"))


def parse_partitions(text: str) -> tuple[str, ...]:
    """Parses `scontrol -a -o show partition` and returns the names, in the order printed."""
    return tuple(name for name, _ in records(text, "Partition"))


def records(text: str, kind: str) -> list[tuple[str, str]]:
    """Returns the name and line of each record. Raises SlurmError for any other line except "No …s
    in the system", and for a repeated name: slurmd's text OS= may contain line ends."""
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) == 1 and lines[0].startswith(f"No {kind.lower()}s in the"):
        return []
    begin = f"{kind}Name="
    for line in lines:
        if not line.startswith(begin):
            raise SlurmError(
                f"Slurm printed {line[:80]!r} where a line {begin}… was expected", "nothing is done"
            )
    records = [(line[len(begin) :].split(" ", 1)[0], line) for line in lines]
    if len(records) > len(dict(records)):
        named = [name for name, _ in records]
        twice = next(name[:64] for name in named if named.count(name) > 1)
        raise SlurmError(
            f"Slurm printed {begin}{twice} twice, as a node's slurmd can do: see there"
        )
    return records


def _parse_node(name: str, line: str) -> SlurmNode:
    # The free text of OS= comes before State=, that of Reason=, Comment= and Extra= after it.
    state_at = line.find(" State=")
    free_at = min(
        (at for at in map(line.find, (" Reason=", " Comment=", " Extra=")) if at > state_at),
        default=len(line),
    )
    early, late = line[:state_at], line[state_at:free_at]
    try:
        cpus = int(_first(early, "CPUAlloc"))
        reason, comment, extra = _free_text(line[free_at:])
        return SlurmNode(
            name=name,
            state=parse_state(_first(late, "State"), cpus),
            cpus_allocated=cpus,
            memory_allocated=int(_first(early[early.rfind(" AllocMem=") :], "AllocMem")),
            partitions=tuple(filter(None, _first(late, "Partitions", "").split(","))),
            features=_words(_first(early, "AvailableFeatures", "")),
            slurmd_started=parse_time(_first(late, "SlurmdStartTime", "None")),
            last_busy=parse_time(_first(late, "LastBusyTime", "None")),
            has_last_busy=" LastBusyTime=" in late,
            reason=reason.text,
            reason_by=reason.by,
            reason_at=reason.at,
            comment=comment,
            extra=extra,
        )
    except (KeyError, ValueError) as error:
        raise SlurmError(
            f"Slurm's line about node {name[:64]!r} can't be read ({error}): {line[:120]!r}…"
        ) from error


def _words(text: str) -> tuple[str, ...]:
    return () if text in _NO_TIME else tuple(filter(None, text.split(",")))


def _first(text: str, key: str, default: str | None = None) -> str:
    _, has_key, rest = text.partition(f" {key}=")
    if has_key:
        return rest.partition(" ")[0]
    if default is None:
        raise KeyError(key)
    return default


class _Reason(NamedTuple):
    """A Reason, split into its text and the `[user@time]` that Slurm appends."""

    text: str = ""
    by: str = ""
    at: datetime | None = None


def _free_text(tail: str) -> tuple[_Reason, str, str | None]:
    """Returns the texts of Reason, Comment and Extra from the end of a line, in this order."""
    reason = _Reason()
    if tail.startswith(" Reason="):
        body = tail[len(" Reason=") :]
        end = _REASON_END.search(body)
        reason, tail = (_parse(body, end), body[end.end() :]) if end else (_Reason(body), "")
    tail = tail.rpartition(" ReservationName=")[0] or tail
    before, has_extra, extra = tail.partition(" Extra=")
    comment = before.partition(" Comment=")[2].strip()
    return reason, "" if comment == "(null)" else comment, extra.strip() if has_extra else None


def _parse(body: str, end: re.Match[str]) -> _Reason:
    """Parses a Reason. An invalid time is no error, since it could be a part of the text."""
    at = None
    with suppress(SlurmError):
        at = parse_time(end[2])
    return _Reason(body[: end.start()], end[1], at)


def without_marks(text: str, mark: str) -> str:
    """Removes the `mark` around each account, and replaces bars and spaces in an account by `?`."""
    parts = text.split(mark)
    parts[1::2] = [re.sub(r"[|\s]", "?", account) for account in parts[1::2]]
    return "".join(parts)


def parse_jobs(text: str) -> tuple[SlurmJob, ...]:
    """Parses `squeue -a -h --noconvert -o JOB_FORMAT`, in the order printed."""
    return tuple(_parse_job(line) for line in text.split("\n") if line.strip())


def _parse_job(line: str) -> SlurmJob:
    bars = JOB_FORMAT.count("|")
    fields = line.strip().split("|", bars)
    if len(fields) != bars + 1:
        raise SlurmError(f"squeue's line {line[:120]!r} can't be read", "nothing is done")
    (
        job, display, state, user, account, partitions, count, priority, start, reservation,
        nodes, planned, submitted, reason,
    ) = fields  # fmt: skip
    if not (job.isdecimal() and count.isdecimal() and priority.isdecimal()):
        raise SlurmError(f"squeue's line {line[:120]!r} has no numbers where they belong")
    return SlurmJob(
        id=display if display.replace("_", "").isdecimal() else job,  # a task has its array's id
        display_id=display,
        state=state,
        user=user,
        account="" if account == "(null)" else account,
        partitions=tuple(partitions.split(",")),
        node_count=int(count),
        priority=int(priority),
        start=parse_time(start),
        reservation="" if reservation == "(null)" else reservation,
        nodes=expand_hostlist(nodes),
        planned_nodes=expand_hostlist(planned),
        submitted=parse_time(submitted),
        pending_reason=reason.replace(" ", "_"),
    )


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Parses `scontrol -a -o show reservation`."""
    reservations = []
    for name, line in records(text, "Reservation"):
        try:
            reservations.append(
                Reservation(
                    name=name,
                    start=parse_time(_first(line, "StartTime")),
                    end=parse_time(_first(line, "EndTime")),
                    nodes=expand_hostlist(_first(line, "Nodes")),
                    users=_first(line, "Users", "").removeprefix("(null)"),
                    accounts=_first(line, "Accounts", "").removeprefix("(null)"),
                    flags=tuple(filter(None, _first(line, "Flags", "").split(","))),
                )
            )
        except KeyError as error:
            raise SlurmError(f"Slurm's line about reservation {name!r} has no {error}") from error
    return tuple(reservations)


def parse_job_record(text: str) -> JobRecord:
    """Parses the first record of `scontrol -a -o show job ID`. A job's name can't imitate a field
    before it. It may imitate later ones, which concern only the user's own job."""
    line = text.split("\n", 1)[0]
    try:
        return JobRecord(
            state=_first(line, "JobState"),
            is_requeueable=_first(line, "Requeue") == "1",
            is_batch=_first(line, "BatchFlag") == "1",
            admin_comment=_first(line, "AdminComment", ""),
        )
    except (KeyError, ValueError) as error:
        message = f"Slurm's line about a job can't be read ({error}): {line[:80]!r}"
        raise SlurmError(message) from error
