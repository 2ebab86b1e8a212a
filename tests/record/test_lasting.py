"""Tests of lasting errors: a report at once, after an hour, then daily, and at the end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dnm.model.history import LastingError
from dnm.record.lasting import judge_errors
from tests.builders import NOW

MINUTE = timedelta(minutes=1)
AWAY = "can't list the nodes: no route to 10.0.0.1"


def reported_by_minute(errors: dict[int, list[str]], until: int) -> list[tuple[int, str]]:
    """Returns (minute, report); `errors` has minute -> the errors of runs from then on."""
    facts: dict[str, LastingError] = {}
    now: list[str] = []
    rows = []
    for minute in range(until):
        now = errors.get(minute, now)
        news = judge_errors(facts, now, NOW + minute * MINUTE)
        facts = news.lasting
        rows += [(minute, text) for text in (*news.said, *news.over)]
    return rows


def test_lasting_error_is_reported_after_an_hour_and_daily() -> None:
    assert reported_by_minute({0: [AWAY], 3000: []}, 3100) == [
        (0, AWAY),
        (60, f"{AWAY} (for 60 min now)"),
        (1500, f"{AWAY} (for 25 h 0 min now)"),
        (2940, f"{AWAY} (for 2 d 1 h now)"),
        (3000, f"resolved after 2 d 2 h: {AWAY}"),
    ]


def test_end_of_an_error_is_reported_without_its_times() -> None:
    late = "a001 waits since 2026-11-21 14:03 UTC"
    assert reported_by_minute({0: [late], 3: []}, 5) == [
        (0, late), (3, "resolved after 3 min: a001 waits since … … UTC"),
    ]  # fmt: skip


@pytest.mark.parametrize("interval", [timedelta(seconds=4), MINUTE, timedelta(hours=3)], ids=str)
def test_error_that_occurred_once_is_not_reported_as_over(interval: timedelta) -> None:
    """An error must occur in two runs to be lasting, whatever the time between runs."""
    first = judge_errors({}, [AWAY], NOW)
    assert judge_errors(first.lasting, [], NOW + interval).over == ()
    second = judge_errors(first.lasting, [AWAY], NOW + interval)
    assert len(judge_errors(second.lasting, [], NOW + 2 * interval).over) == 1


def test_second_error_is_reported_at_once() -> None:
    other = "a018 did not join"
    assert reported_by_minute({0: [AWAY], 5: [AWAY, other]}, 8) == [(0, AWAY), (5, other)]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("it timed out after 3.2 s", "it timed out after 4 s", True),
        ("since 2026-11-21 14:03:59 UTC", "since 2026-11-22 09:00:00 UTC", True),
        ("request=20261121T140300123456-1 failed", "request=20261121T150300123456-2 failed", True),
        ("node a017 is late", "node a018 is late", False),
        ("queue root.dev has 80", "queue root.dev has 90", False),
    ],
)
def test_changing_times_do_not_make_an_error_a_new_error(
    first: str, second: str, is_same: bool
) -> None:
    message = reported_by_minute({0: [first], 1: [second]}, 2)
    assert len(message) == (1 if is_same else 2)


def test_lasting_error_changes_no_memory_between_its_reports() -> None:
    """Otherwise each run would write the registry while an error lasts."""
    first = judge_errors({}, [AWAY], NOW)
    first = judge_errors(first.lasting, [AWAY], NOW + MINUTE)  # two runs have had it
    for minute in range(2, 60):
        again = judge_errors(first.lasting, [AWAY], NOW + minute * MINUTE)
        assert again.lasting == first.lasting and again.said == ()
