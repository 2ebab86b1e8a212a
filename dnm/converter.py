"""The converter edge: runs the external `node-convert` and listens to it.

There is never a shell; names are checked before they become arguments. A converter runs in its own
session, so that a run that is killed leaves it to finish its node, and one that hangs is ended with
its children. Its exit code is reported and never believed: whoever calls looks at the clusters.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from dnm.errors import ConverterError, SlurmError
from dnm.model import BatchNode, Config, ConverterProcess, Unreadable, Value
from dnm.printable import printable
from dnm.slurm_text import in_service_of, parse_state
from dnm.touch import touch
from dnm.trust import check_trust

NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LIST_TIMEOUT = timedelta(seconds=60)
_LINE_LIMIT = 16 * 1024  # bytes; a longer line is cut
_LIST_LIMIT = 64 * 1024 * 1024


class Ended(Value):
    """How a converter ended: `exit_code` None means it was ended for its time, or left running."""

    exit_code: int | None
    names: tuple[str, ...]  # nodes it named on stdout, a line each
    last_lines: tuple[str, ...]
    timed_out: bool = False
    left_running: bool = False


def convert_command(config: Config, node_type: str, count: int, namespace: str) -> list[str]:
    """`--set k8s` for `count` nodes of a type; raises ConverterError for an unusable name."""
    command = [
        str(config.node_convert_path), "--set", "k8s", "--node-type", _checked(node_type),
        "--num-nodes", str(count), "--namespace", _checked(namespace),
    ]  # fmt: skip
    return [*command, "--allow-preempt"] if config.allow_preempt else command


def return_command(config: Config, node: str) -> list[str]:
    """`--set batch` for one node; raises ConverterError for an unusable name."""
    return [str(config.node_convert_path), "--set", "batch", "--node-name", _checked(node)]


def _checked(name: str) -> str:
    """RFC 1123: lower case, digits, '-' and '.'; never an option, never a path."""
    if len(name) > 253 or not NODE_NAME.fullmatch(name):
        raise ConverterError(f"{name!r} is not a name that may reach a command line (RFC 1123)")
    return name


def converter_environment(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """What the site set, with the cluster and the reservation that dnm means."""
    environment = dict(environ)
    environment["DNM_CONFIG"] = str(config.path)
    environment["DNM_INSTANCE"] = config.instance_id
    if config.kubeconfig_path is not None:
        environment["KUBECONFIG"] = str(config.kubeconfig_path)
    if config.slurm_reservation_name:
        environment["RES_NAME"] = config.slurm_reservation_name
    return environment


def process_of(pid: int) -> ConverterProcess | None:
    """The process with its start time (proc(5), field 22), which tells it from a later one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] == "Z":
        return None
    return ConverterProcess(pid=pid, start_ticks=int(fields[19]))


def still_running(processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
    """Those of them that live."""
    return frozenset(process for process in processes if process_of(process.pid) == process)


class ConverterCall:
    """One converter under way. `run_converters` drives it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts it; raises ConverterError when the program is missing or not executable."""
        self.names: list[str] = []
        self.last_lines: list[str] = []
        try:
            check_trust(Path(command[0]), ConverterError)
            with touch("converter.start"):
                self.child = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=dict(environment),
                    start_new_session=True,
                )
        except OSError as error:
            raise ConverterError(
                f"the converter {command[0]} can't be started ({error.strerror}): "
                "set node_convert_path to an executable file"
            ) from error
        self.process = process_of(self.child.pid) or ConverterProcess(
            pid=self.child.pid, start_ticks=0
        )

    def hear(self, line: str, from_stdout: bool) -> None:
        """A name alone on a line of stdout is a node that it converted."""
        self.last_lines = [*self.last_lines[-4:], line]
        if from_stdout and NODE_NAME.fullmatch(line) and line not in self.names:
            self.names.append(line)

    def end(self) -> None:
        """TERM for it and its children, KILL ten seconds later."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            with touch("converter.signal"):
                try:
                    os.killpg(self.child.pid, sent)
                except ProcessLookupError:
                    return
            if sent == signal.SIGTERM:
                try:
                    self.child.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    continue
        self.child.wait()


class NodeConvert:
    """The site's converter as a run uses it: asked for its list, started, listened to."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self.config = config
        self.environment = converter_environment(config, environ)
        self.calls: dict[str, ConverterCall] = {}

    def list_nodes(self, node: str = "") -> dict[str, BatchNode] | Unreadable:
        return list_batch_nodes(self.config, self.environment, node)

    def still_running(self, processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
        return still_running(processes)

    def start(self, key: str, command: Sequence[str]) -> ConverterProcess:
        """Starts it under a key of the caller's; raises ConverterError."""
        self.calls[key] = call = ConverterCall(command, self.environment)
        return call.process

    def listen(
        self, on_line: Callable[[str, str], None], should_leave: Callable[[], bool]
    ) -> dict[str, Ended]:
        """Waits for all that were started, by key."""
        timeout, grace = self.config.convert_timeout, self.config.shutdown_grace
        return run_converters(self.calls, timeout, on_line, should_leave, grace)


def run_converters(
    calls: Mapping[str, ConverterCall],
    timeout: timedelta,
    on_line: Callable[[str, str], None],
    should_leave: Callable[[], bool],
    grace: timedelta,
) -> dict[str, Ended]:
    """Listens to all of them at once until each has ended or run out of time.

    `on_line` gets the call's key and a printable line. `grace` after `should_leave` turned true,
    those still under way are left running: half a conversion is worse than a late one.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    leave_at: float | None = None
    lines = _Lines(calls, on_line)
    ended: dict[str, Ended] = {}
    while len(ended) < len(calls):
        if leave_at is None and should_leave():
            leave_at = time.monotonic() + grace.total_seconds()
        leaving = leave_at is not None and time.monotonic() >= leave_at
        late = time.monotonic() >= deadline
        lines.listen(0.2)
        for key, call in calls.items():
            if key in ended:
                continue
            has_ended = call.child.poll() is not None
            if has_ended or leaving or late:
                if late and not has_ended:
                    call.end()
                lines.listen(0)
                with touch("converter.end"):
                    ended[key] = Ended(
                        exit_code=call.child.returncode if has_ended else None,
                        names=tuple(call.names),
                        last_lines=tuple(call.last_lines),
                        timed_out=late and not has_ended,
                        left_running=leaving and not late and not has_ended,
                    )
    lines.close()
    return ended


class _Lines:
    """The output of several processes, line by line, without waiting for any."""

    def __init__(self, calls: Mapping[str, ConverterCall], on_line: Callable[[str, str], None]):
        self.on_line = on_line
        self.calls = calls
        self.selector = selectors.DefaultSelector()
        self.rest: dict[int, bytes] = {}
        for key, call in calls.items():
            for stream in (call.child.stdout, call.child.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                self.rest[stream.fileno()] = b""
                self.selector.register(stream, selectors.EVENT_READ, (key, stream))

    def listen(self, seconds: float) -> None:
        if not self.selector.get_map():
            time.sleep(min(seconds, 0.02))
            return
        for event, _ in self.selector.select(seconds):
            key, stream = event.data
            content = os.read(stream.fileno(), 65536)
            whole, newline, rest = (self.rest[event.fd] + content).rpartition(b"\n")
            if not content:
                self.selector.unregister(stream)
                whole, rest = self.rest[event.fd], b""
            elif len(rest) > _LINE_LIMIT:
                whole, rest = whole + newline + rest, b""
            self.rest[event.fd] = rest
            for line in whole.splitlines():
                self._heard(key, line, stream is self.calls[key].child.stdout)

    def _heard(self, key: str, line: bytes, from_stdout: bool) -> None:
        text = printable(line[:_LINE_LIMIT].decode("utf-8", "replace").rstrip())
        if text:
            self.calls[key].hear(text, from_stdout)
            self.on_line(key, text)

    def close(self) -> None:
        self.selector.close()
        for call in self.calls.values():
            for stream in (call.child.stdout, call.child.stderr):
                assert stream is not None
                stream.close()


class _ListedNode(msgspec.Struct):
    node: str
    state: str
    verdict: str
    reason: str = ""
    in_service: bool | None = None


class _List(msgspec.Struct):
    nodes: list[_ListedNode]


def list_batch_nodes(
    config: Config, environment: Mapping[str, str], node: str = ""
) -> dict[str, BatchNode] | Unreadable:
    """Every node, or the one named, as `node-convert --list` judges it: JSON where the converter
    speaks it, else the table of the site's script. Anything else is Unreadable."""
    what = f"{config.node_convert_path} --list"
    answers: list[str] = []
    chosen = ["--node-name", _checked(node)] if node else []
    for options in (["--output", "json"], []):
        command = [str(config.node_convert_path), "--list", *chosen, *options]
        try:
            check_trust(config.node_convert_path, ConverterError)
            with touch("converter.list"):
                answer = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    env=dict(environment),
                    timeout=_LIST_TIMEOUT.total_seconds(),
                    check=False,
                )
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
        heard = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        answers.append(f"exit {answer.returncode} {printable(heard[-1]) if heard else ''}".strip())
    said = "; ".join(dict.fromkeys(answers)) or "no table in its output"
    return Unreadable(what=what, error=f"{what}: {said}")


def parse_list(content: bytes) -> dict[str, BatchNode] | None:
    """The JSON document or the table NODE STATE IDLE VERDICT REASON; None if it is neither."""
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
        )
        for node in listed
        if NODE_NAME.fullmatch(node.node)
    }


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
