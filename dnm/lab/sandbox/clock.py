"""The sandbox's time: real, or standing still until a test moves it.

Everything that waits is an instant on this clock; who waits asks `wake_at` to be looked at again.
"""

from __future__ import annotations

import heapq
import threading
import time
from datetime import UTC, datetime


class Clock:
    """Seconds since the epoch. `speed` shortens every duration, in real time as in manual time.

    `skew_seconds` is added to the Date header only, for tests of clock checks.
    """

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
        """Moves a manual clock; backwards too, as a clock that is set does."""
        self._instant = instant

    def after(self, seconds: float) -> float:
        """The instant when a duration that begins now is over; it will wake the controllers."""
        instant = self.now() + self.scaled(seconds)
        self.wake_at(instant)
        return instant

    def scaled(self, seconds: float) -> float:
        return seconds / self.speed

    def wake_at(self, instant: float) -> None:
        with self._lock:
            heapq.heappush(self._due, instant)

    def next_due(self) -> float | None:
        with self._lock:
            return self._due[0] if self._due else None

    def forget_due(self) -> None:
        """Drops the instants that have passed."""
        now = self.now()
        with self._lock:
            while self._due and self._due[0] <= now:
                heapq.heappop(self._due)

    def stamp(self) -> str:
        """Now as the API prints it: RFC 3339, UTC, whole seconds."""
        return stamp(self.now())


def stamp(instant: float) -> str:
    return datetime.fromtimestamp(int(instant), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
