"""`dnm` as processes, forked quickly by an interpreter that has all imports done (warm.py)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 300.0  # seconds of real time after which a process counts as hung


class Ended(NamedTuple):
    """A process that has ended; `code` is the negative signal number if a signal ended it."""

    code: int
    out: str
    err: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Child:
    """A running `dnm` process."""

    def __init__(self, warm: Warm, pid: int, files: tuple[Path, Path]) -> None:
        self.warm, self.pid, self.files = warm, pid, files
        self.descriptor = os.pidfd_open(pid)

    def is_running(self) -> bool:
        return not self._has_ended(0)

    def _has_ended(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def send(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self.descriptor, number)

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Waits for the process and returns how it ended. If it hangs, kills it and fails."""
        is_late = not self._has_ended(seconds)
        if is_late:
            self.send(signal.SIGKILL)
        code = self.warm.ask("reap", pid=self.pid)
        os.close(self.descriptor)
        texts = [
            path.read_text(errors="replace") if path.exists() else ""  # at a terminal: no file
            for path in self.files
        ]
        for path in self.files:
            path.unlink(missing_ok=True)
        assert not is_late, f"dnm did not end within {seconds} s: {texts}"
        return Ended(code, *texts)


def state_of(pid: int) -> str:
    """Returns the letter of a process's state as in proc(5); X if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def wait_until(is_so: Callable[[], Any]) -> None:
    """Waits until `is_so`, with a time limit that suits a busy machine."""
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def stops(pid: int) -> bool:
    """Waits until a process has suspended itself. Returns False if it ended instead."""
    wait_until(lambda: state_of(pid) in "TZX")
    return state_of(pid) == "T"


class Warm:
    """The process that forks `dnm` processes. Each test worker has one for commands, and each world
    in tests/proof has one with `adopts`."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", *words], cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, do: str, **arguments: Any) -> Any:
        with self._lock:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, f"the forking process ended: {self._process.poll()}"
        return json.loads(answer)

    def start(self, *jobs: Mapping[str, Any]) -> list[Child]:
        """Starts a process for each job, all at the same instant."""
        full, files = [], []
        for job in jobs:
            self._number += 1
            out, err = (self.directory / f"{self._number}.{end}" for end in ("out", "err"))
            files.append((out, err))
            full.append({
                "fault": "", "log": "", "now": "", "strays": "", "largest_file": 0,
                "constants": {}, "program": "dnm", "environment": dict(os.environ), "directory": "",
                "out": str(out), "err": str(err), **job,
            })  # fmt: skip
        pids = self.ask("start", jobs=full)
        return [Child(self, pid, pair) for pid, pair in zip(pids, files, strict=True)]

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        if self._process.poll() is None:
            self.ask("kill_all")
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@lru_cache
def warm_processes() -> Warm:
    """Returns the forking process that this test worker uses, which ends with it."""
    return Warm(Path(tempfile.mkdtemp(prefix="dnm-warm-")))


def node_convert(arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Starts node-convert from an interpreter with all imports done (warm.py)."""
    job = {"program": "node-convert", "arguments": arguments, "directory": os.getcwd()}
    (child,) = warm_processes().start({**job, "environment": dict(environment)})
    return child
