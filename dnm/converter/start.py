"""Starts converters, each below a keeper process in a session of its own, so that they outlive a
run. Waits for all converters at once.

No shell is used. The file `<key>.process` identifies the keeper from its start, `<key>.converter`
the converter before it may act, and `<key>.exit` has the exit code. So a later run finds them even
if dnm or the keeper is killed. At the end the keeper triggers a run through `DNM_WAKE`
(cron/dnm.path). dnm ends a converter that exceeds its time-out, with its children, and leaves a
slow one running. It reports the exit code but does not trust it: callers read the clusters."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from dnm.converter.contract import Environment
from dnm.converter.ending import end_started
from dnm.converter.output import FILES, ConverterOutput, file_of, open_file
from dnm.converter.processes import Started, process_of, started_at
from dnm.host.fault_points import fault_point, waiting
from dnm.host.place import boot_id
from dnm.host.trust import check_trust
from dnm.model.errors import ConverterError, StoppedError
from dnm.model.lent import Ended
from dnm.model.lent_state import ConverterProcess
from dnm.model.value import Value

_OWN = os.O_RDWR | os.O_CREAT | os.O_APPEND

# The keeper starts the converter and waits for it, also after the run has ended, and writes the
# exit code. It ignores TERM, which is for the converter; that gets default signal handlers. The
# converter records itself first and ends if its keeper has died before that: so a killed keeper
# leaves no converter that later runs can't find. It also ends if the time until which this host may
# act has passed; this is the last check.
_KEEPER = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path, itself, boot, until = sys.argv[1:5]
command = sys.argv[5:]
def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)
def become_converter(keeper):
    for sent in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(sent, signal.SIG_DFL)
    with open("/proc/self/stat", errors="replace") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    text = '{"pid":%d,"start_ticks":%s,"boot":"%s","host":"%s"}'
    write(itself, text % (os.getpid(), ticks, boot, os.uname().nodename))
    if until:
        import time
        if time.clock_gettime(time.CLOCK_BOOTTIME) > float(until):
            print("not started: the run slept for too long", file=sys.stderr, flush=True)
            return
    if os.getppid() == keeper:
        os.execve(command[0], command, os.environ)
keeper = os.getpid()
child = os.fork()
if child == 0:
    try:
        become_converter(keeper)
    except OSError as error:
        print("it can't be started:", error.strerror, file=sys.stderr, flush=True)
    os._exit(127)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
write(path, str(code))
try:
    os.close(os.open(os.environ.get("DNM_WAKE", os.devnull), os.O_WRONLY | os.O_CREAT, 0o600))
except OSError:
    pass  # the next minute's run sees it
sys.exit(code if code >= 0 else 128 - code)
"""


def _note_process(descriptor: int) -> None:
    """Records this process as the keeper, a converter's parent, before it becomes that. The process
    does so itself, so that later runs find it even if dnm is killed now."""
    process = process_of(os.getpid())
    if process is not None:
        os.write(descriptor, msgspec.json.encode(process))


def _check_none_at_work(place: Path) -> None:
    """Raises ConverterError if an earlier converter with this key still runs, since both would
    convert the same node."""
    before = started_at(place)
    if before.is_alive:
        number = (before.converter or before.keeper or ConverterProcess(pid=0, start_ticks=0)).pid
        raise ConverterError(
            f"the converter of {place.name} still runs as process {number}: "
            "dnm starts no second one"
        )


class ConverterCall:
    """A converter that this run has started; `run_converters` waits for it."""

    def __init__(
        self,
        key: str,
        command: Sequence[str],
        env: Environment,
        directory: Path,
        until: float | None = None,
    ) -> None:
        """Starts the converter. It refuses to begin after `until`, in seconds since boot. Raises
        ConverterError if the program is missing or not executable."""
        try:
            check_trust(Path(command[0]), ConverterError)
            if not os.access(command[0], os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            self.place = directory / key
            _check_none_at_work(self.place)
            with fault_point("converter.output"):
                directory.mkdir(mode=0o700, exist_ok=True)
                directory.chmod(0o700)  # the output may hold secrets
                for end in FILES:
                    file_of(directory / key, end).unlink(missing_ok=True)
                self.output = ConverterOutput(directory / key, env.secrets, _OWN)
                note = open_file(file_of(directory / key, "process"), _OWN)
                start = [boot_id(), "" if until is None else str(until)]
                own_files = [str(file_of(directory / key, end)) for end in ("exit", "converter")]
            with fault_point("converter.start"):
                self.child = subprocess.Popen(
                    [sys.executable, "-ISc", _KEEPER, *own_files, *start, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=self.output.tails[0].file,
                    stderr=self.output.tails[1].file,
                    env=dict(env.environment),
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
        """Sends TERM to the converter and its children, and KILL some seconds later. The next run
        finds a process that could not be ended."""
        end_started(Started(keeper=self.process, converter=started_at(self.place).converter))
        self.child.poll()

    def has_ended(self) -> bool:
        """Returns whether keeper and converter have ended. A converter survives a killed keeper."""
        return self.child.poll() is not None and not started_at(self.place).is_alive


LISTEN_EVERY = 0.05  # seconds


class ConverterPatience(Value):
    """The times that a run waits. It ends a converter after `timeout`. It leaves one running after
    `patience`, or `grace` after a signal: an interrupted conversion is worse than a late one."""

    timeout: timedelta
    patience: timedelta
    grace: timedelta


def run_converters(
    calls: Mapping[str, ConverterCall],
    waits: ConverterPatience,
    on_line: Callable[[str, str], None],
    should_leave: Callable[[], bool],
) -> dict[str, Ended]:
    """Waits for converters. Returns by key how each ended: by itself, by time-out, or left running.

    `on_line` gets the call's key and a printable line of output."""
    now = time.monotonic()
    deadline = now + waits.timeout.total_seconds()
    leave_at = now + waits.patience.total_seconds()
    is_asked_to_leave = False
    ended: dict[str, Ended] = {}
    while True:
        if not is_asked_to_leave and should_leave():
            is_asked_to_leave = True
            leave_at = min(leave_at, time.monotonic() + waits.grace.total_seconds())
        is_leaving = time.monotonic() >= leave_at
        is_late = time.monotonic() >= deadline
        for key, call in calls.items():
            if key not in ended:
                has_ended = call.has_ended()
                call.output.read_new(partial(on_line, key))
                if has_ended or is_leaving or is_late:
                    ended[key] = _end(call, has_ended, is_late, partial(on_line, key))
        if len(ended) == len(calls):
            return ended
        try:
            with waiting():
                time.sleep(LISTEN_EVERY)
        except StoppedError:  # a signal before this loop has used its grace
            leave_at = time.monotonic()


def _end(
    call: ConverterCall, has_ended: bool, is_late: bool, on_line: Callable[[str], None]
) -> Ended:
    if is_late and not has_ended:
        call.end()
    left_running = not call.has_ended()
    call.output.read_new(on_line, is_last=not left_running)
    if left_running:
        call.output.save_position()
    return Ended(
        exit_code=call.child.returncode if has_ended else None,
        names=tuple(call.output.names),
        last_lines=tuple(call.output.last_lines),
        failures=call.output.failures,
        timed_out=is_late and not has_ended,
        left_running=left_running,
    )
