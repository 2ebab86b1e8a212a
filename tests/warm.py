"""An interpreter with all imports done, which forks `dnm` and `node-convert` quickly.

A forked process has its own id, files and locks, and real signals end it. It differs from `python
-m dnm.cli` in three ways: the imports are done, faults are set without environment variables, and
the time may be the sandbox's. Commands are JSON lines on stdin, answers go to stdout. With the word
`adopts`, the interpreter becomes the parent of orphans, so that it can wait for a converter that
outlived its run."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import dnm.cli
from dnm.cli import app as cli
from dnm.converters import cli as converters
from dnm.host import faults
from dnm.run import looking, runner
from tests import queue_writer

_LOADED_LATE = (
    "dnm.converters.convert_nodes", "dnm.converters.pool",
    "dnm.queues.yunikorn.rest", "dnm.queues.yunikorn.system", "dnm.run.actuator",
    "dnm.run.odd_registry",
    "kubernetes.client", "kubernetes.config.exec_provider",
    "encodings.idna", "encodings.utf_8_sig", "filelock", "logging.handlers", "rich.table",
)  # fmt: skip
_PR_SET_CHILD_SUBREAPER = 36
_SETTLE_SECONDS = 300.0

# Changes outside, as the interpreter itself reports them (sys.addaudithook).
_EFFECTS = frozenset((
    "os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.utime",
    "os.chmod", "os.chown", "os.truncate", "os.kill", "os.killpg", "os.system", "os.exec",
    "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "socket.bind",
    "fcntl.flock", "fcntl.lockf", "signal.pthread_kill", "shutil.rmtree", "shutil.move",
))  # fmt: skip
_reaped: dict[int, int] = {}  # those that `settle` found
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main() -> None:
    if "adopts" in sys.argv:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _load_the_rest()
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        answer = _COMMANDS[asked.pop("do")](**asked)
        print(json.dumps(answer), flush=True)


def _load_the_rest() -> None:
    """Imports all commands and what they import late, by a command that fails early."""
    verbs = [
        walk_package.name for walk_package in pkgutil.walk_packages(dnm.cli.__path__, "dnm.cli.")
    ]
    for name in (*_LOADED_LATE, *verbs):
        importlib.import_module(name)
    sys.argv = ["dnm", "status", "--config", "/nonexistent/dnm.ini"]
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere), suppress(SystemExit):
        cli.main()


def start(jobs: list[dict[str, Any]]) -> list[int]:
    """Forks a process for each job; all begin at the same instant. Returns their ids."""
    barrier, gate = os.pipe()
    pids = []
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            os.close(gate)
            os.read(barrier, 1)
            os.close(barrier)
            become(job)
        pids.append(pid)
    os.close(barrier)
    os.close(gate)
    return pids


def reap(pid: int) -> int:
    """Returns the exit code of an ended process, or the negative signal number."""
    if pid not in _reaped:
        _reaped[pid] = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(_reaped.pop(pid))


def settle() -> bool:
    """Waits until no descendant is left. Returns False if some still run after a long time."""
    until = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < until:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            time.sleep(0.002)
        else:
            _reaped[pid] = status
    return False


def descendants() -> list[int]:
    """Returns all processes below this one, parents before their children."""
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry))
    rows: list[int] = []
    todo = [os.getpid()]
    while todo:
        todo += (below := children.get(todo.pop(), []))
        rows += below
    return rows


def kill_all() -> bool:
    """Kills all descendants, as a power cut does."""
    while left := descendants():
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        settle()
    return settle()


_PROGRAMS: dict[str, Callable[[], None]] = {
    "dnm": cli.main, "node-convert": converters.main, "queue-writer": queue_writer.main,
}  # fmt: skip
_COMMANDS: dict[str, Any] = {
    "start": start, "reap": reap, "settle": settle, "descendants": descendants,
    "kill_all": kill_all,
}  # fmt: skip


def become(job: dict[str, Any]) -> None:
    """Runs the job's command in this forked process, and ends the process."""
    code = 1
    try:
        _set_up(job)
        sys.argv = [job["program"], *job["arguments"]]
        _PROGRAMS[job["program"]]()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(bool(error.code))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _set_up(job: dict[str, Any]) -> None:
    gc.disable()  # a process this short collects nothing, and would copy shared pages
    os.setpgid(0, 0)
    for number, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    if job["directory"]:
        os.chdir(job["directory"])
    os.environ.clear()
    os.environ.update(job["environment"])
    time.tzset()
    if job["now"]:
        now = datetime.fromisoformat(job["now"])
        for place, name in ((runner, "run_pass"), (looking, "plan_pass")):
            setattr(place, name, partial(getattr(place, name), clock=lambda: now))
    for name, value in job["constants"].items():
        place, _, constant = name.rpartition(".")
        module = importlib.import_module(place)
        is_time = isinstance(getattr(module, constant), timedelta)
        setattr(module, constant, timedelta(seconds=value) if is_time else value)
    if job["largest_file"]:
        limits = (job["largest_file"], resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    fault, log = os.environ.get("DNM_FAULT", ""), os.environ.get("DNM_FAULT_LOG", "")
    faults.arm(job["fault"] or fault, job["log"] or log)
    if job["strays"]:
        sys.dont_write_bytecode = True  # the first import of a module is no effect of a run
        _audit(job["strays"])


def _audit(path: str) -> None:
    """Records each effect that dnm has outside of any fault point, with its caller."""
    strays = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    strays = fcntl.fcntl(strays, fcntl.F_DUPFD_CLOEXEC, 100)

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if faults.inside:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        if (not writes and event not in _EFFECTS) or arguments[0] == job_log:
            return
        frame = sys._getframe(1)
        while frame.f_back and "/dnm/" not in frame.f_code.co_filename:
            frame = frame.f_back
        place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}"
        os.write(strays, f"{place} {event} {str(arguments)[:160]}\n".encode())

    job_log = faults._log
    sys.addaudithook(on_event)


if __name__ == "__main__":
    main()
