"""The pending pods of the simulated cluster, in the order of their creation.

If one pod does not fit, no pod of its kind does. So the scheduler tries only the first of each
kind, and a year without lending, with all pods pending at the end, is as fast as any other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain

from dnm.simulate.values import PodState


class PendingPods:
    """The pending pods by kind: pods with equal queue, request and `never_starts`."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], deque[tuple[int, PodState]]] = {}
        self._number = 0

    def append(self, pod: PodState) -> None:
        self._number += 1
        kind = (pod.ask.queue, pod.ask.request, pod.ask.never_starts)
        self._kinds.setdefault(kind, deque()).append((self._number, pod))

    def __iter__(self) -> Iterator[PodState]:
        return (pod for _, pod in sorted(chain(*self._kinds.values()), key=lambda kind: kind[0]))

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def take(self, bind: Callable[[PodState], bool]) -> None:
        """Binds one pod after the other. If a pod does not fit, skips all others of its kind."""
        heads = [(waiting[0][0], kind) for kind, waiting in self._kinds.items()]
        heapify(heads)
        while heads:
            _, kind = heappop(heads)
            waiting = self._kinds[kind]
            if not bind(waiting[0][1]):
                continue
            waiting.popleft()
            if waiting:
                heappush(heads, (waiting[0][0], kind))
            else:
                del self._kinds[kind]
