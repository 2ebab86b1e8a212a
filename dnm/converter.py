"""The converter edge: runs the external `node-convert` and listens to it.

There is never a shell; names are checked before they become arguments. A converter runs in its own
session and writes into files of the state directory, so that a run that is killed leaves it to
finish its node, and the next run still learns what it named; one that hangs is ended with its
children. Its exit code is reported and never believed: whoever calls looks at the clusters.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from dnm.errors import ConverterError, SlurmError
from dnm.model import BatchNode, Config, ConverterProcess, Unreadable, Value
from dnm.printable import printable, without_secrets
from dnm.slurm_text import in_service_of, parse_state
from dnm.touch import touch
from dnm.trust import check_trust

NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SECRET = re.compile(r".*(PASSWORD|PASSWD|SECRET|TOKEN)")  # names of variables
_LIST_TIMEOUT = timedelta(seconds=60)
_LINE_LIMIT = 16 * 1024  # bytes; a longer line is cut
_READ_AT_ONCE = 64 * 1024
_OUTPUT_LIMIT = 64 * 1024 * 1024
_LISTEN_EVERY = 0.05  # seconds
_TERM_GRACE = 10.0  # seconds
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


def _secrets(environment: Mapping[str, str]) -> list[str]:
    return [value for name, value in environment.items() if _SECRET.fullmatch(name.upper())]


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


def _note_process(descriptor: int) -> None:
    """In the new process, before it becomes the converter: from its first moment it can be found,
    also if dnm is killed in this one."""
    process = process_of(os.getpid())
    if process is not None:
        os.write(descriptor, msgspec.json.encode(process))


class ConverterCall:
    """One converter under way, its output in `<key>.out` and `<key>.err` of a directory, which
    process it is in `<key>.process`. `run_converters` drives it."""

    def __init__(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], directory: Path
    ) -> None:
        """Starts it; raises ConverterError when the program is missing or not executable."""
        self.names: list[str] = []
        self.last_lines: list[str] = []
        self.secrets = _secrets(environment)
        try:
            check_trust(Path(command[0]), ConverterError)
            with touch("converter.output"):
                directory.mkdir(mode=0o700, exist_ok=True)
                self.stdout = _Tail(directory / f"{key}.out")
                self.stderr = _Tail(directory / f"{key}.err")
                note = _Tail(directory / f"{key}.process").file
            with touch("converter.start"):
                self.child = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=self.stdout.file,
                    stderr=self.stderr.file,
                    env=dict(environment),
                    start_new_session=True,
                    preexec_fn=partial(_note_process, note.fileno()),
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise ConverterError(
                f"the converter {command[0]} can't be started "
                f"({getattr(error, 'strerror', '') or error}): "
                "set node_convert_path to an executable file"
            ) from error
        self.process = process_of(self.child.pid) or ConverterProcess(
            pid=self.child.pid, start_ticks=0
        )

    def listen(self, on_line: Callable[[str], None], is_last: bool = False) -> None:
        """Hears what it has said since the last time; at the end an unfinished line too. What can't
        be read is not heard: the node is then found by its label, or named by nobody."""
        try:
            with touch("converter.end") if is_last else nullcontext():
                self._listen(on_line, is_last)
        except OSError as error:
            on_line(f"its output can't be read: {error.strerror}")

    def _listen(self, on_line: Callable[[str], None], is_last: bool) -> None:
        for tail in (self.stdout, self.stderr):
            for line in tail.new_lines(is_last):
                text = printable(line.decode("utf-8", "replace").rstrip())
                if text:
                    on_line(self.hear(text, tail is self.stdout))

    def hear(self, line: str, from_stdout: bool) -> str:
        """A name alone on a line of stdout is a node that it converted. Returns the line for a log:
        a script that prints its commands prints passwords too."""
        if from_stdout and NODE_NAME.fullmatch(line) and line not in self.names:
            self.names.append(line)
        shown = without_secrets(line, self.secrets)
        self.last_lines = [*self.last_lines[-4:], shown]
        return shown

    def end(self) -> None:
        """TERM for it and its children, KILL some seconds later. One that can't be ended is left:
        the next run sees that it is still at work."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError), touch("converter.signal"):
                os.killpg(self.child.pid, sent)
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(timeout=_TERM_GRACE)


class _Tail:
    """A file that a process writes and this one reads, as far as it has come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self.file = open(os.open(path, flags, 0o600), "rb", buffering=0)  # noqa: SIM115
        self.at = 0
        self.rest = b""

    def new_lines(self, is_last: bool) -> Iterator[bytes]:
        """Whole lines, cut at a limit; at the end everything that is left."""
        while content := os.pread(self.file.fileno(), _READ_AT_ONCE, self.at):
            self.at += len(content)
            yield from self._lines_of(content)
        if self.at > _OUTPUT_LIMIT:
            # Appending goes on at the beginning: a converter that babbles fills no disk.
            with touch("converter.cut_output"):
                os.ftruncate(self.file.fileno(), 0)
            self.at = 0
        if is_last:
            yield from self._lines_of(b"\n")

    def _lines_of(self, content: bytes) -> list[bytes]:
        whole, newline, rest = (self.rest + content).rpartition(b"\n")
        if len(rest) > _LINE_LIMIT:
            whole, rest = whole + newline + rest, b""
        self.rest = rest
        return [line[:_LINE_LIMIT] for line in whole.splitlines()]


class NodeConvert:
    """The site's converter as a run uses it: asked for its list, started, listened to."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self.config = config
        self.environment = converter_environment(config, environ)
        self.directory = config.converted_nodes_path.parent / "converter"
        self.calls: dict[str, ConverterCall] = {}

    def list_nodes(self, node: str = "") -> dict[str, BatchNode] | Unreadable:
        return list_batch_nodes(self.config, self.environment, node)

    def still_running(self, processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
        return still_running(processes)

    def find(self, key: str) -> ConverterProcess | None:
        """The process that was started under a key, by whichever run."""
        try:
            with touch("converter.read_output"):
                content = (self.directory / f"{key}.process").read_bytes()
            return msgspec.json.decode(content, type=ConverterProcess)
        except (OSError, msgspec.MsgspecError):
            return None

    def start(self, key: str, command: Sequence[str]) -> ConverterProcess:
        """Starts it under a key of the caller's; raises ConverterError."""
        call = ConverterCall(key, command, self.environment, self.directory)
        self.calls[key] = call
        return call.process

    def end(self, process: ConverterProcess) -> None:
        """TERM for one of an earlier run and its children, KILL some seconds later."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            give_up = time.monotonic() + _TERM_GRACE
            if process_of(process.pid) == process:
                with suppress(OSError), touch("converter.signal"):
                    os.killpg(process.pid, sent)
            while process_of(process.pid) == process and time.monotonic() < give_up:
                time.sleep(_LISTEN_EVERY)

    def listen(
        self, on_line: Callable[[str, str], None], should_leave: Callable[[], bool]
    ) -> dict[str, Ended]:
        """Waits for all that were started, by key."""
        timeout, grace = self.config.convert_timeout, self.config.shutdown_grace
        return run_converters(self.calls, timeout, on_line, should_leave, grace)

    def read_names(self, key: str) -> tuple[str, ...]:
        """What a converter has named that an earlier run started and could not listen to."""
        try:
            with touch("converter.read_output"), open(self.directory / f"{key}.out", "rb") as file:
                lines = file.read(_OUTPUT_LIMIT).decode("utf-8", "replace").splitlines()
        except OSError:
            return ()
        return tuple(dict.fromkeys(line for line in lines if NODE_NAME.fullmatch(line)))

    def forget_output(self, kept: Container[str]) -> None:
        """Removes the output of converters that nobody waits for any more; what can't be removed
        now is in nobody's way."""
        with suppress(OSError):
            for path in self.directory.iterdir():
                if path.stem not in kept:
                    with touch("converter.forget_output"):
                        path.unlink(missing_ok=True)


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
    ended: dict[str, Ended] = {}
    while True:
        if leave_at is None and should_leave():
            leave_at = time.monotonic() + grace.total_seconds()
        is_leaving = leave_at is not None and time.monotonic() >= leave_at
        is_late = time.monotonic() >= deadline
        for key, call in calls.items():
            if key not in ended:
                has_ended = call.child.poll() is not None
                call.listen(partial(on_line, key))
                if has_ended or is_leaving or is_late:
                    ended[key] = _end(call, has_ended, is_late, partial(on_line, key))
        if len(ended) == len(calls):
            return ended
        time.sleep(_LISTEN_EVERY)


def _end(
    call: ConverterCall, has_ended: bool, is_late: bool, on_line: Callable[[str], None]
) -> Ended:
    if is_late and not has_ended:
        call.end()
    call.listen(on_line, is_last=True)
    return Ended(
        exit_code=call.child.returncode if has_ended else None,
        names=tuple(call.names),
        last_lines=tuple(call.last_lines),
        timed_out=is_late and not has_ended,
        left_running=call.child.poll() is None,
    )


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
                answer = _ask(command, environment)
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
        last = without_secrets(printable(heard[-1]), _secrets(environment)) if heard else ""
        answers.append(f"exit {answer.returncode} {last}".strip())
    said = "; ".join(dict.fromkeys(answers)) or "no table in its output"
    return Unreadable(what=what, error=f"{what}: {said}")


def _ask(
    command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """A question that changes nothing: whoever does not answer in time is killed with its children.

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
            heard = child.communicate(timeout=_LIST_TIMEOUT.total_seconds())
        except BaseException:
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(command, child.returncode, *heard)


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
