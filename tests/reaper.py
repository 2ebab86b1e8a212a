"""Nothing outlives the tests: pytest plays below a process that ends whatever they leave.

    the command    waits, and passes on what it is sent
      the reaper   adopts whoever loses his parent; a session of its own, so that no blow at the
                   command's group hits it
        pytest     dies with the reaper; its temporary files are in a folder that the reaper
                   removes, what shall not wait for a disk in one in memory

Where tests failed the folders stay for whoever looks, until the next start.
"""

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
_SENT_BY_A_PROCESS = 0  # SI_USER of sigaction(2); what a terminal sends comes to the whole group
_PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_COMMAND_DIED = signal.SIGUSR1
_LOOKED_AT = {signal.SIGCHLD, _COMMAND_DIED, *_PASSED_ON}
_TESTS_FAILED = 1
_MEMORY, _OURS = Path("/dev/shm"), "DNM_TESTS_MEMORY"
PATIENCE = 20.0  # seconds that what has been told to end may take for it


def pytest_configure() -> None:
    """Processes of the tests do not inherit that `nohup` and a shell's `&` ignore signals."""
    for number in _PASSED_ON:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Where pytest is the command, and no process of another's."""
    is_command = "pytest" in Path(sys.argv[0]).parts[-2:]
    if is_command and not hasattr(config, "workerinput"):
        directory = _make_directory(Path(tempfile.gettempdir()))
        config.option.basetemp = config.option.basetemp or f"{directory}/t"
        _go_on_below_a_reaper(directory, _make_directory(in_memory()))


def in_memory() -> Path:
    """Where a test may write what is forced to disk at each step: in memory where that can be."""
    place = Path(os.environ.get(_OURS, _MEMORY))
    return place if os.access(place, os.W_OK) else Path(tempfile.gettempdir())


def _make_directory(place: Path) -> str:
    """One by the number of this process; those of the dead are removed."""
    for old in place.glob("dnm-tests-*"):
        if not Path("/proc", old.name.rpartition("-")[2]).exists():
            shutil.rmtree(old, ignore_errors=True)
    directory = place / f"dnm-tests-{os.getpid()}"
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)  # users of a Slurm have files below
    return str(directory)


def _go_on_below_a_reaper(directory: str, memory: str) -> None:
    """Returns in a child of the calling process, which ends as the child does and not before
    everything that the child has started."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LOOKED_AT)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if reaper := os.fork():
        _wait_for(reaper)
    _control(_SUBREAPER, 1)
    _control(_DEATH_SIGNAL, _COMMAND_DIED)
    if tests := os.fork():
        os.setsid()
        # By this name no pkill finds it that means pytest.
        os.execv(sys.executable, [sys.executable, "-SE", __file__, str(tests), directory, memory])
    _control(_DEATH_SIGNAL, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    os.environ[_OURS] = memory


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _wait_for(reaper: int) -> NoReturn:
    while True:
        reported = signal.sigwaitinfo(_LOOKED_AT)
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
    """Waits for pytest, ends and names what is left then; returns the exit code of it all."""
    status = None
    while status is None:
        reported = signal.sigwaitinfo(_LOOKED_AT)
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
    """Number and status of each child that has ended."""
    with suppress(ChildProcessError):
        while (result := os.waitpid(-1, os.WNOHANG))[0]:
            yield result


def _end_all(patience: float) -> list[str]:
    """Kills whatever has not ended by itself by then, and returns the command lines of that."""
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
    """Its command line; a zombie has none."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return " ".join(words).strip()
    return ""


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, _LOOKED_AT)
    sys.exit(_reap(int(sys.argv[1]), *sys.argv[2:]))
