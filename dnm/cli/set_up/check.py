"""`dnm check`: runs all checks, and prints what they find."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import typer

from dnm.checks.findings import CheckResult, Finding
from dnm.checks.host import find_everything
from dnm.cli.terminal.options import OutputOption, PathOption
from dnm.cli.terminal.output import print_document, print_line
from dnm.model.errors import ExitCode
from dnm.model.printable import Meaning

_SHOWN: Mapping[CheckResult, tuple[str, str, Meaning, str]] = {  # sign, word, meaning, of many
    CheckResult.OK: ("✓", "ok  ", "ok", "fine"),
    CheckResult.WARNING: ("!", "warn", "warning", "to look at"),
    CheckResult.FAILED: ("✗", "FAIL", "error", "wrong"),
    CheckResult.SKIPPED: ("-", "skip", "muted", "not looked at"),
}


_ORDER = (CheckResult.FAILED, CheckResult.WARNING, CheckResult.SKIPPED, CheckResult.OK)
_LOOKED_AT = 23  # things at most sites, which say how much of it is done

# Exit code 2 if one fails.
_FOR_A_PERSON = ("configuration", "events", "state directory", "lock", "registry", "instance")


def check(
    config_path: PathOption = None,
    output: OutputOption = "text",
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare what is kept of the cluster with full lists.")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", "-w", help="Show what is fine too.")] = False,
) -> int:
    """Try now what could go wrong at 3 a.m."""
    from dnm.cli.terminal.paint import progress

    findings: list[Finding] = []
    with progress("looking") as tell:
        for finding in find_everything(config_path, os.environ, deep):
            findings.append(finding)
            tell(len({finding.check for finding in findings}) / _LOOKED_AT)
    failed = {finding.check for finding in findings if finding.result is CheckResult.FAILED}
    if output != "text":
        checks = list(map(msgspec.structs.asdict, findings))
        print_document({"schema": "dnm.check/1", "ok": not failed, "checks": checks}, output)
    else:
        print_findings(findings, is_wide=wide)
    if failed & set(_FOR_A_PERSON):
        return ExitCode.NEEDS_PERSON
    return ExitCode.FAILED if failed else ExitCode.OK


def print_findings(findings: Sequence[Finding], *, is_wide: bool = True) -> None:
    """Prints a line each, what is wrong first, with a tick or a cross, or words where the terminal
    has none. Unless `is_wide`, all that is fine is one line."""
    can_tick = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    arrow = "→" if can_tick else "->"
    for finding in sorted(findings, key=lambda finding: _ORDER.index(finding.result)):
        if finding.result is CheckResult.OK and not is_wide:
            continue
        sign, word, meaning, _ = _SHOWN[finding.result]
        remedy = f" {arrow} {finding.remedy}" if finding.remedy else ""
        text = f"{finding.check}: {finding.text}{remedy}"
        shown = text if can_tick else text.encode("ascii", "replace").decode()
        print_line((f"{sign if can_tick else word} ", meaning), shown)
    good = Counter(finding.check for finding in findings if finding.result is CheckResult.OK)
    if good and not is_wide:
        sign, word, meaning, _ = _SHOWN[CheckResult.OK]
        names = ", ".join(
            f"{name} ({count})" if count > 1 else name for name, count in good.items()
        )
        print_line((f"{sign if can_tick else word} ", meaning), f"fine: {names}; --wide shows each")
    counts = Counter(finding.result for finding in findings)
    print_line(
        ", ".join(
            f"{counts[check_result]} {of}"
            for check_result, (*_, of) in _SHOWN.items()
            if counts[check_result]
        )
    )
