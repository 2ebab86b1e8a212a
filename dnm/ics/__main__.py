"""`python -m dnm.ics`: a `Question` in the first line of its input, then the calendar. Prints a
`CalendarReading`, or a sentence on stderr and exit code 1; 3 where the libraries are missing."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from dnm.ics.question import LARGEST, MEMORY, MOST_ASKED, MOST_SECONDS, SECONDS_OF_ONE, Question

NO_LIBRARIES = 3


class TooSlow(BaseException):
    """The time is up; no `except Exception` on the way may hide it."""


@contextmanager
def in_time() -> Iterator[None]:
    """Ends what takes too long; raises ValueError."""
    signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_OF_ONE)
    try:
        yield
    except TooSlow:
        raise ValueError(f"its rule takes more than {SECONDS_OF_ONE:g} seconds to play") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _ring(number: int, frame: object) -> None:
    raise TooSlow


def main() -> int:
    """Reads the calendar; returns the exit code."""
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
        reading = read_calendar(sys.stdin.buffer.read(LARGEST + 1), question, in_time)
    except (ValueError, MemoryError, RecursionError) as error:
        print(error or "it takes too much memory", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(reading))
    return 0


if __name__ == "__main__":
    sys.exit(main())
