"""How a command ends before its end: by a signal, or since its reader has left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from dnm.host.fault_points import waits_too_long
from dnm.model.errors import StoppedError

if TYPE_CHECKING:
    from datetime import timedelta


_LOOK_EVERY = 0.1  # seconds, from the end of a signal's grace on


class StopSignals:
    """The first TERM or INT lets the step under way end within this grace; a second INT leaves.
    When it is over, waits for others end where they are, and so does whatever waits later."""

    def __init__(self, grace: timedelta) -> None:
        self.came = self._is_at_once = False
        self._grace = grace.total_seconds()
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)
        signal.signal(signal.SIGALRM, self._end_wait)

    def _note(self, number: int, frame: object) -> None:
        if self.came and number == signal.SIGINT:
            raise KeyboardInterrupt
        is_first, self.came = not self.came, True
        if is_first:
            signal.setitimer(signal.ITIMER_REAL, max(self._grace, _LOOK_EVERY), _LOOK_EVERY)
        if self._is_at_once:
            self._leave()
        elif is_first and sys.stderr.isatty():
            print("finishing the step under way; Ctrl-C again leaves it", file=sys.stderr)

    def _end_wait(self, number: int, frame: object) -> None:
        if waits_too_long():
            raise StoppedError(f"a signal: {self._grace:g} s of grace were over")

    def close(self) -> None:
        """Ends no wait any more."""
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # the interpreter's end would give it back
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While a run only looks and plans, nothing is half done: it ends where it is, however long
        that would take. Raises StoppedError."""
        self._is_at_once = True
        try:
            if self.came:
                self._leave()
            yield
        finally:
            self._is_at_once = False

    def _leave(self) -> NoReturn:
        self._is_at_once = False  # what cleans up on the way out is not interrupted
        raise StoppedError("ended by a signal before anything was done: the next run looks anew")


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """What is printed inside may be cut off by its reader, e.g. `head`: the exit code is steady."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
