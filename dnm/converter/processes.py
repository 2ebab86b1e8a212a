"""Tells one process of this host from a later one that has got its number."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from dnm.model.registry import ConverterProcess


@lru_cache
def boot_id() -> str:
    """Returns what the kernel calls this boot; empty where it does not say. Process numbers and
    ticks begin anew at each boot, and a timer starts the same programs at about the same moment."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read(100).strip()
    return ""


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
    return ConverterProcess(pid=pid, start_ticks=int(fields[19]), boot=boot_id())


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
