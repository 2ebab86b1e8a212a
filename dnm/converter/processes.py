"""Tells one process of this host from a later one that has got its number.

What was started under a key is the keeper and the converter itself, by what they have written. The
converter is known by more than its keeper: where that was killed it goes on by itself, still holds
its nodes, and is ended after its time.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from dnm.converter.output import file_of, read_or_empty
from dnm.host.place import boot_id, host_name
from dnm.model.lent import ConverterProcess
from dnm.model.value import Value


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


class Started(Value):
    """A call's processes; None: it has not been written down."""

    keeper: ConverterProcess | None = None
    converter: ConverterProcess | None = None

    @property
    def is_alive(self) -> bool:
        return is_alive(self.keeper) or is_alive(self.converter)


def started_at(place: Path) -> Started:
    """Returns what was started under a key; `place` is the directory and the key."""
    return Started(keeper=_read(place, "process"), converter=_read(place, "converter"))


def _read(place: Path, end: str) -> ConverterProcess | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(read_or_empty(file_of(place, end)), type=ConverterProcess)
    return None
