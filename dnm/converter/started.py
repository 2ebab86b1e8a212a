"""What was started under a key: the keeper and the converter itself, by what they have written.

The converter is known by more than its keeper: where that was killed it goes on by itself, still
holds its nodes, and is ended after its time.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec

from dnm.converter.output import file_of, read_or_empty
from dnm.converter.processes import end_by_signals, is_alive
from dnm.host.fault_points import fault_point
from dnm.model.registry import ConverterProcess
from dnm.model.value import Value


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
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(read_or_empty(file_of(place, end)), type=ConverterProcess)
    return None


def end_started(started: Started) -> bool:
    """TERM for both and their children, KILL some seconds later; returns whether they have ended.
    One that can't be ended is left: the next run sees that it is still at work."""

    def send(sent: signal.Signals) -> None:
        if started.is_alive:
            with suppress(OSError), fault_point("converter.signal"):
                _signal(started, sent)

    return end_by_signals(send, lambda: not started.is_alive)


def _signal(started: Started, sent: signal.Signals) -> None:
    """The group is the keeper's, also after its death: whoever is in it says whether it is still
    the one that was started."""
    keeper, converter = started.keeper, started.converter
    is_in_group = (
        keeper is not None
        and converter is not None
        and is_alive(converter)
        and os.getpgid(converter.pid) == keeper.pid
    )
    if keeper is not None and (is_alive(keeper) or is_in_group):
        os.killpg(keeper.pid, sent)
    if converter is not None and is_alive(converter) and not is_in_group:
        os.kill(converter.pid, sent)
