"""Failures at fault points, for the tests. A test sets DNM_FAULT to `POINT:WHEN:WHAT[:NTH]`. WHEN
is before or after. WHAT is kill, hang, stop (SIGSTOP), fail (as a broken disk or link) or full (as
a full disk). NTH counts the passes of that point from 1. The point `#K` is the K-th pass of any
point. DNM_FAULT_LOG names a file to which each passed point is appended. dnm reads the variables
once, at import. Within one process `inject_faults` makes every fault point call a function, which
may raise."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

inside: list[str] = []  # the current fault points, outermost first; empty if unarmed

is_armed = False
_ERRORS = {"fail": errno.EIO, "full": errno.ENOSPC, "hang": errno.ETIMEDOUT}
_fault = ""
_log = ""
_seen: Counter[str] = Counter()
_injectors: list[Callable[[str, str], None]] = []


def arm(fault: str, log: str) -> None:
    """Sets the faults of this process. A test has forked it from one that had imported dnm."""
    global _fault, _log
    _fault, _log = fault, log
    _seen.clear()
    _set()


@contextmanager
def inject_faults(inject: Callable[[str, str], None]) -> Iterator[None]:
    """Makes every point call `inject(point, "before")` and `(point, "after")` within its
    context."""
    _injectors.append(inject)
    _set()
    try:
        yield
    finally:
        _injectors.remove(inject)
        _set()


def _set() -> None:
    global is_armed
    is_armed = bool(_fault or _log or _injectors)


@contextmanager
def passed(point: str, step: AbstractContextManager[None]) -> Iterator[None]:
    """Executes `step`, with the faults that a test has set before and after it."""
    _seen.update((point, "#"))
    names = (f"{point}:{_seen[point]}", f"#{_seen['#']}:1")
    if _log:
        descriptor = os.open(_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{point}\n".encode())
        os.close(descriptor)
    inside.append(point)
    try:
        with step:
            _inject(names, "before")
            yield
            _inject(names, "after")
    finally:
        inside.pop()


def _inject(names: tuple[str, str], when: str) -> None:
    for inject in _injectors:
        inject(inside[-1], when)
    if not _fault:
        return
    point, wanted_when, effect, *nth = _fault.split(":")
    if wanted_when != when or f"{point}:{(nth or ['1'])[0]}" not in names:
        return
    if effect == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if effect == "stop":  # asleep until it gets SIGCONT
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    if effect == "hang":
        time.sleep(3600)
    raise OSError(_ERRORS[effect], os.strerror(_ERRORS[effect]))


arm(os.environ.get("DNM_FAULT", ""), os.environ.get("DNM_FAULT_LOG", ""))
