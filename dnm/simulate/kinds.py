"""The times of single pods, derived from the record of demand. A line of it has how many pods of a
kind waited, ran and were created. The result has when each pod was created, began and ended. Pure.

Among equal pods, the sums of their creation times show which ones began and ended. If the record
has no sums, the oldest pod begins first, the one that began first ends first, and as few pods as
possible were created, spread over the time in between. All pods of a gang begin when the last one
has a node. A gang shrinks as its pods end, so only created pods show its size. The record never has
pods that were created and deleted between two lines."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import msgspec

from dnm.model.history import HistoryLine, PodKind
from dnm.model.value import Value

Request = tuple[tuple[str, int], ...]
_Pod = tuple[datetime, datetime, int]  # came, began, gang
_Key = tuple[str, Request, bool]  # queue, what one asks for, whether it is of a gang
_LONGER_THAN_ANY = 10 * 366 * 86_400.0  # seconds: it runs still
_BETWEEN = timedelta(seconds=60)  # two runs; the pods of a line came since the previous run
_MOST_TRIED = 500  # choices of those that may have ended
_GOLDEN = 0.6180339887  # multiples of it are spread evenly, however many there are


class Span(Value):
    """The times of a pod: when it was created and began, and how many seconds it ran. `gang`: the
    number of its gang, or 0."""

    queue: str
    came: datetime
    began: datetime
    lasts: float
    request: Request
    gang: int = 0


class _Gang(NamedTuple):
    """The latest gang of a kind: its number, how many of its pods exist so far, and its size."""

    number: int = 0
    came: int = 0
    size: int = 0


class _Kind:
    """Equal pods of a queue: those that wait, those that run, and when each gang was complete."""

    def __init__(self) -> None:
        self.gang = _Gang()
        self.waiting: deque[tuple[datetime, int]] = deque()
        self.running: deque[_Pod] = deque()
        self.complete: dict[int, datetime] = {}
        self.came = 0
        self.told: Counter[int] = Counter()  # when the pods of the previous line came
        self.sums: tuple[int, ...] = (0, 0)
        self.is_exact = False


class KindReplay:
    """A reader of demand lines, oldest first. `cancelled`: pods that were deleted unstarted."""

    def __init__(self) -> None:
        self.cancelled = 0
        self._kinds: dict[_Key, _Kind] = {}
        self._spans: list[Span] = []
        self._last: dict[str, datetime] = {}  # by queue, its line before
        self._gangs = 0

    def add(self, line: HistoryLine) -> None:
        """Reads the line of a queue at one moment. Kinds of pods that it lacks have ended."""
        by_key: dict[_Key, list[PodKind]] = {}
        for kind in msgspec.convert(line.numbers.get("kinds", ()), tuple[PodKind, ...]):
            key = (line.queue, tuple(sorted(kind.request.items())), kind.gang > 0)
            by_key.setdefault(key, []).append(kind)
        for key in by_key:
            self._kinds.setdefault(key, _Kind())
        for key in [key for key in self._kinds if key[0] == line.queue]:
            self._move(key, by_key.get(key, []), line.time)
            if key not in by_key:
                del self._kinds[key]
        self._last[line.queue] = line.time

    def close(self) -> list[Span]:
        """Returns all pods with their times. A pod that still runs has no end."""
        for (queue, request, _), kind in self._kinds.items():
            waiting = ((created, self._last[queue], gang) for created, gang in kind.waiting)
            self._spans += _spans(queue, request, (*kind.running, *waiting), None)
        self._kinds = {}
        return sorted(self._spans, key=lambda span: (span.came, span.began))

    def _move(self, key: _Key, some: Sequence[PodKind], now: datetime) -> None:
        kind, line = self._kinds[key], _together(some)
        # Two runs may be closer than a minute: pods of the previous line have not come again.
        new, kind.told = Counter(line.came_at) - kind.told, Counter(line.came_at)
        if line.came and line.came_at:
            created = line.came * new.total() // len(line.came_at)
            line = msgspec.structs.replace(line, came=created, came_at=tuple(new.elements()))
        begun, ended, created = _changes(len(kind.waiting), len(kind.running), line)
        before = max(now - _BETWEEN, self._last.get(key[0], now))
        sizes = {at: kind.gang for kind in some for at in kind.came_at}
        usual = max((kind.gang for kind in some if kind.came != 0), default=0)
        arrived = sorted(_moments(kind, line, created, before, now, usual))
        begun_at, ended_at = _sums(kind, line, begun, ended, arrived)
        kind.sums, kind.is_exact = line.sums, kind.is_exact or bool(line.sums)
        between = before + (now - before) / 2 if kind.is_exact else now
        ended_pods = [(created, max(began, kind.complete[gang]) if gang else began, gang)
                for created, began, gang in _take(kind.running, ended, ended_at)]  # fmt: skip
        self._spans += _spans(key[0], key[1], ended_pods, between)
        for moment in arrived:
            size = sizes.get(int(moment.timestamp()), usual)
            kind.waiting.append((moment, self._gang_of(kind, size, some)))
        for moment, gang in _take(kind.waiting, begun, begun_at):
            # A pod that came since the previous run and has a node got it at once.
            began = moment if kind.is_exact and moment >= before else between
            kind.running.append((moment, began, gang))
            kind.complete[gang] = began
        while len(kind.waiting) > line.pending:
            kind.waiting.pop()
            self.cancelled += 1

    def _gang_of(self, kind: _Kind, size: int, some: Sequence[PodKind]) -> int:
        """Returns the number of the gang to which a new pod belongs; 0: none. A pod joins the
        latest gang, unless that is complete or has another size. The size of that gang has changed
        if `some` has no gang of the old size."""
        if not size:
            return 0
        number, created, was = kind.gang
        is_new = created >= size or (was != size and any(kind.gang == was for kind in some))
        if is_new or not number:
            self._gangs += 1
            number, created = self._gangs, 0
        kind.gang = _Gang(number, created + 1, size)
        return number


def _together(some: Sequence[PodKind]) -> PodKind:
    """Returns one kind with the summed numbers of `some`: equal pods in gangs of several sizes."""
    created = [kind.came for kind in some if kind.came is not None]
    sums = [kind.sums for kind in some if kind.sums]
    return PodKind(
        request={},
        pending=sum(kind.pending for kind in some),
        bound=sum(kind.bound for kind in some),
        came=sum(created) if created else None,
        came_at=tuple(sorted(at for kind in some for at in kind.came_at)),
        sums=tuple(map(sum, zip(*sums, strict=True))) if len(sums) == len(some) else (),
    )


def _moments(
    kind: _Kind, line: PodKind, count: int, before: datetime, now: datetime, gang: int
) -> Iterator[datetime]:
    """Yields when the new pods were created: the recorded times, then estimates for the others."""
    yield from (datetime.fromtimestamp(number, UTC) for number in line.came_at[:count])
    for number in range(count - len(line.came_at)):
        kind.came += not gang or number % gang == 0
        spread = 0.0 if line.came is None else 1.0 if line.sums else (kind.came * _GOLDEN) % 1
        yield now - (now - before) * spread


def _spans(
    queue: str, request: Request, pods: Iterable[_Pod], now: datetime | None
) -> Iterator[Span]:
    """Yields the times of these pods. They end at `now`, or never if `now` is None."""
    for created, began, gang in pods:
        lasts = max((now - began).total_seconds(), 1.0) if now else _LONGER_THAN_ANY
        yield Span(queue=queue, came=created, began=began, lasts=lasts, request=request, gang=gang)


def _sums(
    kind: _Kind, line: PodKind, begun: int, ended: int, arrived: Sequence[datetime]
) -> tuple[float | None, float | None]:
    """Returns the sums of creation times of the pods that began and that ended; None: unknown."""
    if not (kind.sums and line.sums):
        return None, None
    waiting, running = (now - before for now, before in zip(line.sums, kind.sums, strict=True))
    if not ended:
        return running, None
    if len(kind.waiting) + len(arrived) - begun > line.pending:  # some went before they had begun
        return None, None if begun else -running
    begun_at = sum(moment.timestamp() for moment in arrived) - waiting
    return begun_at, begun_at - running


def _take(pods: deque[Any], count: int, total: float | None) -> list[Any]:
    """Removes `count` pods from the list and returns them: those with a sum of creation times near
    `total`, or the first ones if `total` is None."""
    if total is None or count in (0, len(pods)) or count * len(pods) > 20 * _MOST_TRIED:
        return [pods.popleft() for _ in range(count)]
    chosen = _nearest([pod[0].timestamp() for pod in pods], count, total)
    taken = [pods[item] for item in chosen]
    for number in reversed(chosen):
        del pods[number]
    return taken


def _nearest(moments: Sequence[float], count: int, total: float) -> list[int]:
    """Returns indexes of `count` moments with a sum near `total`, the nearest if there are few."""
    places = range(len(moments))
    if comb(len(moments), count) <= _MOST_TRIED:
        some = combinations(places, count)
        return list(
            min(some, key=lambda iterable: abs(sum(moments[at] for at in iterable) - total))
        )
    chosen = {int((number + 0.5) * len(moments) / count) for number in range(count)}
    for _ in range(count):
        off = total - sum(moments[number] for number in chosen)
        swaps = ((moments[new] - moments[old], old, new) for old in chosen for new in places)
        gain, old, new = min((swap for swap in swaps if swap[2] not in chosen),
                             key=lambda swap: (abs(off - swap[0]), *swap))  # fmt: skip
        if abs(off - gain) >= abs(off):
            break
        chosen = chosen - {old} | {new}
    return sorted(chosen)


def _changes(waited: int, ran: int, line: PodKind) -> tuple[int, int, int]:
    """Returns how many pods of a kind began, ended and were created between two lines of demand."""
    if line.came is None:
        begun, ended = max(line.bound - ran, 0), max(ran - line.bound, 0)
        # Fewer wait and no more run: some have begun in the place of others that ended.
        replaced = min(max(waited - line.pending - begun, 0), ran - ended)
        begun, ended = begun + replaced, ended + replaced
        return begun, ended, max(line.pending - waited + begun, 0)
    here = line.pending + line.bound
    created = max(line.came, here - waited - ran)
    removed = waited + ran + created - here
    # More than have come and waited can't have begun.
    ended = max(min(removed, ran, waited + created + ran - line.bound), ran - line.bound, 0)
    return line.bound - ran + ended, ended, created
