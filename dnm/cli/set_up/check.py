"""`dnm check`, which runs all checks and prints their findings."""

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

_SHOWN: Mapping[CheckResult, tuple[str, str, Meaning, str]] = {  # sign, word, meaning, in sums
    CheckResult.OK: ("✓", "ok  ", "ok", "ok"),
    CheckResult.WARNING: ("!", "warn", "warning", "with warnings"),
    CheckResult.FAILED: ("✗", "FAIL", "error", "failed"),
    CheckResult.SKIPPED: ("-", "skip", "muted", "skipped"),
}


_ORDER = (CheckResult.FAILED, CheckResult.WARNING, CheckResult.SKIPPED, CheckResult.OK)
_TYPICAL_CHECKS = 23  # checks at most sites, for the progress bar

# Exit code 2 if one fails.
_FOR_A_PERSON = ("configuration", "events", "state directory", "lock", "registry", "instance")


def check(
    config_path: PathOption = None,
    output: OutputOption = "text",
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare the stored cluster state with full lists.")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", "-w", help="Show passed checks too.")] = False,
) -> int:
    """Check configuration, permissions and both clusters."""
    from dnm.cli.terminal.paint import progress

    findings: list[Finding] = []
    with progress("checking") as report_progress:
        for finding in find_everything(config_path, os.environ, deep):
            findings.append(finding)
            report_progress(len({finding.check for finding in findings}) / _TYPICAL_CHECKS)
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
    """Prints a line for each finding, failures first. Each line begins with a sign, or with a word
    if the terminal cannot show the signs. Unless `is_wide`, all passed checks share one line."""
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
        print_line((f"{sign if can_tick else word} ", meaning), f"ok: {names}; --wide shows each")
    counts = Counter(finding.result for finding in findings)
    print_line(
        ", ".join(
            f"{counts[check_result]} {of}"
            for check_result, (*_, of) in _SHOWN.items()
            if counts[check_result]
        )
    )
