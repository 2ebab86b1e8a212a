"""Tests of how long a node is not lent after a failed conversion, by the facts in its journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.converters.claimed import (
    LONGEST_REST,
    NO_FAILURE,
    carry_over,
    count_failure,
    pause_end,
    pause_reason,
)
from dnm.converters.journal import Journal
from tests.converters import played
from tests.converters.test_select import NOW

IDLE = timedelta(minutes=10)


def a_journal(failures: int = 0, at: datetime = NOW, **fields: object) -> Journal:
    made = played.a_journal(error="kubelet did not start")
    for _ in range(failures):
        facts = {**made.facts, **count_failure(made, at)}
        made = msgspec.structs.replace(made, facts=facts)
    return msgspec.structs.replace(made, **fields)


@pytest.mark.parametrize(
    ("failures", "minutes"),
    [(0, None), (1, 20), (2, 40), (7, 1280), (8, 1440), (100, 1440)],
)
def test_each_failure_in_a_row_doubles_the_pause(failures: int, minutes: int | None) -> None:
    until = pause_end(a_journal(failures), IDLE)
    assert until == (None if minutes is None else NOW + timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("journal", "seconds", "why"),
    [
        pytest.param(a_journal(1), 20 * 60 - 1,
                     "its conversion failed (kubelet did not start): left alone for 1s",
                     id="a second before its time"),
        pytest.param(a_journal(1), 20 * 60, "", id="its time is over"),
        pytest.param(a_journal(2, error=""), 0,
                     "its conversion failed 2 times in a row: left alone for 40m",
                     id="it failed twice"),
        pytest.param(a_journal(facts=NO_FAILURE), 0, "", id="it has succeeded since"),
        pytest.param(a_journal(facts={"failures": "2"}), 0, "", id="unknown time"),
        pytest.param(a_journal(facts={"failures": "two", "failed_at": NOW.isoformat()}), 0, "",
                     id="a number that is none"),
        pytest.param(a_journal(facts={"failures": "2", "failed_at": "2026-11-20T12:00:00"}), 0, "",
                     id="a time of nowhere"),
    ],
)  # fmt: skip
def test_reports_reason_and_length_of_the_pause(journal: Journal, seconds: int, why: str) -> None:
    assert pause_reason(journal, IDLE, NOW + timedelta(seconds=seconds)) == why


def test_pause_is_zero_without_min_idle_seconds() -> None:
    assert pause_end(a_journal(3), timedelta(0)) == NOW


def test_next_conversion_gets_only_the_failure_count() -> None:
    last = a_journal(2, facts={**a_journal(2).facts, "verdict": "idle for 1h"})
    assert carry_over(last) == a_journal(2).facts
    assert carry_over(None) == {}


@given(
    st.lists(st.booleans(), max_size=12),
    st.timedeltas(timedelta(0), timedelta(hours=2)),
)
def test_failure_extends_the_pause_and_success_resets_it(
    ends: list[bool], shortest: timedelta
) -> None:
    """The pause doubles with each failure in a row, up to a day, in any sequence of results."""
    made, row, now = a_journal(), 0, datetime(2026, 1, 1, tzinfo=UTC)
    before = timedelta(0)
    for is_good in ends:
        now += timedelta(hours=1)
        facts = dict(NO_FAILURE) if is_good else count_failure(made, now)
        made = msgspec.structs.replace(made, facts={**carry_over(made), **facts})
        row = 0 if is_good else row + 1
        until = pause_end(made, shortest)
        rest = until - now if until else timedelta(0)
        assert (until is None) == (row == 0)
        assert rest == (min(shortest * 2**row, LONGEST_REST) if row else timedelta(0))
        assert row < 2 or rest >= before
        before = rest
