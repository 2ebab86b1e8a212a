"""The converter edge: runs the external `node-convert` and listens to it.

There is never a shell; names are checked before they become arguments. A converter runs in its own
session and writes into files of the state directory, so that a run that is killed leaves it to
finish its node, and the next run still learns what it named; one that hangs is ended with its
children. Its exit code is reported and never believed: whoever calls looks at the clusters.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from dnm.model.cluster import BatchNode
from dnm.model.config import Config
from dnm.model.errors import ConverterError, SlurmError
from dnm.model.fault_points import fault_point
from dnm.model.printable import printable, without_secrets
from dnm.model.registry import ConverterProcess, Ended
from dnm.model.slurm_state import in_service_of, parse_state
from dnm.model.trust import check_trust
from dnm.model.value import Unreadable, Value

NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OWN = os.O_RDWR | os.O_CREAT | os.O_APPEND
_FILES = ("out", "err", "process", "heard", "exit")  # of one call
_SECRET = re.compile(r".*(PASSWORD|PASSWD|SECRET|TOKEN)")  # names of variables
_LIST_TIMEOUT = timedelta(seconds=60)
_LINE_LIMIT = 16 * 1024  # bytes; a longer line is cut
_READ_AT_ONCE = 64 * 1024
_OUTPUT_LIMIT = 64 * 1024 * 1024
_LISTEN_EVERY = 0.05  # seconds
_TERM_GRACE = 10.0  # seconds
_LIST_LIMIT = 64 * 1024 * 1024


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


# Starts the converter and waits for it, also after the run has ended: its exit code is in the file
# then. TERM is left to the converter, which has every signal as it comes by default.
_KEEPER = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path, command = sys.argv[1], sys.argv[2:]
plain = [signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ]
try:
    child = os.posix_spawn(command[0], command, os.environ, setsigdef=plain)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
except OSError as error:
    print("it can't be started:", error.strerror, file=sys.stderr)
    code = 127
with open(path + ".new", "w") as file:
    file.write(str(code))
os.rename(path + ".new", path)
sys.exit(code if code >= 0 else 128 - code)
"""


def _file(place: Path, end: str) -> Path:
    return place.with_name(f"{place.name}.{end}")


def _read(path: Path) -> bytes:
    """Empty where there is no such file, or none that can be read."""
    with suppress(OSError):
        if path.exists():
            with fault_point("converter.read_output"):
                return path.read_bytes()
    return b""


class ConverterOutput:
    """What a converter says, in `<key>.out` and `<key>.err` of a directory, read as far as it has
    come: `<key>.heard` tells the next run how far that was."""

    def __init__(self, place: Path, secrets: Sequence[str], flags: int = os.O_RDONLY) -> None:
        """`place` is the directory and the key; `flags` as of open(2). Raises OSError."""
        self.names: list[str] = []
        self.last_lines: list[str] = []
        self.secrets = secrets
        self.place = place
        self.tails = _Tail(_file(place, "out"), flags), _Tail(_file(place, "err"), flags)

    def go_on(self) -> None:
        """From where the run before has left off."""
        with suppress(msgspec.MsgspecError):
            content = _read(_file(self.place, "heard"))
            self.tails[0].at, self.tails[1].at = msgspec.json.decode(content, type=tuple[int, int])

    def listen(self, on_line: Callable[[str], None], is_last: bool = False) -> None:
        """Hears what it has said since the last time; at the end an unfinished line too. What can't
        be read is not heard: the node is then found by its label, or named by nobody."""
        try:
            with fault_point("converter.end") if is_last else nullcontext():
                self._listen(on_line, is_last)
        except OSError as error:
            on_line(f"its output can't be read: {error.strerror}")

    def _listen(self, on_line: Callable[[str], None], is_last: bool) -> None:
        for tail in self.tails:
            for line in tail.new_lines(is_last):
                text = printable(line.decode("utf-8", "replace").rstrip())
                if text:
                    on_line(self.hear(text, tail is self.tails[0]))

    def hear(self, line: str, from_stdout: bool) -> str:
        """A name alone on a line of stdout is a node that it converted. Returns the line for a log:
        a script that prints its commands prints passwords too."""
        if from_stdout and NODE_NAME.fullmatch(line) and line not in self.names:
            self.names.append(line)
        shown = without_secrets(line, self.secrets)
        self.last_lines = [*self.last_lines[-4:], shown]
        return shown

    def leave(self) -> None:
        """Lines are heard twice where this can't be written, not lost."""
        heard = msgspec.json.encode([tail.at - len(tail.rest) for tail in self.tails])
        with suppress(OSError), fault_point("converter.heard"):
            _file(self.place, "heard").write_bytes(heard)

    def read_exit_code(self) -> int | None:
        code = _read(_file(self.place, "exit"))
        return int(code) if code.isdigit() else None


class ConverterCall:
    """A converter that this run has started: its process is in `<key>.process`, in the end its exit
    code in `<key>.exit`. `run_converters` drives it."""

    def __init__(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], directory: Path
    ) -> None:
        """Starts it; raises ConverterError when the program is missing or not executable."""
        try:
            check_trust(Path(command[0]), ConverterError)
            if not os.access(command[0], os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            with fault_point("converter.output"):
                directory.mkdir(mode=0o700, exist_ok=True)
                for end in _FILES:
                    _file(directory / key, end).unlink(missing_ok=True)
                self.output = ConverterOutput(directory / key, _secrets(environment), _OWN)
                note = _Tail(_file(directory / key, "process"), _OWN).file
                exit_file = _file(directory / key, "exit")
            with fault_point("converter.start"):
                self.child = subprocess.Popen(
                    [sys.executable, "-ISc", _KEEPER, str(exit_file), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=self.output.tails[0].file,
                    stderr=self.output.tails[1].file,
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

    def end(self) -> None:
        """TERM for it and its children, KILL some seconds later. One that can't be ended is left:
        the next run sees that it is still at work."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError), fault_point("converter.signal"):
                os.killpg(self.child.pid, sent)
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(timeout=_TERM_GRACE)


class _Tail:
    """A file that a process writes and this one reads, as far as it has come."""

    def __init__(self, path: Path, flags: int) -> None:
        self.can_cut = flags != os.O_RDONLY
        self.file = open(os.open(path, flags, 0o600), "rb", buffering=0)  # noqa: SIM115
        self.at = 0
        self.rest = b""

    def new_lines(self, is_last: bool) -> Iterator[bytes]:
        """Whole lines, cut at a limit; at the end everything that is left."""
        while content := os.pread(self.file.fileno(), _READ_AT_ONCE, self.at):
            self.at += len(content)
            yield from self._lines_of(content)
        if self.can_cut and self.at > _OUTPUT_LIMIT:
            # Appending goes on at the beginning: a converter that babbles fills no disk.
            with fault_point("converter.cut_output"):
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
        with suppress(msgspec.MsgspecError):
            content = _read(_file(self.directory / key, "process"))
            return msgspec.json.decode(content, type=ConverterProcess)
        return None

    def start(self, key: str, command: Sequence[str]) -> ConverterProcess:
        """Starts it under a key of the caller's; raises ConverterError."""
        call = ConverterCall(key, command, self.environment, self.directory)
        self.calls[key] = call
        return call.process

    def end(self, process: ConverterProcess) -> bool:
        """TERM for one of an earlier run and its children, KILL some seconds later; whether it has
        ended."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            give_up = time.monotonic() + _TERM_GRACE
            if process_of(process.pid) == process:
                with suppress(OSError), fault_point("converter.signal"):
                    os.killpg(process.pid, sent)
            while process_of(process.pid) == process and time.monotonic() < give_up:
                time.sleep(_LISTEN_EVERY)
        return process_of(process.pid) != process

    def listen(
        self, on_line: Callable[[str, str], None], should_leave: Callable[[], bool]
    ) -> dict[str, Ended]:
        """Waits for all that were started, by key, and leaves those at work that take longer than
        half an interval: other queues are waiting, and the next run finds them again."""
        waits = Waits(
            timeout=self.config.convert_timeout,
            patience=self.config.check_interval / 2,
            grace=self.config.shutdown_grace,
        )
        return run_converters(self.calls, waits, on_line, should_leave)

    def hear(self, on_line: Callable[[str, str], None]) -> None:
        """What those of earlier runs have said since."""
        secrets = _secrets(self.environment)
        for key in self._keys():
            process = self.find(key)
            try:
                with fault_point("converter.read_output"):
                    output = ConverterOutput(self.directory / key, secrets, os.O_RDWR)
            except OSError as error:
                on_line(key, f"its output can't be read: {error.strerror}")
                continue
            output.go_on()
            before = [tail.at for tail in output.tails]
            has_ended = process is None or process_of(process.pid) != process
            output.listen(partial(on_line, key), is_last=has_ended)
            if [tail.at for tail in output.tails] != before:
                output.leave()

    def _keys(self) -> list[str]:
        try:
            with fault_point("converter.read_output"):
                return sorted(path.stem for path in self.directory.glob("*.process"))
        except OSError:
            return []

    def read_end(self, key: str) -> Ended:
        """How one of an earlier run has ended, as far as it was written down."""
        try:
            with fault_point("converter.read_output"):
                output = ConverterOutput(self.directory / key, _secrets(self.environment))
        except OSError:
            return Ended()
        output.listen(lambda line: None, is_last=True)
        return Ended(
            exit_code=output.read_exit_code(),
            names=tuple(output.names),
            last_lines=tuple(output.last_lines),
        )

    def forget_output(self, kept: Container[str]) -> None:
        """Removes the output of converters that nobody waits for any more; what can't be removed
        now is in nobody's way."""
        with suppress(OSError):
            for path in self.directory.iterdir():
                if path.stem not in kept:
                    with fault_point("converter.forget_output"):
                        path.unlink(missing_ok=True)


class Waits(Value):
    """How long a run listens: a converter has `timeout` and is ended then; after `patience`, or
    `grace` after a signal, it is left at work: half a conversion is worse than a late one."""

    timeout: timedelta
    patience: timedelta
    grace: timedelta


def run_converters(
    calls: Mapping[str, ConverterCall],
    waits: Waits,
    on_line: Callable[[str, str], None],
    should_leave: Callable[[], bool],
) -> dict[str, Ended]:
    """Listens to all of them at once until each has ended, run out of time or is left.

    `on_line` gets the call's key and a printable line.
    """
    now = time.monotonic()
    deadline = now + waits.timeout.total_seconds()
    leave_at = now + waits.patience.total_seconds()
    is_told = False
    ended: dict[str, Ended] = {}
    while True:
        if not is_told and should_leave():
            is_told = True
            leave_at = min(leave_at, time.monotonic() + waits.grace.total_seconds())
        is_leaving = time.monotonic() >= leave_at
        is_late = time.monotonic() >= deadline
        for key, call in calls.items():
            if key not in ended:
                has_ended = call.child.poll() is not None
                call.output.listen(partial(on_line, key))
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
    left_running = call.child.poll() is None
    call.output.listen(on_line, is_last=not left_running)
    if left_running:
        call.output.leave()
    return Ended(
        exit_code=call.child.returncode if has_ended else None,
        names=tuple(call.output.names),
        last_lines=tuple(call.output.last_lines),
        timed_out=is_late and not has_ended,
        left_running=left_running,
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
    secrets = _secrets(environment)
    chosen = ["--node-name", _checked(node)] if node else []
    for options in (["--output", "json"], []):
        command = [str(config.node_convert_path), "--list", *chosen, *options]
        try:
            check_trust(config.node_convert_path, ConverterError)
            with fault_point("converter.list"):
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
        own = [line for line in heard if line.startswith("node-convert:")]
        said = without_secrets(printable([*heard, *own][-1]), secrets) if heard else ""
        answers.append(f"exit {answer.returncode} {said}".strip())
    both = "; ".join(dict.fromkeys(answers)) or "no table in its output"
    return Unreadable(what=what, error=f"{what}: {both}")


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
