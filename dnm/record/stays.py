"""Nodes that were lent, from the lines of history. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from dnm.model.history import HistoryLine, pods_on
from dnm.model.value import Value

# Events of a node, of which the last of each is a person's verb.
BEGINS = ("lent", "adopted", "adopt")
ENDS = ("returned", "forgotten", "forget")
_SERVING = "serving"


class Stay(Value):
    """One node, lent once. `phases`: each with its beginning, the first one from `begin` on;
    `end` None: it is lent now. `pods`: how many it takes of those that it was asked for, one where
    nothing says; `used`: from and until when it served them, without the idling before a fence."""

    node: str
    node_type: str
    queue: str
    begin: datetime
    phases: tuple[tuple[str, datetime], ...]
    end: datetime | None = None
    pods: int = 1
    used: tuple[tuple[datetime, datetime], ...] = ()


class OpenStay:
    """A stay whose end is not read yet. `phase`: the one that it begins in, where no line will say
    it."""

    def __init__(self, node_type: str, queue: str, begin: datetime, phase: str = "") -> None:
        self.node_type, self.queue, self.begin = node_type, queue, begin
        self.phases: list[tuple[str, datetime]] = [(phase, begin)] if phase else []
        self.pods = 1
        self._serves_since = begin if phase == _SERVING else None
        self._used: list[tuple[datetime, datetime]] = []

    def take(self, line: HistoryLine) -> None:
        """Goes on as the line says."""
        if line.after:
            self.phases.append((line.after, line.time))
        if line.after == _SERVING:
            self._serves_since = self._serves_since or line.time
        elif self._serves_since is not None:
            idle = timedelta(seconds=float(line.numbers.get("idle_seconds", 0)))
            self._use_until(line.time - idle)

    def count_pods(self, asked: Mapping[str, Any], size: Mapping[str, int]) -> None:
        """Learns how many pods it takes. `asked`: the numbers of the request that it came of."""
        self.pods = pods_on(asked, size)[0] or 1

    def close(self, name: str, end: datetime | None, used_until: datetime) -> Stay:
        """Returns it. `end` None: it is lent now; `used_until`: until when, if it serves."""
        if self._serves_since is not None:
            self._use_until(used_until)
        return Stay(node=name, node_type=self.node_type, queue=self.queue, begin=self.begin,
                    phases=tuple(self.phases), end=end, pods=self.pods,
                    used=tuple(self._used))  # fmt: skip

    def close_without_end(self, name: str) -> Stay:
        """Returns it where no line tells its end: it was lent until the last that tells of it."""
        last = self.phases[-1][1] if self.phases else self.begin
        return self.close(name, last, last)

    def _use_until(self, end: datetime) -> None:
        if self._serves_since is not None and end > self._serves_since:
            self._used.append((self._serves_since, end))
        self._serves_since = None
