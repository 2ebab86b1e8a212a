"""Fault points: names for all places where a run accesses something outside.

`with fault_point("registry.rename"): os.replace(...)` does nothing in production; `faults.py` makes
it fail in tests. At points where dnm waits for another program, a signal may end the wait, after a
time of grace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

from dnm.host import faults

Step: TypeAlias = AbstractContextManager[None]

_IDLE: Step = nullcontext()
_ASKING = ("kube.", "queues.", "converter.list", "converter.reserve")
_RECORDING = ("kube.read_state", "kube.write_state", "kube.read_lease", "kube.write_lease")
_PATIENCE = 5.0  # seconds for these after the grace
_waits: list[float] = []  # until when each current wait is not ended, outermost first


@contextmanager
def waiting(patience: float = 0.0) -> Iterator[None]:
    """Marks a wait. A signal may end it after the time of grace and `patience` seconds more."""
    _waits.append(time.monotonic() + patience)
    try:
        yield
    finally:
        _waits.pop()


def waits_too_long() -> bool:
    """Returns whether dnm waits for another program, and the wait may be ended now."""
    return float("inf") not in _waits and any(time.monotonic() >= until for until in _waits)


def fault_point(point: str) -> Step:
    """Returns the context for an access to something outside. It may raise OSError in a test."""
    patience = _PATIENCE if point in _RECORDING else 0.0
    step = waiting(patience) if point.startswith(_ASKING) else _IDLE
    return faults.passed(point, step) if faults.is_armed else step
