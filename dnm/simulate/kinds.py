"""The record of demand -> pods: how many of each kind waited, ran and came, line after line,
becomes when each came, began and ended. Pure.

The rule: of equal pods the first that came begins first and the first that began ends first. How
many came since the run before is told, so that one that begins where another ends is not taken for
one that runs on; where an older record does not tell, it is as few as explain the numbers. When in
between they came nobody knows, so they are spread. Of a gang all begin when the last has a node.
So the sums are those of the record at each of its moments; what came and went between two of them
was never seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from dnm.model.history import HistoryLine, PodKind
from dnm.model.value import Value

Request = tuple[tuple[str, int], ...]
_LONGER_THAN_ANY = 10 * 366 * 86_400.0  # seconds: it runs still
_BETWEEN = timedelta(seconds=60)  # two runs; what a line tells has come since the run before
_GOLDEN = 0.6180339887  # multiples of it are spread evenly, however many there are


class Span(Value):
    """A pod: when it came, and for how many seconds it ran once it had begun; `gang`: the number of
    those that begin with it, 0: none."""

    queue: str
    came: datetime
    lasts: float
    request: Request
    gang: int = 0


class _Kind:
    """Equal pods: when those that wait came, when those that run came and began, and the gang of
    each; when each gang had all of its pods."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting: deque[tuple[datetime, int]] = deque()
        self.running: deque[tuple[datetime, datetime, int]] = deque()
        self.complete: dict[int, datetime] = {}
        self.came = 0


class KindReplay:
    """Takes lines of demand, the oldest first. `cancelled`: pods that went without having begun."""

    def __init__(self) -> None:
        self.cancelled = 0
        self._kinds: dict[tuple[str, Request, int], _Kind] = {}
        self._spans: list[Span] = []
        self._last: dict[str, datetime] = {}  # by queue, its line before
        self._gangs = 0

    def add(self, line: HistoryLine) -> None:
        """Takes the numbers of one queue at one moment; kinds that it does not name are gone."""
        told = {}
        for kind in msgspec.convert(line.numbers.get("kinds", ()), tuple[PodKind, ...]):
            told[line.queue, tuple(sorted(kind.request.items())), kind.gang] = kind
        for key in told:
            self._kinds.setdefault(key, _Kind(key[2]))
        for key in [key for key in self._kinds if key[0] == line.queue]:
            none = PodKind(request={}, pending=0, bound=0, came=None)
            self._move(key, told.get(key, none), line.time)
            if key not in told:
                del self._kinds[key]
        self._last[line.queue] = line.time

    def close(self) -> list[Span]:
        """Returns all pods; those that run still go on for ever."""
        for (queue, request, _), kind in self._kinds.items():
            rest = [(came, gang) for came, _, gang in kind.running]
            for came, gang in [*rest, *kind.waiting]:
                self._spans.append(
                    Span(queue=queue, came=came, lasts=_LONGER_THAN_ANY, request=request, gang=gang)
                )
        self._kinds = {}
        return sorted(self._spans, key=lambda one: one.came)

    def _move(self, key: tuple[str, Request, int], told: PodKind, now: datetime) -> None:
        kind = self._kinds[key]
        begun, ended, came = _changes(len(kind.waiting), len(kind.running), told)
        self._spans.extend(self._end(key, kind, ended, now))
        spread = min(now - self._last.get(key[0], now), _BETWEEN) if told.came is not None else None
        for moment in sorted(self._moments(kind, came, now, spread)):
            kind.waiting.append((moment, self._gang_of(kind)))
        for _ in range(begun):
            moment, gang = kind.waiting.popleft()
            kind.running.append((moment, now, gang))
            kind.complete[gang] = now
        while len(kind.waiting) > told.pending:
            kind.waiting.pop()
            self.cancelled += 1

    def _moments(
        self, kind: _Kind, count: int, now: datetime, spread: timedelta | None
    ) -> Iterator[datetime]:
        """A gang's pods come at one moment."""
        for number in range(count):
            if spread is None:
                yield now
                continue
            kind.came += not kind.size or number % kind.size == 0
            yield now - spread * ((kind.came * _GOLDEN) % 1)

    def _gang_of(self, kind: _Kind) -> int:
        if not kind.size:
            return 0
        last = kind.waiting[-1][1] if kind.waiting else self._gangs
        members = sum(gang == last for _, gang in kind.waiting)
        if not kind.waiting or members >= kind.size:
            self._gangs += 1
            return self._gangs
        return last

    def _end(
        self, key: tuple[str, Request, int], kind: _Kind, count: int, now: datetime
    ) -> Iterator[Span]:
        for _ in range(count):
            came, began, gang = kind.running.popleft()
            began = max(began, kind.complete.get(gang, began)) if gang else began
            lasts = (now - began).total_seconds()
            yield Span(queue=key[0], came=came, lasts=max(lasts, 1.0), request=key[1], gang=gang)


def _changes(waited: int, ran: int, told: PodKind) -> tuple[int, int, int]:
    """How many have begun, ended and come, between two looks at a kind."""
    if told.came is None:
        begun, ended = max(told.bound - ran, 0), max(ran - told.bound, 0)
        # Fewer wait and no more run: some have begun in the place of others that ended.
        replaced = min(max(waited - told.pending - begun, 0), ran - ended)
        begun, ended = begun + replaced, ended + replaced
        return begun, ended, max(told.pending - waited + begun, 0)
    here = told.pending + told.bound
    came = max(told.came, here - waited - ran)
    gone = waited + ran + came - here
    # More than have come and waited can't have begun.
    ended = max(min(gone, ran, waited + came + ran - told.bound), ran - told.bound, 0)
    return told.bound - ran + ended, ended, came
