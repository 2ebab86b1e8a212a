"""The back-off of a node type: it grows, ends, and counts a conversion once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.observed import Backoff
from dnm.plan.breaker import ConversionResult, after_conversions, backoff_delay, with_failure
from tests.builders import NOW, a_config


@given(st.integers(0, 10_000))
def test_backoff_grows_and_ends(failures: int) -> None:
    config = a_config()
    assert backoff_delay(config, failures) <= timedelta(hours=1)
    assert backoff_delay(config, failures) <= backoff_delay(config, failures + 1)


@pytest.mark.parametrize(
    ("failures", "minutes"), [(0, 1), (1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (99, 60)]
)
def test_it_doubles_from_one_interval_to_an_hour(failures: int, minutes: int) -> None:
    assert backoff_delay(a_config(), failures) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        pytest.param(None, 4, (1, 2), id="first-failure-halves"),
        pytest.param((1, 2), 4, (2, 1), id="the-smaller-is-halved"),
        pytest.param((1, 8), 4, (2, 2), id="less-was-asked-than-allowed"),
        pytest.param((7, 1), 1, (8, 1), id="one-at-least"),
    ],
)
def test_after_a_failure_fewer_are_asked_for_later(
    before: tuple[int, int] | None, asked: int, after: tuple[int, int]
) -> None:
    known = Backoff(failures=before[0], until=NOW, ask_at_most=before[1]) if before else None
    found = with_failure(a_config(), known, asked, NOW, "why")
    assert (found.failures, found.ask_at_most, found.last_error) == (*after, "why")
    assert found.until == NOW + backoff_delay(a_config(), after[0])


def _failed(error: str = "why", node_type: str = "a") -> ConversionResult:
    return ConversionResult(node_type=node_type, error=error)


JOINED = ConversionResult(node_type="a")


@pytest.mark.parametrize(
    ("results", "failures"),
    [
        pytest.param([], {"a": 2}, id="nothing"),
        pytest.param([JOINED], {}, id="a-node-has-joined"),
        pytest.param([_failed(), _failed("other")], {"a": 3}, id="once-a-look"),
        pytest.param([_failed(), _failed(node_type="b")], {"a": 3, "b": 1}, id="by-type"),
        pytest.param([JOINED, _failed()], {"a": 1}, id="joined-then-failed"),
        pytest.param([_failed(), JOINED], {}, id="failed-then-joined"),
    ],
)
def test_what_a_look_at_all_nodes_makes_of_it(
    results: list[ConversionResult], failures: dict[str, int]
) -> None:
    before = {"a": Backoff(failures=2, until=NOW, ask_at_most=1)}
    after = after_conversions(a_config(), before, results, NOW)
    assert {name: one.failures for name, one in after.items()} == failures
    assert "other" not in {one.last_error for one in after.values()}
