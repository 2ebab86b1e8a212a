"""The record of demand -> pods: how many of each kind waited and ran, line after line, becomes when
each came, began and ended. Pure.

The rule: as few pods as explain the numbers, and of equal pods the first that came begins first and
the first that began ends first. So the sums are those of the record at each of its moments; what
came and went between two of them was never seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime

import msgspec

from dnm.model.history import HistoryLine, PodKind
from dnm.model.value import Value

Request = tuple[tuple[str, int], ...]
_LONGER_THAN_ANY = 10 * 366 * 86_400.0  # seconds: it runs still


class Span(Value):
    """A pod: when it came, and for how many seconds it ran once it had begun."""

    queue: str
    came: datetime
    lasts: float
    request: Request


class _Kind:
    """Equal pods: when those that wait came, and those that run came and began."""

    def __init__(self) -> None:
        self.waiting: deque[datetime] = deque()
        self.running: deque[tuple[datetime, datetime]] = deque()


class KindReplay:
    """Takes lines of demand, the oldest first. `cancelled`: pods that went without having begun."""

    def __init__(self) -> None:
        self.cancelled = 0
        self._kinds: dict[tuple[str, Request], _Kind] = {}
        self._spans: list[Span] = []

    def add(self, line: HistoryLine) -> None:
        """Takes the numbers of one queue at one moment; kinds that it does not name are gone."""
        told = {}
        for kind in msgspec.convert(line.numbers.get("kinds", ()), tuple[PodKind, ...]):
            told[line.queue, tuple(sorted(kind.request.items()))] = (kind.pending, kind.bound)
        for key in told:
            self._kinds.setdefault(key, _Kind())
        for key in [key for key in self._kinds if key[0] == line.queue]:
            self._move(key, *told.get(key, (0, 0)), line.time)
            if key not in told:
                del self._kinds[key]

    def close(self) -> list[Span]:
        """Returns all pods; those that run still go on for ever."""
        for (queue, request), kind in self._kinds.items():
            for came in [*(came for came, _ in kind.running), *kind.waiting]:
                self._spans.append(
                    Span(queue=queue, came=came, lasts=_LONGER_THAN_ANY, request=request)
                )
        self._kinds = {}
        return sorted(self._spans, key=lambda one: one.came)

    def _move(self, key: tuple[str, Request], pending: int, bound: int, now: datetime) -> None:
        kind = self._kinds[key]
        waited, ran = len(kind.waiting), len(kind.running)
        begun, ended = max(bound - ran, 0), max(ran - bound, 0)
        # Fewer wait and no more run: some have begun in the place of others that ended.
        replaced = min(max(waited - pending - begun, 0), ran - ended)
        begun, ended = begun + replaced, ended + replaced
        self._spans.extend(self._end(key, kind, ended, now))
        came = max(pending - waited + begun, 0)
        kind.waiting.extend([now] * came)
        for _ in range(begun):
            kind.running.append((kind.waiting.popleft(), now))
        while len(kind.waiting) > pending:
            kind.waiting.pop()
            self.cancelled += 1

    def _end(
        self, key: tuple[str, Request], kind: _Kind, count: int, now: datetime
    ) -> Iterator[Span]:
        for _ in range(count):
            came, began = kind.running.popleft()
            lasts = (now - began).total_seconds()
            yield Span(queue=key[0], came=came, lasts=lasts, request=key[1])
