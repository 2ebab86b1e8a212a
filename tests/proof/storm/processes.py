"""The processes of `dnm` below this one, identified by their command lines, and their ends.

This process adopts orphans of its children (prctl(2), PR_SET_CHILD_SUBREAPER). So it still finds a
converter after its run was killed, and a simulated reboot leaves no process."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """A process; `role` is `dnm`, `converter`, `keeper` (its parent), or `hook` for any other."""

    pid: int
    parent: int
    words: tuple[str, ...]

    @property
    def role(self) -> str:
        if any(word == "-ISc" for word in self.words):
            return "keeper"
        if "--set" in self.words or "--list" in self.words:
            return "converter"
        if any(word.endswith("/dnm") for word in self.words):
            return "dnm"
        return "hook"


def adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[Process]:
    """Returns all processes below this one, parents before their children."""
    results = {process.pid: process for process in map(_read, _numbers()) if process}
    below, todo = [], [os.getpid()]
    while todo:
        parent = todo.pop()
        children = [process for process in results.values() if process.parent == parent]
        below += children
        todo += [child.pid for child in children]
    return below


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        if fields[0] in "ZX":
            return None
        with open(f"/proc/{pid}/cmdline", errors="replace") as file:
            words = tuple(file.read().split("\0")[:-1])
    except OSError:
        return None
    return Process(pid, int(fields[1]), words)


def kill(processes: Iterable[Process], number: int = signal.SIGKILL) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def kill_group(process: Process) -> None:
    """Kills a converter, its parent (the keeper) and all their children, as `systemctl kill`."""
    with suppress(ProcessLookupError):
        os.killpg(os.getpgid(process.pid), signal.SIGKILL)


def reboot() -> None:
    """Kills all descendants. It stops all of them first, so that none reacts to another's end."""
    while left := descendants():
        kill(left, signal.SIGSTOP)
        kill(left)
        reap_orphans(set())
        time.sleep(0.005)


def reap_orphans(own: set[int]) -> None:
    """Reaps ended processes that this one has adopted, but not the started ones, `own`."""
    for pid in _numbers():
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == os.getpid() and pid not in own:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
