"""Tests of parsing jobs from the output of sacct: dnm counts lines without data, and refuses other
text."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dnm.model.errors import ExitCode
from dnm.simulate.accounting import SimulationError, parse_jobs
from dnm.simulate.batch import SimJob
from tests.builders import a_config

SINCE, UNTIL = datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)
GOOD = "2026-03-02T01:00:00|2026-03-02T01:10:00|2026-03-02T02:10:00|2|120|a[001-002]"


def parsed(*lines: str) -> tuple[list[SimJob], int]:
    accounting = parse_jobs("\n".join(lines), SINCE, UNTIL, a_config().type_of)
    return list(accounting.jobs), accounting.left_out


LINES: dict[str, tuple[str, SimJob | None]] = {
    "two nodes for an hour": (GOOD, SimJob(at=3600, nodes=2, lasts=3600, limit=7200)),
    "without a limit": (GOOD.replace("|120|", "|UNLIMITED|"),
                        SimJob(at=3600, nodes=2, lasts=3600, limit=365 * 86_400)),
    "it ran over its limit": (GOOD.replace("|120|", "|30|"),
                              SimJob(at=3600, nodes=2, lasts=3600, limit=3600)),
    "never began": (GOOD.replace("2026-03-02T01:10:00", "None"), None),
    "runs still": (GOOD.replace("2026-03-02T02:10:00", "Unknown"), None),
    "ended as it began": (GOOD.replace("T02:10:00", "T01:10:00"), None),
    "waited when the span began": (GOOD.replace("2026-03-02T01:00:00", "2026-03-01T23:59:59"),
                                   SimJob(at=0, nodes=2, lasts=3600, limit=7200)),
    "ran when the span began": (
        GOOD.replace("02T01:00:00", "01T23:00:00").replace("02T01:10:00", "01T23:10:00"),
        SimJob(at=0, nodes=2, lasts=7800, limit=7800)),
    "ended before": (GOOD.replace("2026-03-02", "2026-03-01"), None),
    "submitted after": (GOOD.replace("2026-03-02T0", "2026-03-03T0"), None),
    "on nodes that are never lent": (GOOD.replace("a[001-002]", "login1"), None),
    "no nodes": (GOOD.replace("a[001-002]", "None assigned"), None),
    "brackets that don't match": (GOOD.replace("a[001-002]", "a[001"), None),
    "a field too many": (f"{GOOD}|x", None),
    "no number of nodes": (GOOD.replace("|2|", "|two|"), None),
    "a line of nothing": (" ", None),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_sacct_line_is_a_job_or_counted_as_left_out(name: str) -> None:
    line, job = LINES[name]
    accounting = parse_jobs(f"{GOOD}\n{line}", SINCE, UNTIL, a_config().type_of)
    (_, first) = LINES["two nodes for an hour"]
    expected = [item for item in (first, job) if item]
    assert list(accounting.jobs) == sorted(expected, key=lambda item: item.at)
    assert accounting.left_out == (job is None) and accounting.nodes == {"a": {"a001", "a002"}}


def test_jobs_are_sorted_by_their_start() -> None:
    early = GOOD.replace("T01:00:00", "T00:30:00")
    assert [job.at for job in parsed(GOOD, early)[0]] == [1800, 3600]


@pytest.mark.parametrize("text", ["JobID JobName\n1 x\n", "\x00\xff", "a|b|c|d|e|f"])
def test_text_of_another_program_is_refused(text: str) -> None:
    with pytest.raises(SimulationError, match="no line is one of sacct") as caught:
        parsed(text)
    assert caught.value.exit_code is ExitCode.NEEDS_PERSON


def test_empty_sacct_output_has_no_jobs() -> None:
    assert parsed("") == ([], 0)
