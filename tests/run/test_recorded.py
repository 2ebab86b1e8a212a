"""What the recorded state says by itself: the last run, cooldown, back-offs, idle times, caps."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from dnm.model.registry import Backoff, LentNode, Phase, Registry
from dnm.plan.brakes import counted_as_lent
from dnm.run.recorded import (
    LastRun,
    backoffs_in_force,
    cooldown_left,
    count_caps,
    time_to_return,
    warn_of_last_run,
)
from tests.builders import NOW, a_config, a_lent_node, a_request

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("run", "warning"),
    [
        pytest.param(LastRun(), "no run yet", id="never"),
        pytest.param(LastRun(began=NOW - MINUTE), "has not ended", id="first-at-work"),
        pytest.param(
            LastRun(began=NOW - MINUTE, ended=NOW - 2 * MINUTE), "has not ended", id="at-work"
        ),
        pytest.param(LastRun(began=NOW - 3 * MINUTE, ended=NOW), "", id="three-intervals"),
        pytest.param(
            LastRun(began=NOW - 4 * MINUTE, ended=NOW - 3 * MINUTE), "is the timer on?", id="late"
        ),
    ],
)
def test_runs_that_don_t_come_or_don_t_end_are_warned_of(run: LastRun, warning: str) -> None:
    found = warn_of_last_run(a_config(), run, NOW)
    assert [warning in sentence for sentence in found] == ([True] if warning else [])


@pytest.mark.parametrize(
    ("since", "left"),
    [
        pytest.param(timedelta(seconds=10), timedelta(seconds=20), id="in-it"),
        pytest.param(timedelta(seconds=30), timedelta(0), id="over"),
        pytest.param(-MINUTE, timedelta(0), id="a-wrong-clock"),
    ],
)
def test_the_cooldown_that_is_left(since: timedelta, left: timedelta) -> None:
    registry = Registry(last_conversion=NOW - since)
    assert cooldown_left(a_config(), registry, NOW) == left
    assert cooldown_left(a_config(), Registry(), NOW) == timedelta(0)


def test_a_back_off_that_is_over_is_none() -> None:
    over = Backoff(failures=1, until=NOW, ask_at_most=1)
    on = Backoff(failures=1, until=NOW + MINUTE, ask_at_most=1)
    assert backoffs_in_force(Registry(backoffs={"a": over, "b": on}), NOW) == {"b": on}


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        pytest.param(a_lent_node(), None, id="busy"),
        pytest.param(a_lent_node(idle_since=NOW - MINUTE), 9 * MINUTE, id="idle"),
        pytest.param(a_lent_node(idle_since=NOW - 11 * MINUTE), 0 * MINUTE, id="long-idle"),
        pytest.param(a_lent_node(Phase.RELEASING, idle_since=NOW), None, id="on-its-way"),
        pytest.param(a_lent_node(idle_since=NOW, namespace="old"), None, id="not-monitored"),
    ],
)
def test_when_a_node_goes_back(entry: LentNode, left: timedelta | None) -> None:
    assert time_to_return(a_config(), entry, NOW) == left


def test_caps_are_counted_as_the_brakes_count_them() -> None:
    registry = Registry(
        nodes={"a001": a_lent_node(), "a002": a_lent_node(namespace="test")},
        requests=(a_request(count=3),),
    )
    config = a_config(max_converted_nodes=7)
    lent = counted_as_lent(config, registry, {})
    (cap,) = count_caps(config, registry)
    assert (cap.cap, cap.lent, cap.max) == ("all", len(lent), 7)
    assert Counter(namespace for _, namespace in lent) == {"dev": 4, "test": 1}
