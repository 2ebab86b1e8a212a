"""What a run asks of an iCalendar file, and the bounds of the answer."""

from __future__ import annotations

from datetime import datetime, timedelta

from dnm.model.value import Value

LARGEST = 2 * 1024 * 1024  # bytes of the file
MOST_ASKED = 4 * 1024 * 1024  # bytes of the question: it names all namespaces
MOST_SECONDS = 20.0  # for all of it
SECONDS_OF_ONE = 3.0  # for one series: a bomb must not keep the others from being read
MOST_OF_ONE = 1_000  # occurrences of one series
MOST_KEPT = 1_000  # windows of all of them: the first that come
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
