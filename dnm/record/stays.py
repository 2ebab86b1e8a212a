"""The stays of nodes: lends with their phases and use, read from the lines of history. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from dnm.model.history import HistoryLine, pods_on
from dnm.model.value import Value

# Events of a node; the last of each is a command.
BEGINS = ("lent", "adopted", "adopt")
ENDS = ("returned", "forgotten", "forget")
_SERVING = "serving"


class Stay(Value):
    """A lend of a node. `phases`: each phase and its start; the first begins at `begin`. `end`:
    None if the node is lent now. `pods`: how many pods of its request fit on the node, one if
    unknown. `used`: the times in which it served pods, without the idle time before a fence."""

    node: str
    node_type: str
    queue: str
    begin: datetime
    phases: tuple[tuple[str, datetime], ...]
    end: datetime | None = None
    pods: int = 1
    used: tuple[tuple[datetime, datetime], ...] = ()


class OpenStay:
    """A lend that has not ended in the history lines read so far. `phase` is the node's phase at
    `begin`, if the line that began the lend is missing."""

    def __init__(self, node_type: str, queue: str, begin: datetime, phase: str = "") -> None:
        self.node_type, self.queue, self.begin = node_type, queue, begin
        self.phases: list[tuple[str, datetime]] = [(phase, begin)] if phase else []
        self.pods = 1
        self._serves_since = begin if phase == _SERVING else None
        self._used: list[tuple[datetime, datetime]] = []

    def take(self, line: HistoryLine) -> None:
        """Adds one line of history about the node to its lend."""
        if line.after:
            self.phases.append((line.after, line.time))
        if line.after == _SERVING:
            self._serves_since = self._serves_since or line.time
        elif self._serves_since is not None:
            idle = timedelta(seconds=float(line.numbers.get("idle_seconds", 0)))
            self._use_until(line.time - idle)

    def count_pods(self, asked: Mapping[str, Any], size: Mapping[str, int]) -> None:
        """Sets how many pods of the node's request fit on it. `asked`: the request's numbers."""
        self.pods = pods_on(asked, size)[0] or 1

    def close(self, name: str, end: datetime | None, used_until: datetime) -> Stay:
        """Returns the lend as a Stay. `end` is None if the node is lent now. If the node serves, it
        counts as used until `used_until`."""
        if self._serves_since is not None:
            self._use_until(used_until)
        return Stay(node=name, node_type=self.node_type, queue=self.queue, begin=self.begin,
                    phases=tuple(self.phases), end=end, pods=self.pods,
                    used=tuple(self._used))  # fmt: skip

    def close_without_end(self, name: str) -> Stay:
        """Returns the lend of a node if the history has no end of it: it ends at the last phase."""
        last = self.phases[-1][1] if self.phases else self.begin
        return self.close(name, last, last)

    def _use_until(self, end: datetime) -> None:
        if self._serves_since is not None and end > self._serves_since:
            self._used.append((self._serves_since, end))
        self._serves_since = None
