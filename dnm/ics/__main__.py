"""`python -m dnm.ics`: a `Question` in the first line of its input, then the calendar. Prints a
`CalendarReading`, or a sentence on stderr and exit code 1; 3 where the libraries are missing."""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from dnm.ics.question import LARGEST, MEMORY, MOST_ASKED, MOST_SECONDS, SECONDS_OF_ALL, Question
from dnm.ics.shares import TooLong

NO_LIBRARIES = 3
_TO_ANSWER = 3.0  # seconds from the last series to the end, and before the first
_AGAIN = 0.1  # seconds until it rings once more, where a library has swallowed it


class Alarm:
    """Counts the work of this process, and ends what takes too much of it: by the clock on the wall
    a good series would be slow on a busy host. Only where time runs out by that too, it counts: who
    asked waits no longer than MOST_SECONDS."""

    def __init__(self) -> None:
        self._work, self._wall = time.process_time(), time.monotonic()
        self._is_set = False
        for ring in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(ring, self._ring)

    def spent(self) -> float:
        slack = MOST_SECONDS - SECONDS_OF_ALL - _TO_ANSWER
        work = time.process_time() - self._work
        return max(work, time.monotonic() - self._wall - slack)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self._is_set = True
        on_the_wall = MOST_SECONDS - _TO_ANSWER - (time.monotonic() - self._wall)
        signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN)
        signal.setitimer(signal.ITIMER_REAL, max(on_the_wall, _AGAIN), _AGAIN)
        try:
            yield
        finally:
            self._is_set = False  # it may have rung already, and be heard only now
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, number: int, frame: object) -> None:
        if self._is_set:
            raise TooLong


def main() -> int:
    """Reads the calendar; returns the exit code."""
    alarm = Alarm()
    for what, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, int(MOST_SECONDS))):
        hard = resource.getrlimit(what)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, hard))
    question = msgspec.json.decode(sys.stdin.buffer.readline(MOST_ASKED), type=Question)
    try:
        from dnm.ics.occurrences import read_calendar
    except ImportError as error:
        print(error, file=sys.stderr)
        return NO_LIBRARIES
    try:
        reading = read_calendar(sys.stdin.buffer.read(LARGEST + 1), question, alarm)
    except (ValueError, MemoryError, RecursionError) as error:
        print(error or "it takes too much memory", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(reading))
    return 0


if __name__ == "__main__":
    sys.exit(main())
