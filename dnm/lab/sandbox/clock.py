"""The sandbox's time: real time, or a time that a test sets.

A controller that waits registers a time with `call_at`, and its step runs at that time."""

from __future__ import annotations

import heapq
import threading
import time
from datetime import UTC, datetime

import msgspec


class Clock:
    """A clock in seconds since the epoch. It divides all durations by `speed`, in manual time too.

    `skew_seconds` is added to the Date header only, for tests of clock checks."""

    def __init__(self, *, manual: bool = False, speed: float = 1.0) -> None:
        self.manual = manual
        self.speed = speed
        self.skew_seconds = 0.0
        self._instant = time.time()
        self._due: list[float] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._instant if self.manual else time.time()

    def set(self, instant: float) -> None:
        """Sets a manual clock, possibly backwards."""
        self._instant = instant

    def after(self, seconds: float) -> float:
        """Returns the time after this duration, and registers it, so that a step runs then."""
        instant = self.now() + self.scaled(seconds)
        self.call_at(instant)
        return instant

    def scaled(self, seconds: float) -> float:
        return seconds / self.speed

    def call_at(self, instant: float) -> None:
        with self._lock:
            heapq.heappush(self._due, instant)

    def next_due(self) -> float | None:
        with self._lock:
            return self._due[0] if self._due else None

    def forget_due(self) -> None:
        """Removes registered times that have passed."""
        now = self.now()
        with self._lock:
            while self._due and self._due[0] <= now:
                heapq.heappop(self._due)

    def stamp(self) -> str:
        """Returns the current time as the API prints it: RFC 3339, UTC, whole seconds."""
        return stamp(self.now())


def stamp(instant: float) -> str:
    return datetime.fromtimestamp(int(instant), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- timing --------------------------------------------------------------------------------------

# The durations of the sandbox's steps, in seconds of its clock (divided by its speed).


class Timing(msgspec.Struct, kw_only=True):
    """The durations of the sandbox's actions. If they are zero, each happens without delay."""

    pod_start: float = 0.0  # ContainerCreating
    pod_stop: float = 0.0  # Terminating
    convert: float = 0.0  # one call of the converter, batch -> Kubernetes
    revert: float = 0.0  # Kubernetes -> batch
    join: float = 0.0  # from the converter's end until the Node is registered, NotReady
    ready: float = 0.0  # from there until it is Ready
    completing: float = 30.0  # an application lives on after its last pod (yunikorn-core)
    toleration: float = 300.0  # pods of a NotReady node are deleted after it
    taint: float = 0.0  # from a cordon until its taint is there
    orphans: float = 0.0  # pods outlive their Node by so much (podgc: 40 to 60)
    take_up: float = 0.0  # from a write of the queue document until the scheduler uses it


def real_life() -> Timing:
    """Returns durations as on a real site, but in seconds instead of minutes, for manual tests."""
    return Timing(
        pod_start=3, pod_stop=1, convert=8, revert=8, join=1, ready=2,
        completing=5, toleration=60, take_up=0.5, taint=0.2, orphans=2,
    )  # fmt: skip
