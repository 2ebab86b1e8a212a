"""Which errors of a run are news: one that lasts is said when it begins, after an hour, then daily,
and once when it is over. Pure.

So a mail from cron means that something has happened. What only ticks in a sentence (times, spans,
the ids of requests) does not make it another error; names and amounts do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dnm.model.history import LastingError
from dnm.model.printable import duration
from dnm.model.value import Value

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_TICKING = re.compile(
    r"\d{8}T\d{6,12}(-\d+)?"  # requests
    r"|\d{4}-\d\d-\d\d|\d\d:\d\d(:\d\d)?(\.\d+)?"
    r"|\b\d+(\.\d+)? ?(s|ms|min|h|d|seconds|minutes|hours|days)\b"
    r"|\bpid[= ]\d+"
)


class ErrorNews(Value):
    """`said`: the errors that are to be said now; `over`: those that are no more. `lasting`: what
    is remembered, by the sentence without what ticks in it."""

    said: tuple[str, ...]
    over: tuple[str, ...]
    lasting: dict[str, LastingError]


def judge_errors(
    known: Mapping[str, LastingError], errors: Sequence[str], now: datetime
) -> ErrorNews:
    """Returns what of the errors of a run is news. One that was seen in a single run has not
    lasted: that it is over is not said."""
    said: list[str] = []
    lasting: dict[str, LastingError] = {}
    for error in errors:
        key = _TICKING.sub("#", error)
        before = lasting.get(key) or known.get(key)
        if before is None:
            lasting[key] = LastingError(since=now, said=now)
            said.append(error)
        elif key not in lasting and is_due(before, now):
            lasting[key] = LastingError(since=before.since, said=now, has_lasted=True)
            said.append(f"{error} (for {duration(now - before.since)} now)")
        elif key not in lasting:
            lasting[key] = msgspec.structs.replace(before, has_lasted=True)
    over = tuple(
        f"over, after {duration(now - before.since)}: {key}"
        for key, before in known.items()
        if key not in lasting and before.has_lasted
    )
    return ErrorNews(said=tuple(said), over=over, lasting=lasting)


def is_due(lasting: LastingError, now: datetime) -> bool:
    """Whether an error that lasts is to be said again."""
    was_said_after_an_hour = lasting.said - lasting.since >= HOUR
    return now - lasting.said >= (DAY if was_said_after_an_hour else HOUR)
