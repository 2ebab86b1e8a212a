"""The converter's `--list`: asked, and read into `BatchNode`s."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from dnm.converter.contract import NODE_NAME, list_command, secrets_of
from dnm.model.cluster import BatchClaim, BatchNode
from dnm.model.config import Config
from dnm.model.errors import ConverterError, SlurmError
from dnm.model.fault_points import fault_point
from dnm.model.printable import printable, without_secrets
from dnm.model.slurm_state import in_service_of, parse_state
from dnm.model.trust import check_trust
from dnm.model.value import Unreadable

_LIST_TIMEOUT = timedelta(seconds=60)
_LIST_LIMIT = 64 * 1024 * 1024  # bytes


class _ListedClaim(msgspec.Struct):
    instance: str = ""
    direction: str = ""
    namespace: str = ""
    node_type: str = ""
    request: str = ""
    since: datetime | None = None
    is_at_work: bool = False
    error: str = ""


class _ListedNode(msgspec.Struct):
    node: str
    state: str
    verdict: str
    reason: str = ""
    in_service: bool | None = None
    claim: _ListedClaim | msgspec.UnsetType | None = msgspec.UNSET


class _List(msgspec.Struct):
    nodes: list[_ListedNode]


def list_batch_nodes(
    config: Config, environment: Mapping[str, str], node: str = ""
) -> dict[str, BatchNode] | Unreadable:
    """Returns every node, or the one named, as `node-convert --list` judges it: from JSON where the
    converter speaks it, else from the table of the site's script. Anything else is Unreadable.

    Raises ConverterError for a name that may not reach a command line.
    """
    what = f"{config.node_convert_path} --list"
    command = list_command(config, node)
    answers: list[str] = []
    for options in (["--output", "json"], []):
        try:
            check_trust(config.node_convert_path, ConverterError)
            with fault_point("converter.list"):
                answer = _ask([*command, *options], environment)
        except subprocess.TimeoutExpired:
            seconds = _LIST_TIMEOUT.total_seconds()
            return Unreadable(what=what, error=f"{what}: no answer in {seconds:.0f} s")
        except ConverterError as error:
            return Unreadable(what=what, error=str(error))
        except OSError as error:
            return Unreadable(what=what, error=f"{what} can't be started: {error.strerror}")
        if answer.returncode == 0:
            nodes = parse_list(answer.stdout[:_LIST_LIMIT])
            if nodes is not None:
                return nodes
        answers.append(_describe_failure(answer, secrets_of(environment)))
    both = "; ".join(dict.fromkeys(answers)) or "no table in its output"
    return Unreadable(what=what, error=f"{what}: {both}")


def _describe_failure(answer: subprocess.CompletedProcess[bytes], secrets: Sequence[str]) -> str:
    """The exit code, and of stderr the converter's own last sentence, else the last line."""
    lines = answer.stderr.decode("utf-8", "replace").strip().splitlines()
    own = [line for line in lines if line.startswith("node-convert:")]
    last = without_secrets(printable([*lines, *own][-1]), secrets) if lines else ""
    return f"exit {answer.returncode} {last}".strip()


def _ask(
    command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command that changes nothing; one that takes too long is killed with its children.

    Raises OSError and TimeoutExpired."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,
    ) as child:
        try:
            output = child.communicate(timeout=_LIST_TIMEOUT.total_seconds())
        except BaseException:
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(command, child.returncode, *output)


def parse_list(content: bytes) -> dict[str, BatchNode] | None:
    """Returns the nodes by name, from the JSON document or from the table NODE STATE IDLE VERDICT
    REASON; None if it is neither."""
    try:
        listed = msgspec.json.decode(content, type=_List).nodes
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _parse_table(content.decode("utf-8", "replace"))
    return {
        node.node: BatchNode(
            name=node.node,
            state=printable(node.state),
            verdict=node.verdict,
            reason=printable(node.reason),
            in_service=node.in_service,
            claim=_claim(node.claim) if isinstance(node.claim, _ListedClaim) else None,
            tells_claim=node.claim is not msgspec.UNSET,
        )
        for node in listed
        if NODE_NAME.fullmatch(node.node)
    }


def _claim(listed: _ListedClaim) -> BatchClaim:
    """As what others said: bounded and printable."""
    since = listed.since
    return BatchClaim(
        instance=printable(listed.instance, 80),
        direction=listed.direction if listed.direction in ("k8s", "batch") else "",
        namespace=printable(listed.namespace, 80),
        node_type=printable(listed.node_type, 80),
        request=printable(listed.request, 80),
        since=since.astimezone(UTC) if since is not None and since.tzinfo else None,
        is_at_work=listed.is_at_work,
        error=printable(listed.error),
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
            break
        if NODE_NAME.fullmatch(fields[0]):
            nodes[fields[0]] = BatchNode(
                name=fields[0],
                state=printable(fields[1]),
                verdict=fields[3],
                reason=printable(fields[4]) if len(fields) > 4 else "",
                in_service=_in_service(fields[1]),
            )
    return nodes


def _in_service(state: str) -> bool | None:
    try:
        return in_service_of(parse_state(state))
    except SlurmError:
        return None
