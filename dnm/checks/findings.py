"""What `dnm check` finds: one `Finding` for each thing that was looked at, and how it is shown."""

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
    """One line: what was looked at, how it is, and what to do unless it is fine."""

    check: str  # empty: as `looks_at` says of the function that has found it
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
    """An error may list several problems, a line each behind one that says how many."""
    head, *problems = str(error).splitlines()
    return (wrong(line.strip(), check=check) for line in problems or [head])


def skipped(text: str, check: str = "") -> Finding:
    return Finding(check=check, result=CheckResult.SKIPPED, text=text)


def looks_at(check: str) -> Callable[[Look[P]], Look[P]]:
    """Returns what names a function's findings, and has it find what stopped it: one failure does
    not hide the others."""

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
                what = error.filename or "it"
                yield wrong(f"{what} can't be looked at ({error.strerror})", check=check)

        return guarded

    return named
