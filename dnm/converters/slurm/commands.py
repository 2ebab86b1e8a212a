"""The Slurm edge by commands: scontrol, squeue and scancel, one at a time, each with a time-out.

Every command gets an environment of its own: an inherited SQUEUE_STATES, SQUEUE_USERS or TZ would
silently empty or shift an answer. slurmctld may still carry out a command that timed out. This
raises `SlurmOutcomeUnknown`, and callers read the state back. A command names one node, because
Slurm carries out an update of a list in part if one name is wrong."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from subprocess import CompletedProcess
from typing import TypeAlias

from dnm.converters.slurm import text
from dnm.converters.slurm.text import JobRecord, Reservation, SlurmJob, SlurmNode
from dnm.host.fault_points import fault_point
from dnm.host.programs import TimeoutExpired, run_bounded
from dnm.model.errors import SlurmError

COMMAND_TIMEOUT = timedelta(seconds=30)
PING_TIMEOUT = timedelta(seconds=10)
_LARGEST = 256 * 1024 * 1024  # bytes; ten thousand nodes take 20 MiB
_SEARCH_PATH = "/usr/bin:/bin:/usr/local/bin:/opt/slurm/bin:/usr/sbin:/sbin"
# The longest is an event's reservation: an event name of 52 characters, and a host name of 64.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}")
# Errors of Slurm's library (22.05, 24.11 and 26.05) and of sockets for a lost connection.
_AWAY = re.compile(
    "Unable to contact|timed out|Timeout waiting|Unexpected m(essage received|issing socket)"
    "|Zero Bytes|Header lengths|Insane message length|Message (send|receive) failure"
    "|Communication (connection|shutdown) failure|Connection (re|forced)|Broken pipe"
    "|No route to host|unreachable|Transport endpoint|temporarily unavailable|would block"
    "|Protocol authentication error|standby mode|[Rr]ate limit exceeded"
)
_ARRAY_JOB = re.compile(r"[0-9]+(_[0-9]+)?")


class SlurmOutcomeUnknown(SlurmError):
    """The error if Slurm does not answer a change, which it may have carried out or not."""


class SlurmRefused(SlurmError):
    """The error if Slurm refuses a request; `answer` is Slurm's message."""

    def __init__(self, message: str, answer: str, consequence: str = "") -> None:
        super().__init__(message, consequence)
        self.answer = answer


def slurm_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of Slurm's commands. Only SLURM_CONF may change their behaviour."""
    environment = {
        "PATH": ":".join(filter(None, (environ.get("PATH", ""), _SEARCH_PATH))),
        "HOME": environ.get("HOME", "/"),
        "LC_ALL": "C",
        "TZ": "UTC",
        "SLURM_TIME_FORMAT": "%s",
    }
    if environ.get("SLURM_CONF"):
        environment["SLURM_CONF"] = environ["SLURM_CONF"]
    return environment


IGNORE_JOBS = "IGNORE_JOBS"
IN_ANOTHER = "IGNORE_JOBS,OVERLAP"
"""The flags for a node that another reservation of dnm already has."""


End: TypeAlias = datetime | timedelta | None
"""A time or a duration; None: without an end."""


def reserve_command(
    name: str, node: str, end: End = None, flags: str = "", start: datetime | None = None
) -> list[str]:
    """Returns the command that reserves a node, from now or from `start` on. Without `flags`, it is
    an atomic test-and-set: Slurm refuses it if a job runs or may still run then, another
    reservation overlaps, or the name is in use. With MAINT or OVERLAP only the name counts. Without
    `end`, UNLIMITED means a year; an `end` avoids an overlap with a later reservation."""
    if isinstance(end, datetime):
        until = f"EndTime={_moment(end)}"
    else:
        until = f"Duration={int(end.total_seconds() // 60) if end else 'UNLIMITED'}"
    return [
        "scontrol", "create", "reservation", f"ReservationName={checked_name(name)}",
        f"Nodes={checked_name(node)}", f"StartTime={_moment(start) if start else 'now'}", until,
        "Users=root",
        *([f"Flags={flags}"] if flags else ()),
    ]  # fmt: skip


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def _update_node(node: str, changes: Mapping[str, str]) -> list[str]:
    """Returns the command that makes all these changes of one node in one RPC."""
    words = (f"{key}={value}" for key, value in changes.items())
    return ["scontrol", "update", f"nodename={checked_name(node)}", *words]


def drain_command(node: str, reason: str, marks: Mapping[str, str]) -> list[str]:
    """Returns the command that drains a node with a Reason, and sets Comment or Extra (`marks`)."""
    return _update_node(node, {"state": "drain", "reason": reason, **marks})


def resume_command(node: str, marks: Mapping[str, str]) -> list[str]:
    """Returns the command that clears DRAIN, DOWN and FAIL, and sets Comment or Extra (`marks`)."""
    return _update_node(node, {"state": "resume", **marks})


class SlurmClient:
    """A client of Slurm by commands. Raises SlurmRefused if Slurm refuses. If Slurm does not
    answer, a read raises SlurmError and a change SlurmOutcomeUnknown."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, timeout: timedelta = COMMAND_TIMEOUT
    ) -> None:
        self.environment = slurm_environment(environ)
        self.timeout = timeout

    def check_controller(self) -> None:
        """Raises SlurmError soon if no slurmctld answers; other commands take ten seconds."""
        try:
            answer = self._run("slurm.ping", ["scontrol", "ping"], PING_TIMEOUT)
        except SlurmOutcomeUnknown as error:
            raise SlurmError(f"Slurm's controller does not answer: {error}") from error
        if " is UP" not in answer.stdout:
            sentence = " ".join(answer.stdout.split("\n")[:1]) or _sentence_of(answer)
            raise SlurmError(
                f"Slurm's controller does not answer ('scontrol ping': {sentence}): "
                "nothing is done; check slurmctld and try again"
            )

    def check_changes(self) -> None:
        """Does nothing, since commands can always change nodes, unlike an old slurmrestd."""

    def read_nodes(self) -> tuple[SlurmNode, ...]:
        return text.parse_nodes(self._show("nodes"))

    def read_node(self, name: str) -> SlurmNode:
        nodes = text.parse_nodes(self._show("node", checked_name(name)))
        if not nodes:  # a Slurm with dynamic nodes may have none left
            raise SlurmRefused(f"Slurm knows no node {name}", "no such node")
        if [node.name for node in nodes] != [name]:
            raise SlurmError(f"Slurm printed more than the record of {name}", "nothing is done")
        return nodes[0]

    def read_jobs(self) -> tuple[SlurmJob, ...]:
        """Returns the unfinished jobs of all users and partitions. With PrivateData, Slurm silently
        leaves out other users' jobs for an unprivileged user."""
        return self._ask_for_jobs()

    def read_jobs_on(self, node: str) -> tuple[SlurmJob, ...]:
        """Returns the running, completing and suspended jobs on the node."""
        return self._ask_for_jobs("-w", checked_name(node))

    def _ask_for_jobs(self, *which: str) -> tuple[SlurmJob, ...]:
        mark = secrets.token_hex(8)  # no user can guess it
        form = text.JOB_FORMAT.replace("%a", f"{mark}%a{mark}")
        command = ("squeue", "-a", "-h", "--noconvert", *which, "-o", form)
        return text.parse_jobs(text.without_marks(self.ask(*command), mark))

    def read_reservations(self) -> tuple[Reservation, ...]:
        return text.parse_reservations(self._show("reservation"))

    def read_partitions(self) -> tuple[str, ...]:
        """Returns the names of all partitions, including those without nodes."""
        return text.parse_partitions(self._show("partition"))

    def read_job(self, job: str) -> JobRecord:
        return text.parse_job_record(self._show("job", checked_job(job)))

    def _show(self, *what: str) -> str:
        return self.ask("scontrol", "-a", "-o", "show", *what)

    def create_reservation(
        self, name: str, node: str, end: End = None, flags: str = "", start: datetime | None = None
    ) -> None:
        """Reserves a node. `reserve_command` describes the parameters and the failures."""
        command = reserve_command(name, node, end, flags, start)
        self._change("slurm.create_reservation", command)

    def _update(self, name: str, *changes: str) -> None:
        """Makes these changes of a reservation in one RPC."""
        command = ["scontrol", "update", f"ReservationName={checked_name(name)}", *changes]
        self._change("slurm.update_reservation", command)

    def move_reservation(self, name: str, begins: datetime, until: datetime) -> None:
        """Changes the times of an event's reservation. Slurm may refuse the times as for a new one.
        The old times then stay (slurmctld/reservation.c, update_resv)."""
        self._update(name, f"StartTime={_moment(begins)}", f"EndTime={_moment(until)}")

    def keeps_accounts(self) -> bool:
        """Returns whether Slurm uses a slurmdbd for accounting."""
        config = self.ask("scontrol", "show", "config")
        return bool(re.search(r"^AccountingStorageType\s*= \S*slurmdbd$", config, re.MULTILINE))

    def charge_reservation(self, name: str, account: str) -> None:
        """Lets an account pay for a reservation's time, as planned time. Removes IGNORE_JOBS, with
        which the time would count as idle. If Slurm refuses an unknown account, nothing changes."""
        accounts = f"Accounts={checked_name(account)}"
        self._update(name, "Flags+=MAINT", "Flags-=IGNORE_JOBS", accounts, "Users=")

    def uncharge_reservation(self, name: str, *, keeps_flag: bool) -> None:
        """Lets root alone use a reservation, and no account pay for it. Removes MAINT too, unless
        `keeps_flag`: Slurm refuses that if another reservation overlaps this one."""
        flag = () if keeps_flag else ("Flags-=MAINT",)
        self._update(name, *flag, "Users=root", "Accounts=")

    def delete_reservation(self, name: str) -> None:
        command = ["scontrol", "delete", f"ReservationName={checked_name(name)}"]
        self._change("slurm.delete_reservation", command)

    def remove_from_reservation(self, name: str, node: str) -> None:
        """Removes a node from a reservation atomically. Slurm before 23.02 refuses `-=`."""
        self._update(name, f"Nodes-={checked_name(node)}")

    def drain(self, node: str, reason: str, marks: Mapping[str, str]) -> None:
        self._change("slurm.drain", drain_command(node, reason, marks))

    def resume(self, node: str, marks: Mapping[str, str]) -> None:
        self._change("slurm.resume", resume_command(node, marks))

    def mark(self, node: str, marks: Mapping[str, str]) -> None:
        """Sets Comment and Extra of a node; an empty text clears one. The state stays."""
        self._change("slurm.mark", _update_node(node, marks))

    def terminate_job(self, job: str) -> None:
        """Sends SIGTERM to the batch shell and all steps; a job that ignores it continues."""
        command = ["scancel", "--signal=TERM", "--full", checked_job(job)]
        self._change("slurm.terminate_job", command)

    def requeue_job(self, job: str) -> None:
        self._change("slurm.requeue_job", ["scontrol", "requeue", checked_job(job)])

    def cancel_job(self, job: str) -> None:
        self._change("slurm.cancel_job", ["scancel", checked_job(job)])

    def ask(self, *command: str) -> str:
        """Returns the output of a command that only reads. Raises SlurmError."""
        try:
            answer = self._run("slurm.read", command, self.timeout)
        except SlurmOutcomeUnknown as error:
            raise SlurmError(str(error)) from error
        if answer.returncode:
            sentence = _sentence_of(answer)
            cause, end = f"'{' '.join(command[:6])}' failed: {sentence}", "nothing is done"
            raise SlurmError(cause, end) if _is_away(answer) else SlurmRefused(cause, sentence, end)
        return answer.stdout

    def _change(self, point: str, command: Sequence[str]) -> None:
        answer = self._run(point, command, self.timeout)
        if answer.returncode:
            sentence = _sentence_of(answer)
            if _is_away(answer):
                raise SlurmOutcomeUnknown(f"'{' '.join(command)}': {sentence}")
            raise SlurmRefused(f"'{' '.join(command)}' was refused: {sentence}", sentence)

    def _run(self, point: str, command: Sequence[str], timeout: timedelta) -> CompletedProcess[str]:
        program = shutil.which(command[0], path=self.environment["PATH"])
        if program is None:
            raise SlurmError(
                f"{command[0]} is not installed here: install Slurm's client commands, or put "
                "their directory into PATH"
            )
        try:
            with fault_point(point):
                answer = run_bounded(  # a list, no shell, checked names
                    [program, *command[1:]], self.environment, timeout.total_seconds(), _LARGEST
                )
        except TimeoutExpired as error:
            raise SlurmOutcomeUnknown(
                f"'{' '.join(command[:6])}' did not answer within {timeout.total_seconds():g} s: "
                "is slurmctld busy or away?"
            ) from error
        except OSError as error:
            raise SlurmError(f"{program} can't be run ({error.strerror})") from error
        out, err = (chunk.decode("utf-8", "replace") for chunk in (answer.stdout, answer.stderr))
        return CompletedProcess(answer.args, answer.returncode, out, err)


def _is_away(answer: CompletedProcess[str]) -> bool:
    """Returns whether the controller ended during the command. Some clients (26.05) then end by
    SIGPIPE, without a message."""
    return answer.returncode < 0 or means_away(_sentence_of(answer))


def means_away(sentence: str) -> bool:
    """Returns whether Slurm's message means that the controller does not answer."""
    return bool(_AWAY.search(sentence))


def _sentence_of(answer: CompletedProcess[str]) -> str:
    """Returns Slurm's error message. Some commands print it on stdout."""
    output = " ".join(f"{answer.stderr} {answer.stdout}".split())
    return output[:300] or f"exit {answer.returncode} without a message"


def checked_name(name: str) -> str:
    """Returns the name of a node or reservation, or raises if it could be an option or list."""
    if not _NAME.fullmatch(name):
        raise SlurmError(f"{name[:80]!r} is not a valid name of a node or reservation")
    return name


def checked_job(job: str) -> str:
    if not _ARRAY_JOB.fullmatch(job):
        raise SlurmError(f"{job[:80]!r} is not a job id")
    return job
