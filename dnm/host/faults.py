"""Makes fault points fail, for the proof harness: it sets DNM_FAULT to `POINT:WHEN:WHAT[:NTH]`.
WHEN is before or after; WHAT is kill, hang, stop (as SIGSTOP does), fail (as a broken disk or link
does) or full (as a full disk does); NTH counts the passes of that point from 1. The point `#K` is
the K-th of all that are passed. DNM_FAULT_LOG names a file that collects the points as they are
passed, a line each. Both are read once, at import. Within one process `struck_by` lets every fault
point call a function, which may raise.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

inside: list[str] = []  # the fault points that are being passed, outermost first; empty if unarmed

is_armed = False
_ERRORS = {"fail": errno.EIO, "full": errno.ENOSPC, "hang": errno.ETIMEDOUT}
_fault = ""
_log = ""
_seen: Counter[str] = Counter()
_strikers: list[Callable[[str, str], None]] = []


def arm(fault: str, log: str) -> None:
    """Sets the faults of the environment in a process that was forked from another."""
    global _fault, _log
    _fault, _log = fault, log
    _seen.clear()
    _set()


@contextmanager
def struck_by(strike: Callable[[str, str], None]) -> Iterator[None]:
    """Makes every point call `strike(point, "before")` and `(point, "after")` while it is open."""
    _strikers.append(strike)
    _set()
    try:
        yield
    finally:
        _strikers.remove(strike)
        _set()


def _set() -> None:
    global is_armed
    is_armed = bool(_fault or _log or _strikers)


@contextmanager
def passed(point: str, step: AbstractContextManager[None]) -> Iterator[None]:
    """Passes a point, with what it is made to do before and after its step."""
    _seen.update((point, "#"))
    names = (f"{point}:{_seen[point]}", f"#{_seen['#']}:1")
    if _log:
        descriptor = os.open(_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{point}\n".encode())
        os.close(descriptor)
    inside.append(point)
    try:
        with step:
            _strike(names, "before")
            yield
            _strike(names, "after")
    finally:
        inside.pop()


def _strike(names: tuple[str, str], when: str) -> None:
    for strike in _strikers:
        strike(inside[-1], when)
    if not _fault:
        return
    point, wanted_when, what, *nth = _fault.split(":")
    if wanted_when != when or f"{point}:{(nth or ['1'])[0]}" not in names:
        return
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":  # asleep until it gets SIGCONT
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    if what == "hang":
        time.sleep(3600)
    raise OSError(_ERRORS[what], os.strerror(_ERRORS[what]))


arm(os.environ.get("DNM_FAULT", ""), os.environ.get("DNM_FAULT_LOG", ""))
