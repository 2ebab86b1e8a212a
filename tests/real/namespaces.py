"""Network, process and mount namespaces for a command, which leaves nothing however it ends.

The command is a child of `unshare`. When that dies, the kernel kills all processes in the
namespaces; `unshare` itself is killed with this process. The next start removes the directory that
a SIGKILL leaves."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from filelock import FileLock

from tests.real.programs import RigError

REPOSITORY = Path(__file__).parent.parent.parent
PREFIX = "dnm-real-"
INSIDE = "DNM_REAL_RUN"  # the variable that names the directory, set inside only
ETC = Path("/etc/dynamic-node")
RUN = Path("/run")  # of all rigs of this machine, with any cache
# Slurm resolves names only with an address other than 127.*.
OWN_ADDRESS = "192.0.2.1"


def run_directory() -> Path:
    """Returns the directory of this start. Raises RigError outside of the namespaces."""
    named = os.environ.get(INSIDE)
    if not named:
        raise RigError("this runs in namespaces of its own: python -m tests.real test")
    return Path(named)


def run_inside(arguments: list[str]) -> int:
    """Runs `python -m tests.real ARGUMENTS` in new namespaces. Returns its exit code."""
    if os.geteuid() != 0:
        raise RigError("network namespaces and a real Slurm need root")
    with made_directory() as directory:
        # The shell adopts and reaps orphans, as an init does.
        inside = ["bash", "-c", 'trap : INT; "$@"; exit $?', "bash", sys.executable]
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork",
             "--kill-child", "--mount-proc", *inside, "-m", "tests.real", *arguments],
            cwd=REPOSITORY, env={**os.environ, INSIDE: str(directory)},
        )  # fmt: skip
        (directory / "pid").write_text(str(process.pid))
        try:
            return wait(process)
        finally:
            process.kill()
            process.wait()


def wait(process: subprocess.Popen[bytes]) -> int:
    """Waits for the command in the namespaces, which handles a Ctrl-C by itself."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                return process.wait(30)
            return 130


@contextmanager
def made_directory() -> Iterator[Path]:
    """Removes leftovers. Yields a locked directory and removes it later, even after SIGTERM."""

    def on_term(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, on_term)
    starting = FileLock(RUN / "dnm-real.lock")  # else another start takes it for a leftover
    made_etc = RUN / "dnm-real.made-etc"
    with starting:
        if not ETC.exists():
            ETC.mkdir()
            made_etc.touch()
        remove_leftovers()
        directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        directory.chmod(0o755)
        lock = os.open(directory / ".lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield directory
    finally:
        with starting:
            shutil.rmtree(directory, ignore_errors=True)
            if made_etc.exists() and not any(is_alive for _, is_alive in runs()):
                made_etc.unlink()  # other runs mount theirs there until they end
                with suppress(OSError):
                    ETC.rmdir()


def remove_leftovers() -> None:
    for directory, is_alive in runs():
        if not is_alive:
            shutil.rmtree(directory, ignore_errors=True)


def runs() -> Iterator[tuple[Path, bool]]:
    """Yields the directory of each start, and whether a process still holds its lock."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = os.open(directory / ".lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield directory, False
        except BlockingIOError:
            yield directory, True
        finally:
            os.close(lock)


def prepare() -> None:
    """Sets up the namespaces: a loopback address other than 127.*, and an /etc/dynamic-node."""
    etc = run_directory() / "etc"
    etc.mkdir(exist_ok=True)
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{OWN_ADDRESS}/32", "dev", "lo"],
        ["mount", "--bind", str(etc), str(ETC)],
    ):
        answer = subprocess.run(command, capture_output=True, text=True)
        if answer.returncode:
            raise RigError(f"{' '.join(command)}: {answer.stderr.strip()}")


def enter_running(command: list[str]) -> NoReturn:
    """Replaces this process by a command in the namespaces of the running cluster."""
    for directory, is_alive in runs():
        if is_alive:
            parent = (directory / "pid").read_text()
            first = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0]
            os.environ[INSIDE] = str(directory)
            os.execvp("nsenter", ["nsenter", "-t", first, "-n", "-p", "-m", "--", *command])
    raise RigError("no rig is up: python -m tests.real up")
