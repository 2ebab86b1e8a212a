"""External programs, run with a bound in bytes and in time. A program that prints without end must
neither fill the memory of a run nor hold its lock."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from subprocess import TimeoutExpired
from typing import IO

from dnm.host.fault_points import waiting

__all__ = ["TimeoutExpired", "run_bounded"]

_AT_ONCE = 64 * 1024
_PAUSE = 0.05  # seconds between two checks whether the program has ended
_LAST_PAUSE = 0.005  # the same once its output is closed


def run_bounded(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    largest: int,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command in a session of its own, without input, and returns its output.

    The command has ended once its own process ends. Then its children are killed, even if they hold
    an output open. If it takes longer than `seconds` or prints more than `largest` bytes, it is
    killed with its children. Raises TimeoutExpired and OSError, EFBIG for too much output."""
    child = None
    with ExitStack() as ends:
        try:
            with waiting(float("inf")):  # an unrecorded program would not be ended
                child = ends.enter_context(subprocess.Popen(
                    command, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env=dict(environment), start_new_session=True,
                ))  # fmt: skip
            deadline = time.monotonic() + seconds
            assert child.stdout is not None and child.stderr is not None
            printed = _read_all(child, (child.stdout, child.stderr), deadline, largest)
            if printed is None:
                raise TimeoutExpired(command, seconds)
        finally:
            if child is not None:
                _kill_group(child.pid)
    return subprocess.CompletedProcess(command, child.returncode, *printed)


def _read_all(
    child: subprocess.Popen[bytes],
    streams: tuple[IO[bytes], IO[bytes]],
    deadline: float,
    largest: int,
) -> tuple[bytes, bytes] | None:
    """Returns the child's stdout and stderr after its end, or None after the deadline. Kills the
    child's own children when it ends, since they could hold the pipes open."""
    read: dict[int, list[bytes]] = {stream.fileno(): [] for stream in streams}
    total = 0
    with selectors.DefaultSelector() as selector:
        for descriptor in read:
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if has_ended := _has_ended(child.pid):
                _kill_group(child.pid)
            pause = _PAUSE if selector.get_map() else _LAST_PAUSE
            events = selector.select(0 if has_ended else min(left, pause))
            if has_ended and not events:
                break
            for event, _ in events:
                content = os.read(event.fd, _AT_ONCE)
                if not content:
                    selector.unregister(event.fd)
                read[event.fd].append(content)
                total += len(content)
                if total > largest:
                    raise OSError(errno.EFBIG, f"it printed more than {largest} bytes")
    out, err = (b"".join(parts) for parts in read.values())
    return out, err


def _has_ended(pid: int) -> bool:
    """Returns whether a child has ended. It is not reaped, so that its process id is not reused."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(pid: int) -> None:
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
