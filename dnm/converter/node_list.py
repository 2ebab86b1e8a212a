"""A reader of the converter's `--list`: runs it and parses its output into `BatchNode`s."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from dnm.converter.contract import (
    CHARGE,
    LEAVE_DRAINED,
    LEAVE_OUT,
    NODE_NAME,
    RESERVE,
    Environment,
    list_command,
)  # fmt: skip
from dnm.host.fault_points import fault_point
from dnm.host.programs import TimeoutExpired, run_bounded
from dnm.host.trust import check_trust
from dnm.model.batch import BatchClaim, BatchList, BatchNode, WaitingJobs
from dnm.model.blackout import SafeLines, Secrets
from dnm.model.config import Config
from dnm.model.errors import ConverterError, SlurmError
from dnm.model.printable import printable
from dnm.model.slurm_state import in_service_of, parse_state
from dnm.model.value import Unreadable

_LIST_TIMEOUT = timedelta(seconds=60)
_LIST_LIMIT = 64 * 1024 * 1024  # bytes
_LONGEST_LINE = 4096
_AT_ONCE = 64 * 1024
_MOST_WORDS = 1_000  # partitions, features, or reservations, of one node
_LONGEST_NAME = 253
_MOST_ROWS = 1_000  # of waiting jobs
_PROGRAM = "correct node_convert_path, or install the converter"
_STEPS = {errno.EACCES: "; run chmod +x", errno.ENOENT: "; correct its first line (#!)"}
_NO_LIST = "; add --list to the converter, or install Slurm's commands on this host"
_OWN = re.compile(r"(node|nodeset|bridge)-convert:")  # begins a message of the shipped converters
_LONGEST_REASON = 256  # characters, the length that slurm-operator writes


class _ListedClaim(BatchClaim, kw_only=True, forbid_unknown_fields=False):
    instance: str = ""


class _ListedNode(msgspec.Struct):
    node: str
    state: str
    verdict: str
    reason: str = ""
    in_service: bool | None = None
    claim: _ListedClaim | msgspec.UnsetType | None = msgspec.UNSET
    # Optional fields. A malformed one counts as absent and does not spoil the list.
    partitions: Any = None
    features: Any = None
    reservations: Any = None
    reservations_begin: Any = None


class _ListedJobs(WaitingJobs, kw_only=True, forbid_unknown_fields=False):
    jobs: Annotated[int, msgspec.Meta(ge=0, le=10**9)]
    nodes: Annotated[int, msgspec.Meta(ge=0, le=10**12)]


class _List(msgspec.Struct):
    nodes: list[_ListedNode]
    waiting_jobs: list[_ListedJobs] | None = None
    options: Any = None


def list_batch_nodes(config: Config, env: Environment, node: str = "") -> BatchList | Unreadable:
    """Returns every node, or the one named, with the verdict of `node-convert --list`. The output
    is JSON, or the table of the predecessor's script. If the converter has no `--list` and Slurm's
    commands are on this host, dnm's own converter lists the nodes. Any other output is Unreadable.

    Raises ConverterError for a name that may not appear in a command line."""
    program = config.node_convert_path
    shown = f"{program} --list"
    try:
        check_trust(program, ConverterError)
    except ConverterError as error:
        return Unreadable(subject=shown, error=str(error))
    except OSError as error:
        why = f"{shown} can't be started: {error.strerror}; {_PROGRAM}"
        return Unreadable(subject=shown, error=why)
    command = list_command(config, node)
    answer = _run_list(command, shown, env)
    if isinstance(answer, BatchList):
        return _without_secrets(answer, env.secrets, shown)
    if not answer.has_no_list:
        return Unreadable(subject=shown, error=f"{shown}{answer.why}")
    path = env.environment.get("PATH", os.defpath)
    is_shipped = program.resolve().parent == Path(sys.executable).parent.resolve()  # and has a list
    if is_shipped or not shutil.which("scontrol", path=path):
        failed = f"{shown}{answer.why}{'' if is_shipped else _NO_LIST}"
        return Unreadable(subject=shown, error=failed)
    shown = f"node-convert {' '.join(command[1:])}"
    own = _run_list([sys.executable, "-I", "-m", "dnm.converters.cli", *command[1:]], shown, env)
    if isinstance(own, BatchList):
        return _without_secrets(_without_claims(own), env.secrets, shown)
    both = f"{program} printed no list of nodes{answer.why}; dnm's own {shown}{own.why}"
    return Unreadable(subject=shown, error=f"{both}{_NO_LIST}")


class _NoAnswer(NamedTuple):
    """A failed call of `--list`. `why` ends an error message. `has_no_list` is true if the
    converter does not know the option `--list`."""

    why: str
    has_no_list: bool = False


def _run_list(command: Sequence[str], shown: str, env: Environment) -> BatchList | _NoAnswer:
    """Runs the list command with `--output json`. If that fails, runs it again for a table."""
    seconds = _LIST_TIMEOUT.total_seconds()
    failures: list[str] = []
    for options in (["--output", "json"], []):
        try:
            with fault_point("converter.list"):
                answer = run_bounded([*command, *options], env.environment, seconds, _LIST_LIMIT)
        except TimeoutExpired:
            return _NoAnswer(f": no answer in {seconds:.0f} s")
        except OSError as error:
            failure = "was ended" if error.errno == errno.EFBIG else "can't be started"
            return _NoAnswer(f" {failure}: {error.strerror}{_STEPS.get(error.errno or 0, '')}")
        if answer.returncode == 0 and (listed := parse_list(answer.stdout)) is not None:
            return listed
        failures.append(_describe_failure(answer, env.secrets))
    return _NoAnswer(
        f": {'; '.join(dict.fromkeys(failures)) or 'no table in its output'}",
        has_no_list=answer.returncode in (0, 2),  # 2: usage
    )


def _without_claims(listed: BatchList) -> BatchList:
    """Removes claims and options from a list by dnm's own converter, which does not know the claims
    and options of the site's converter."""
    nodes = {
        name: msgspec.structs.replace(node, claim=None, reports_claim=False)
        for name, node in listed.nodes.items()
    }
    return BatchList(nodes=nodes, waiting=listed.waiting)


def _without_secrets(listed: BatchList, secrets: Secrets, shown: str) -> BatchList | Unreadable:
    """Returns the list with secrets blacked out in texts. A secret inside a name makes the list
    Unreadable, because a blacked-out name would mean another node or instance."""
    for node in listed.nodes.values():
        if any(secrets.hide(name) != name for name in _names_of(node)):
            error = "a name in it holds a secret of the environment: give that another value"
            return Unreadable(subject=shown, error=f"{shown}: {error}")

    def hidden(text: str) -> str:
        """Hides secrets before it shortens the text: a cut secret would not be recognized."""
        return printable(secrets.hide(text), _LONGEST_REASON)

    nodes = {
        name: msgspec.structs.replace(
            node,
            state=hidden(node.state),
            verdict=hidden(node.verdict),
            reason=hidden(node.reason),
            claim=node.claim
            and msgspec.structs.replace(node.claim, error=hidden(node.claim.error)),
        )
        for name, node in listed.nodes.items()
    }
    return msgspec.structs.replace(listed, nodes=nodes)


def _names_of(node: BatchNode) -> tuple[str, ...]:
    names: tuple[str, ...]
    names = node.name, *node.partitions, *(node.features or ()), *(node.reservations or ())
    if (claim := node.claim) is None:
        return names
    return *names, claim.instance, claim.namespace, claim.node_type, claim.request


def _describe_failure(answer: subprocess.CompletedProcess[bytes], secrets: Secrets) -> str:
    """Returns the exit code and the last message of a shipped converter, or else the last line."""
    safe = SafeLines(secrets, _LONGEST_LINE)
    pieces = range(0, len(answer.stderr), _AT_ONCE)
    lines = [line for at in pieces for line in safe.feed(answer.stderr[at : at + _AT_ONCE])]
    lines += safe.end()
    own = [line for line in lines if _OWN.match(line)]
    last = [*lines, *own][-1] if lines else ""
    return f"exit code {answer.returncode}{last and ', '}{last}"


def parse_list(content: bytes) -> BatchList | None:
    """Returns the nodes by name, from a JSON document or from a table NODE STATE IDLE VERDICT
    REASON. Returns None if the content is neither."""
    try:
        listed = msgspec.json.decode(content, type=_List)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        table = _parse_table(content.decode("utf-8", "replace"))
        return None if table is None else BatchList(nodes=table)
    nodes = {
        node.node: BatchNode(
            name=node.node,
            state=printable(node.state, _LONGEST_LINE),
            verdict=printable(node.verdict, _LONGEST_LINE),
            reason=printable(node.reason, _LONGEST_LINE),
            in_service=node.in_service,
            claim=_claim(node.claim) if isinstance(node.claim, _ListedClaim) else None,
            reports_claim=node.claim is not msgspec.UNSET,
            partitions=_words(node.partitions) or (),
            features=_words(node.features),
            reservations=_words(node.reservations),
            reservations_begin=_moments(node.reservations_begin),
        )
        for node in listed.nodes
        if _is_name(node.node)
    }
    return BatchList(
        nodes=nodes,
        waiting=_waiting_jobs(listed.waiting_jobs),
        can_reserve=RESERVE in (_words(listed.options) or ()),
        leaves_out=LEAVE_OUT in (_words(listed.options) or ()),
        charges=CHARGE in (_words(listed.options) or ()),
        leaves_drained=LEAVE_DRAINED in (_words(listed.options) or ()),
    )


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and NODE_NAME.fullmatch(text) is not None


def _words(listed: Any) -> tuple[str, ...] | None:
    """Returns the strings of a list; None if the list is too long or one is malformed. If dnm
    skipped that one, a busy node could look free."""
    if not isinstance(listed, list) or len(listed) > _MOST_WORDS:
        return None
    if not all(isinstance(item, str) for item in listed):
        return None
    return tuple(printable(item, 160) for item in listed)


def _moments(listed: Any) -> dict[str, datetime]:
    """Returns the begin of each of a node's reservations, by name. Leaves malformed times out."""
    times: dict[str, datetime] = {}
    for name, text in list(listed.items())[:_MOST_WORDS] if isinstance(listed, dict) else ():
        with suppress(msgspec.ValidationError):
            moment = _in_utc(msgspec.convert(text, datetime | None))
            if moment is not None:
                times[printable(name, 160)] = moment
    return times


def _waiting_jobs(listed: list[_ListedJobs] | None) -> tuple[WaitingJobs, ...] | None:
    """Returns the rows that have a job. Their untrusted texts become short and printable."""
    if listed is None:
        return None
    return tuple(
        WaitingJobs(
            partition=printable(listed_jobs.partition, 80),
            node_type=printable(listed_jobs.node_type, 80),
            jobs=listed_jobs.jobs,
            nodes=listed_jobs.nodes,
            since=_in_utc(listed_jobs.since),
        )
        for listed_jobs in listed[:_MOST_ROWS]
        if listed_jobs.jobs
    )


def _in_utc(moment: datetime | None) -> datetime | None:
    """Returns the time in UTC; None if it is missing, has no time zone, or overflows in UTC."""
    if moment is None or moment.tzinfo is None:
        return None
    with suppress(OverflowError):
        return moment.astimezone(UTC)
    return None


def _claim(listed: _ListedClaim) -> BatchClaim:
    """Returns the claim on a node in the list. Its untrusted texts become short and printable."""
    return BatchClaim(
        instance=printable(listed.instance, 80),
        direction=listed.direction if listed.direction in ("k8s", "batch") else "",
        namespace=printable(listed.namespace, 80),
        node_type=printable(listed.node_type, 80),
        request=printable(listed.request, 80),
        since=_in_utc(listed.since),
        is_at_work=listed.is_at_work,
        error=printable(listed.error, _LONGEST_LINE),
        account=printable(listed.account, 80),
    )


def _parse_table(text: str) -> dict[str, BatchNode] | None:
    nodes: dict[str, BatchNode] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if line.split()[:4] == ["NODE", "STATE", "IDLE", "VERDICT"]:
            break
    else:
        return None
    for line in lines:
        fields = line.split(None, 4)
        if len(fields) < 4 or fields[3] not in ("OK", "PREEMPT", "SKIP"):
            continue  # a malformed row is skipped, and the others count
        if _is_name(fields[0]):
            nodes[fields[0]] = BatchNode(
                name=fields[0],
                state=printable(fields[1], _LONGEST_LINE),
                verdict=fields[3],
                reason=printable(fields[4], _LONGEST_LINE) if len(fields) > 4 else "",
                in_service=_in_service(fields[1]),
            )
    return nodes


def _in_service(state: str) -> bool | None:
    try:
        return in_service_of(parse_state(state))
    except SlurmError:
        return None
