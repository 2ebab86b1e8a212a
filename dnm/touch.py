"""Fault points: every place where a run touches the outside has a name.

`with touch("registry.rename"): os.replace(...)` does nothing in production. The proof harness sets
DNM_FAULT to `POINT:WHEN:WHAT[:NTH]` (WHEN before|after, WHAT kill|fail|hang, NTH counts from 1), or
DNM_FAULT_LOG to a file that collects the names as they are passed. Read once, at import.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

_FAULT = os.environ.get("DNM_FAULT", "")
_LOG = os.environ.get("DNM_FAULT_LOG", "")
_ARMED = bool(_FAULT or _LOG)
_IDLE: AbstractContextManager[None] = nullcontext()
_seen: dict[str, int] = {}


def touch(point: str) -> AbstractContextManager[None]:
    """A named step at the edge; `fail` raises OSError(EIO) as a broken disk or link would."""
    return _armed(point) if _ARMED else _IDLE


@contextmanager
def _armed(point: str) -> Iterator[None]:
    _seen[point] = _seen.get(point, 0) + 1
    if _LOG:
        descriptor = os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{point}\n".encode())
        os.close(descriptor)
    _strike(point, "before")
    yield
    _strike(point, "after")


def _strike(point: str, when: str) -> None:
    if not _FAULT:
        return
    wanted_point, wanted_when, what, *nth = _FAULT.split(":")
    if (wanted_point, wanted_when) != (point, when) or _seen[point] != int((nth or ["1"])[0]):
        return
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang":
        time.sleep(3600)
    raise OSError(5, f"injected fault at {point}")
