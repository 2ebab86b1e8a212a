"""The record of demand: how many pods of each kind wait and run, a line a queue and change. Pure.

It is a history of its own, `demand.jsonl`, so that what happens every minute leaves room to what
happened to nodes. It names no pod. Whether something has changed is told by the last lines of the
file itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dnm.model.history import HistoryLine, PodKind
from dnm.record.transitions import Cause

DEMAND = "demand"  # the kind of line, and the name of the file
LOOK_BACK = 256 * 1024  # bytes at the end of the file; a queue that is not in them is told again


def list_demand(
    kinds: Mapping[str, tuple[PodKind, ...]], last: Iterable[HistoryLine], cause: Cause
) -> list[HistoryLine]:
    """Returns a line for each queue whose pods are not those of its last line."""
    known = {line.object: line.numbers for line in last}
    lines = []
    for queue, some in sorted(kinds.items()):
        numbers = {"kinds": msgspec.to_builtins(some)}
        # A queue that is never used has no line at all.
        if msgspec.to_builtins(known.get(queue, {"kinds": []})) != _as_read(numbers):
            lines.append(cause.line(DEMAND, "seen", queue, queue=queue, numbers=numbers))
    return lines


def _as_read(numbers: Mapping[str, object]) -> object:
    return msgspec.json.decode(msgspec.json.encode(numbers))
