"""What a run asks of an iCalendar file, and the bounds of the answer."""

from __future__ import annotations

from datetime import datetime, timedelta

from dnm.model.value import Value

LARGEST = 2 * 1024 * 1024  # bytes of the file
MOST_ASKED = 4 * 1024 * 1024  # bytes of the question: it names all namespaces
MOST_SECONDS = 20.0  # for all of it
SECONDS_OF_ALL = 14.0  # of work, until the last series is played or left out
SECONDS_OF_ONE = 3.0  # of it at the most for one series, where there are few
MOST_OF_ONE = 1_000  # occurrences of one series
MOST_KEPT = 1_000  # windows of all of them: the first of each series
MOST_WORDS = 384 * 1024  # bytes of these: the record of a calendar holds 512 KiB
MOST_TOLD = 50  # series that are told as unread by name
AHEAD = timedelta(days=30)
MEMORY = 1024 * 1024 * 1024  # bytes that reading may take
ENOUGH = timedelta(days=9)  # what stays less far ahead is told


class Question(Value):
    """Occurrences that overlap `[begins, ends)`. `zone`: of times that name none."""

    source: str
    namespaces: tuple[str, ...]
    zone: str
    begins: datetime
    ends: datetime
