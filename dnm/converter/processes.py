"""Tells one process of this host from a later one that has got its number, and ends processes:
TERM, and KILL some seconds later.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from dnm.host.fault_points import waiting
from dnm.host.place import boot_id, host_name
from dnm.model.registry import ConverterProcess


def this_host() -> ConverterProcess:
    """Returns what stands for a converter that is about to be started here: no process yet."""
    return ConverterProcess(pid=0, start_ticks=0, boot=boot_id(), host=host_name())


def is_known(process: ConverterProcess | None) -> bool:
    """Returns whether it says which process it is, or that it is another host's affair."""
    return process is not None and (process.pid != 0 or is_elsewhere(process))


def is_elsewhere(process: ConverterProcess) -> bool:
    """Returns whether another host started it, so that nobody here can see what became of it."""
    return process.host not in ("", host_name()) and not is_alive(process)


def process_of(pid: int) -> ConverterProcess | None:
    """Returns the process with its start time in clock ticks since boot (proc(5), field 22), which
    tells it from a later one of the same number. None: it has ended, also where nobody has yet
    waited for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] == "Z":
        return None
    return ConverterProcess(pid=pid, start_ticks=int(fields[19]), boot=boot_id(), host=host_name())


def is_alive(process: ConverterProcess | None) -> bool:
    """Returns whether the process has not ended. One that was written down without its boot is of
    this one."""
    if process is None or process.boot not in ("", boot_id()):
        return False
    found = process_of(process.pid)
    return found is not None and found.start_ticks == process.start_ticks


def still_running(processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
    """Returns those of `processes` that have not ended."""
    return frozenset(filter(is_alive, processes))


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
