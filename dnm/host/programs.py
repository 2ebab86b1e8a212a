"""Programs of others, run with a bound in bytes and in time.

One that never stops printing must neither fill the memory of a run nor hold it, and its lock.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from subprocess import TimeoutExpired
from typing import IO

from dnm.host.fault_points import waiting

__all__ = ["TimeoutExpired", "run_bounded"]

_AT_ONCE = 64 * 1024


def run_bounded(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    largest: int,
    given: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command in a session of its own, with this input, and returns what it printed.

    One that takes longer than `seconds` or prints more than `largest` bytes is killed with its
    children. Raises TimeoutExpired and OSError, EFBIG for what is too much.
    """
    child = None
    with _as_input(given) as stdin, ExitStack() as ends:
        try:
            with waiting(float("inf")):  # one that nobody knows of would not be ended
                child = ends.enter_context(subprocess.Popen(
                    command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env=dict(environment), start_new_session=True,
                ))  # fmt: skip
            deadline = time.monotonic() + seconds
            assert child.stdout is not None and child.stderr is not None
            printed = _read_all((child.stdout, child.stderr), deadline, largest)
            if printed is None:
                raise TimeoutExpired(command, seconds)
            child.wait(max(deadline - time.monotonic(), 0))
        except BaseException:
            if child is not None:
                with suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, child.returncode, *printed)


@contextmanager
def _as_input(content: bytes) -> Iterator[int | IO[bytes]]:
    """A file without a name: who reads it slowly holds nobody up."""
    if not content:
        yield subprocess.DEVNULL
        return
    with open(os.memfd_create("input"), "r+b") as file:
        file.write(content)
        file.seek(0)
        yield file


def _read_all(
    streams: tuple[IO[bytes], IO[bytes]], deadline: float, largest: int
) -> tuple[bytes, bytes] | None:
    """Until all are closed; None: the time was up."""
    read: dict[int, list[bytes]] = {stream.fileno(): [] for stream in streams}
    total = 0
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            for event, _ in selector.select(left):
                content = os.read(event.fd, _AT_ONCE)
                if not content:
                    selector.unregister(event.fileobj)
                read[event.fd].append(content)
                total += len(content)
                if total > largest:
                    raise OSError(errno.EFBIG, f"it printed more than {largest} bytes")
    out, err = (b"".join(parts) for parts in read.values())
    return out, err
