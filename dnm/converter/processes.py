"""Tells one process of this host from a later one that has got its number."""

from __future__ import annotations

from collections.abc import Iterable

from dnm.model.registry import ConverterProcess


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
    return ConverterProcess(pid=pid, start_ticks=int(fields[19]))


def still_running(processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
    """Returns those of `processes` that have not ended."""
    return frozenset(process for process in processes if process_of(process.pid) == process)
