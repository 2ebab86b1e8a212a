"""A pytest plug-in: pytest runs below a process that ends all processes which the tests leave.

    the command    waits, and forwards its signals
      the reaper   adopts orphans; a session of its own, so that no signal to the command's
                   group reaches it
        pytest     dies with the reaper; its temporary files are in a folder that the reaper
                   removes, and files that must not wait for a disk are in memory

If tests fail, the folders stay for inspection, until the next start."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import pytest

_DEATH_SIGNAL, _SUBREAPER = 1, 36  # of prctl(2)
_SENT_BY_A_PROCESS = 0  # SI_USER of sigaction(2); a terminal's signal reaches the whole group
_FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_COMMAND_DIED = signal.SIGUSR1
_AWAITED = {signal.SIGCHLD, _COMMAND_DIED, *_FORWARDED}
_TESTS_FAILED = 1
_MEMORY, _VARIABLE = Path("/dev/shm"), "DNM_TESTS_MEMORY"
PATIENCE = 20.0  # seconds that processes may take to end after a signal


def pytest_configure() -> None:
    """Stops ignoring signals that `nohup` or a shell's `&` ignores, also for tests' processes."""
    for number in _FORWARDED:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Starts the reaper, unless pytest runs within another program."""
    is_command = "pytest" in Path(sys.argv[0]).parts[-2:]
    if is_command and not hasattr(config, "workerinput"):
        directory = _make_directory(Path(tempfile.gettempdir()))
        config.option.basetemp = config.option.basetemp or f"{directory}/t"
        _continue_below_reaper(directory, _make_directory(in_memory()))


def in_memory() -> Path:
    """Returns a folder for files that are synced at each step: in memory if possible."""
    place = Path(os.environ.get(_VARIABLE, _MEMORY))
    return place if os.access(place, os.W_OK) else Path(tempfile.gettempdir())


def _make_directory(place: Path) -> str:
    """Makes a folder named by the id of this process; removes those of dead processes."""
    for old in place.glob("dnm-tests-*"):
        if not Path("/proc", old.name.rpartition("-")[2]).exists():
            shutil.rmtree(old, ignore_errors=True)
    directory = place / f"dnm-tests-{os.getpid()}"
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)  # users of a Slurm have files below
    return str(directory)


def _continue_below_reaper(directory: str, memory: str) -> None:
    """Forks, and returns only in the child, which plays the tests. The caller ends with the child's
    exit code, after all processes that the child has started."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if reaper := os.fork():
        _wait_for(reaper)
    _control(_SUBREAPER, 1)
    _control(_DEATH_SIGNAL, _COMMAND_DIED)
    if tests := os.fork():
        os.setsid()
        # With this name no pkill for pytest finds it.
        os.execv(sys.executable, [sys.executable, "-SE", __file__, str(tests), directory, memory])
    _control(_DEATH_SIGNAL, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    os.environ[_VARIABLE] = memory


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _wait_for(reaper: int) -> NoReturn:
    while True:
        reported = signal.sigwaitinfo(_AWAITED)
        if reported.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(reaper, os.WNOHANG)
            if pid:
                os._exit(_code_of(status))
        elif reported.si_code == _SENT_BY_A_PROCESS:
            os.kill(reaper, reported.si_signo)


def _code_of(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _reap(tests: int, *directories: str) -> int:
    """Waits for pytest, ends and reports remaining processes; returns the final exit code."""
    status = None
    while status is None:
        reported = signal.sigwaitinfo(_AWAITED)
        if reported.si_signo == signal.SIGCHLD:
            status = dict(_ended()).get(tests)
        else:
            is_over = reported.si_signo == _COMMAND_DIED
            os.kill(tests, signal.SIGKILL if is_over else reported.si_signo)
    code = _code_of(status)
    left = _end_all(PATIENCE if code in (0, _TESTS_FAILED) else 0)
    for directory in directories if code != _TESTS_FAILED else ():
        shutil.rmtree(directory, ignore_errors=True)
    for name in left:
        print(f"the tests did not end, and left: {name}", file=sys.stderr)
    return code or bool(left)


def _ended() -> Iterator[tuple[int, int]]:
    """Yields process id and exit status of each child that has ended."""
    with suppress(ChildProcessError):
        while (result := os.waitpid(-1, os.WNOHANG))[0]:
            yield result


def _end_all(patience: float) -> list[str]:
    """Waits, then kills all remaining processes. Returns the command lines of the killed ones."""
    until, named = time.monotonic() + patience, dict[int, str]()
    while below := list(_below(os.getpid())):
        if time.monotonic() >= until:
            for pid in below:
                named.setdefault(pid, _name_of(pid))
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        dict(_ended())
    return [name for name in named.values() if name]


def _below(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from _below(int(child))


def _name_of(pid: int) -> str:
    """Returns the command line of a process; empty for a zombie."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return " ".join(words).strip()
    return ""


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    sys.exit(_reap(int(sys.argv[1]), *sys.argv[2:]))
