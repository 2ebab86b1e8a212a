"""Starts a converter and its keeper, in a session of their own, so that they outlive a run, and
waits for all that were started, at once.

There is never a shell. The keeper stands in `<key>.process` from its first moment, the converter in
`<key>.converter` before it may act, in the end its exit code in `<key>.exit`: also where dnm or the
keeper is killed in between. Then it wakes who starts runs (`DNM_WAKE`, cron/dnm.path). One that
takes too long is ended with its children; one that is only not ready yet is left at work. The exit
code is reported and never believed: whoever calls looks at the clusters.
"""

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
from dnm.model.lent import ConverterProcess, Ended
from dnm.model.value import Value

_OWN = os.O_RDWR | os.O_CREAT | os.O_APPEND

# Starts the converter and waits for it, also after the run has ended: its exit code is in the file
# then. TERM is left to the converter, which has every signal as it comes by default. The converter
# writes itself down first, and does not begin where its keeper has died before that: so a keeper
# that is killed at any moment leaves none at work that can't be found. Nor does it begin after
# the moment until which nobody else acts: this is the last look before it is at work.
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
            print("not begun: the run that asked was asleep", file=sys.stderr, flush=True)
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
    """In the new process, before it becomes the converter: from its first moment it can be found,
    also if dnm is killed in this one."""
    process = process_of(os.getpid())
    if process is not None:
        os.write(descriptor, msgspec.json.encode(process))


def _check_none_at_work(place: Path) -> None:
    """Raises ConverterError where the one that was started before under this key is at work: two
    would work on the same node."""
    before = started_at(place)
    if before.is_alive:
        number = (before.converter or before.keeper or ConverterProcess(pid=0, start_ticks=0)).pid
        raise ConverterError(
            f"the converter of {place.name} is still at work as process {number}: "
            "no second one is started beside it"
        )


class ConverterCall:
    """A converter that this run has started; `run_converters` waits for it."""

    def __init__(
        self,
        key: str,
        command: Sequence[str],
        given: Environment,
        directory: Path,
        until: float | None = None,
    ) -> None:
        """Starts it, but not after `until`, in seconds since the boot. Raises ConverterError when
        the program is missing or not executable."""
        try:
            check_trust(Path(command[0]), ConverterError)
            if not os.access(command[0], os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            self.place = directory / key
            _check_none_at_work(self.place)
            with fault_point("converter.output"):
                directory.mkdir(mode=0o700, exist_ok=True)
                directory.chmod(0o700)  # what is in it is as it was printed
                for end in FILES:
                    file_of(directory / key, end).unlink(missing_ok=True)
                self.output = ConverterOutput(directory / key, given.secrets, _OWN)
                note = open_file(file_of(directory / key, "process"), _OWN)
                told = [boot_id(), "" if until is None else str(until)]
                own_files = [str(file_of(directory / key, end)) for end in ("exit", "converter")]
            with fault_point("converter.start"):
                self.child = subprocess.Popen(
                    [sys.executable, "-ISc", _KEEPER, *own_files, *told, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=self.output.tails[0].file,
                    stderr=self.output.tails[1].file,
                    env=dict(given.environment),
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
        end_started(Started(keeper=self.process, converter=started_at(self.place).converter))
        self.child.poll()

    def has_ended(self) -> bool:
        """Whether keeper and converter have: a keeper that was killed leaves one at work."""
        return self.child.poll() is not None and not started_at(self.place).is_alive


LISTEN_EVERY = 0.05  # seconds


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
    """Returns how each has ended, by key, once all have ended, run out of time or been left.

    `on_line` gets the call's key and a printable line.
    """
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
        except StoppedError:  # the grace of a signal that came before this began
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
