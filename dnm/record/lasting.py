"""The choice of the errors that a run reports. A lasting error is reported when it begins, after an
hour, then daily, and once when it is over. Pure.

So an administrator gets a mail from cron only if something has changed. Two sentences count as the
same error if they differ only in times, spans or request ids, not in names or amounts."""

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
    """The errors to report now, and the errors that are over. `lasting` is stored in the registry:
    the errors of this run, by their sentences without times, spans and ids."""

    said: tuple[str, ...]
    over: tuple[str, ...]
    lasting: dict[str, LastingError]


def judge_errors(
    recorded: Mapping[str, LastingError], errors: Sequence[str], now: datetime
) -> ErrorNews:
    """Compares the errors of a run with those recorded by earlier runs, and returns which to
    report. Reports the end of an error only if more than one run had it."""
    logged: list[str] = []
    lasting: dict[str, LastingError] = {}
    for error in errors:
        key = _TICKING.sub("#", error)
        before = lasting.get(key) or recorded.get(key)
        if before is None:
            lasting[key] = LastingError(since=now, reported_at=now)
            logged.append(error)
        elif key not in lasting and is_due(before, now):
            lasting[key] = LastingError(since=before.since, reported_at=now, has_lasted=True)
            logged.append(f"{error} (for {duration(now - before.since)} now)")
        elif key not in lasting:
            lasting[key] = msgspec.structs.replace(before, has_lasted=True)
    over = tuple(
        f"resolved after {duration(now - before.since)}: {key.replace('#', '…')}"
        for key, before in recorded.items()
        if key not in lasting and before.has_lasted
    )
    return ErrorNews(said=tuple(logged), over=over, lasting=lasting)


def is_due(lasting: LastingError, now: datetime) -> bool:
    """Returns whether an error that lasts must be reported again: after an hour, then daily."""
    is_repeated_daily = lasting.reported_at - lasting.since >= HOUR
    return now - lasting.reported_at >= (DAY if is_repeated_daily else HOUR)
