"""The record of demand: how many pods of each kind wait and run in a queue, as a line of JSON for
each change.

It has its own file, `demand.jsonl`. Demand may change every minute, and in the history its lines
would displace those of nodes. It names no pod. dnm compares demand with the last lines of the
file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dnm.model.config import Config
from dnm.model.history import NODES, HistoryLine, NodeRoom, PodKind
from dnm.model.plan import Plan
from dnm.record.history_file import History, read_tail
from dnm.record.transitions import Cause

DEMAND = "demand"  # the kind of line, and the name of the file
LOOK_BACK = 256 * 1024  # bytes at the end of the file; a queue that is not in them gets a new line


def demand_history(config: Config) -> History:
    """Returns the record of demand, a file in the registry's directory."""
    return History(config.converted_nodes_path, config.demand_keep, name=DEMAND)


def write_demand(history: History, plan: Plan, cause: Cause) -> None:
    """Appends the demand of each queue, and the free capacity of nodes that are never lent, if they
    have changed. Raises OSError."""
    last = read_tail(history, LOOK_BACK)
    history.append(list_demand(plan.kinds, last, cause, plan.node_capacities), cause.now)


def list_demand(
    kinds: Mapping[str, tuple[PodKind, ...]],
    last: Iterable[HistoryLine],
    cause: Cause,
    free_capacity: tuple[NodeRoom, ...] = (),
) -> list[HistoryLine]:
    """Returns a line for each queue with new pods, or with other counts of pods than in its last
    line. A line about the free capacity of permanent nodes comes first, if that has changed too."""
    previous = {line.object: line.numbers for line in last}
    lines = []
    for queue, some in sorted(kinds.items()):
        numbers = {"kinds": msgspec.to_builtins(some)}
        # A queue that is never used has no line at all.
        is_new = any(kind.came for kind in some)
        if is_new or _counts(previous.get(queue, {"kinds": []})) != _counts(_as_read(numbers)):
            lines.append(cause.line(DEMAND, "seen", queue, queue=queue, numbers=numbers))
    of_nodes = {"nodes": msgspec.to_builtins(free_capacity)}
    if lines and free_capacity and _as_read(previous.get(NODES, {})) != _as_read(of_nodes):
        lines.insert(0, cause.line(DEMAND, "seen", NODES, numbers=of_nodes))
    return lines


def _counts(numbers: Any) -> list[dict[str, Any]]:
    """Returns how many pods of each kind a line counts, without the fields about new pods."""
    kinds, left_out = msgspec.to_builtins(numbers)["kinds"], ("came", "came_at", "sums")
    return [{name: kind[name] for name in kind if name not in left_out} for kind in kinds]


def _as_read(numbers: Mapping[str, object]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(numbers))
