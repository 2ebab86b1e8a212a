"""Ends processes: TERM, and KILL some seconds later."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from dnm.model.fault_points import waiting

TERM_GRACE = 10.0  # seconds from TERM to KILL, and from KILL to giving up
_LOOK_EVERY = 0.05  # seconds


def end_by_signals(send: Callable[[signal.Signals], None], has_ended: Callable[[], bool]) -> bool:
    """Sends both in turn, each with its time to take effect, and returns whether all has ended.
    `send` is called for KILL too where TERM has ended all that `has_ended` knows of: children that
    have outlived their parent get it."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        send(sent)
        give_up = time.monotonic() + TERM_GRACE
        with waiting():
            while not has_ended() and time.monotonic() < give_up:
                time.sleep(_LOOK_EVERY)
    return has_ended()
