"""What `dnm check` finds: one `Finding` for each thing that was looked at, and how it is shown."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import wraps
from typing import ParamSpec, TypeAlias

import msgspec

from dnm.cli.terminal.output import print_line
from dnm.model.errors import DnmError
from dnm.model.printable import Meaning
from dnm.model.value import Value

P = ParamSpec("P")
Look: TypeAlias = Callable[P, Iterator["Finding"]]


class CheckResult(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


_SHOWN: Mapping[CheckResult, tuple[str, str, Meaning, str]] = {  # sign, word, meaning, of many
    CheckResult.OK: ("✓", "ok  ", "ok", "fine"),
    CheckResult.WARNING: ("!", "warn", "warning", "to look at"),
    CheckResult.FAILED: ("✗", "FAIL", "error", "wrong"),
    CheckResult.SKIPPED: ("-", "skip", "muted", "not looked at"),
}


_ORDER = (CheckResult.FAILED, CheckResult.WARNING, CheckResult.SKIPPED, CheckResult.OK)


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
                for one in look(*args, **kwargs):
                    yield one if one.check else msgspec.structs.replace(one, check=check)
            except DnmError as error:
                yield from all_wrong(error, check)
            except OSError as error:
                what = error.filename or "it"
                yield wrong(f"{what} can't be looked at ({error.strerror})", check=check)

        return guarded

    return named


def print_findings(findings: Sequence[Finding], *, is_wide: bool = True) -> None:
    """Prints a line each, what is wrong first, with a tick or a cross, or words where the terminal
    has none. Unless `is_wide`, all that is fine is one line."""
    can_tick = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    arrow = "→" if can_tick else "->"
    for finding in sorted(findings, key=lambda one: _ORDER.index(one.result)):
        if finding.result is CheckResult.OK and not is_wide:
            continue
        sign, word, meaning, _ = _SHOWN[finding.result]
        remedy = f" {arrow} {finding.remedy}" if finding.remedy else ""
        text = f"{finding.check}: {finding.text}{remedy}"
        shown = text if can_tick else text.encode("ascii", "replace").decode()
        print_line((f"{sign if can_tick else word} ", meaning), shown)
    good = Counter(one.check for one in findings if one.result is CheckResult.OK)
    if good and not is_wide:
        sign, word, meaning, _ = _SHOWN[CheckResult.OK]
        names = ", ".join(
            f"{name} ({count})" if count > 1 else name for name, count in good.items()
        )
        print_line((f"{sign if can_tick else word} ", meaning), f"fine: {names}; --wide shows each")
    counts = Counter(finding.result for finding in findings)
    print_line(", ".join(f"{counts[one]} {of}" for one, (*_, of) in _SHOWN.items() if counts[one]))
