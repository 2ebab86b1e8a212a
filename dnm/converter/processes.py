"""Identities of processes: number, start time and boot, so that a reused number is recognized.

Each call records its converter and its keeper, the process that starts the converter and waits for
it. If the keeper is killed, the converter continues; a later run finds it and ends it in time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from dnm.converter.output import file_of, read_or_empty
from dnm.host.place import boot_id, host_name
from dnm.model.lent_state import ConverterProcess
from dnm.model.value import Value


def this_host() -> ConverterProcess:
    """Returns a placeholder for the process of a converter that this host is about to start."""
    return ConverterProcess(pid=0, start_ticks=0, boot=boot_id(), host=host_name())


def is_identified(process: ConverterProcess | None) -> bool:
    """Returns whether a converter's process is recorded: its pid, or another host as its host."""
    return process is not None and (process.pid != 0 or is_elsewhere(process))


def is_elsewhere(process: ConverterProcess) -> bool:
    """Returns whether another host started the process, so that this host can't observe it."""
    return process.host not in ("", host_name()) and not is_alive(process)


def process_of(pid: int) -> ConverterProcess | None:
    """Returns the process with its start time in clock ticks since boot (proc(5), field 22). The
    time distinguishes it from a later process with the same number. Returns None if the process has
    ended or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] == "Z":
        return None
    return ConverterProcess(pid=pid, start_ticks=int(fields[19]), boot=boot_id(), host=host_name())


def is_alive(process: ConverterProcess | None) -> bool:
    """Returns whether the process still runs. A process recorded without a boot id belongs to the
    current boot."""
    if process is None or process.boot not in ("", boot_id()):
        return False
    current = process_of(process.pid)
    return current is not None and current.start_ticks == process.start_ticks


class Started(Value):
    """The processes of a call: the converter and its parent, the keeper. None if not recorded."""

    keeper: ConverterProcess | None = None
    converter: ConverterProcess | None = None

    @property
    def is_alive(self) -> bool:
        return is_alive(self.keeper) or is_alive(self.converter)


def started_at(place: Path) -> Started:
    """Returns the recorded processes of the call with this directory and key."""
    return Started(keeper=_read(place, "process"), converter=_read(place, "converter"))


def _read(place: Path, end: str) -> ConverterProcess | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(read_or_empty(file_of(place, end)), type=ConverterProcess)
    return None
