"""The findings of `dnm check`: a `Finding` for each object that was checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import wraps
from typing import ParamSpec, TypeAlias

import msgspec

from dnm.model.errors import DnmError
from dnm.model.value import Value

P = ParamSpec("P")
Look: TypeAlias = Callable[P, Iterator["Finding"]]


class CheckResult(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(Value, frozen=True):
    """The result of a check: its subject, the result, and a remedy unless the result is ok."""

    check: str  # empty: the name that `looks_at` gives
    result: CheckResult
    text: str
    remedy: str = ""


def fine(text: str, check: str = "") -> Finding:
    return Finding(check=check, result=CheckResult.OK, text=text)


def doubtful(text: str, remedy: str = "", check: str = "") -> Finding:
    return Finding(check=check, result=CheckResult.WARNING, text=text, remedy=remedy)


def wrong(text: str, remedy: str = "", check: str = "") -> Finding:
    return Finding(check=check, result=CheckResult.FAILED, text=text, remedy=remedy)


def all_wrong(error: DnmError, check: str) -> Iterator[Finding]:
    """Returns a finding for each problem in an error. The first line of the error's text has the
    number of problems, and each line below has one problem."""
    head, *problems = str(error).splitlines()
    return (wrong(line.strip(), check=check) for line in problems or [head])


def skipped(text: str, check: str = "") -> Finding:
    return Finding(check=check, result=CheckResult.SKIPPED, text=text)


def looks_at(check: str) -> Callable[[Look[P]], Look[P]]:
    """Returns a decorator for a check. It names the subject of the findings, and turns an error
    into a finding, so that one failure does not hide others."""

    def named(look: Look[P]) -> Look[P]:
        @wraps(look)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Iterator[Finding]:
            try:
                for finding in look(*args, **kwargs):
                    yield (
                        finding if finding.check else msgspec.structs.replace(finding, check=check)
                    )
            except DnmError as error:
                yield from all_wrong(error, check)
            except OSError as error:
                path = error.filename or "it"
                yield wrong(f"{path} can't be read ({error.strerror})", check=check)

        return guarded

    return named
