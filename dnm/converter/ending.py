"""Functions that end processes: TERM, then KILL some seconds later."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from dnm.converter.processes import Started, is_alive
from dnm.host.fault_points import fault_point, waiting

TERM_GRACE = 10.0  # seconds from TERM to KILL, and from KILL to giving up
_LOOK_EVERY = 0.05  # seconds


def end_by_signals(send: Callable[[signal.Signals], None], has_ended: Callable[[], bool]) -> bool:
    """Sends TERM, waits, sends KILL and waits. Returns whether all processes have ended. Sends KILL
    even if `has_ended` is true after TERM, because children can outlive their parent."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        send(sent)
        give_up = time.monotonic() + TERM_GRACE
        with waiting():
            while not has_ended() and time.monotonic() < give_up:
                time.sleep(_LOOK_EVERY)
    return has_ended()


def end_started(started: Started) -> bool:
    """Sends TERM to a converter, its parent (the keeper) and their children, and KILL some seconds
    later. Returns whether they have ended. If not, the next run finds them."""

    def send(sent: signal.Signals) -> None:
        if started.is_alive:
            with suppress(OSError), fault_point("converter.signal"):
                _signal(started, sent)

    return end_by_signals(send, lambda: not started.is_alive)


def _signal(started: Started, sent: signal.Signals) -> None:
    """Sends a signal to the process group of the converter and its parent, the keeper. If that has
    ended and the converter left the group, signals only the converter: the number may be reused."""
    keeper, converter = started.keeper, started.converter
    is_in_group = (
        keeper is not None
        and converter is not None
        and is_alive(converter)
        and os.getpgid(converter.pid) == keeper.pid
    )
    if keeper is not None and (is_alive(keeper) or is_in_group):
        os.killpg(keeper.pid, sent)
    if converter is not None and is_alive(converter) and not is_in_group:
        os.kill(converter.pid, sent)
