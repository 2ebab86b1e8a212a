"""Tests of reports that need only the registry: about the last run and about idle times."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from dnm.cli.look.status import times_to_return
from dnm.model.lent import LentNode, Phase
from dnm.model.registry import Registry
from dnm.run.health import warn_of_last_run
from dnm.run.recorded import LastRun, unseen_since
from tests.builders import NOW, a_config, a_lent_node, a_policy

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("run", "warning"),
    [
        pytest.param(LastRun(), "no run yet", id="never"),
        pytest.param(LastRun(began=NOW - MINUTE), "dnm cannot tell whether it ended", id="first"),
        pytest.param(
            LastRun(began=NOW - MINUTE, ended=NOW - 2 * MINUTE),
            "has not ended",
            id="at-work",
        ),
        pytest.param(LastRun(began=NOW - 3 * MINUTE, ended=NOW), "", id="three-intervals"),
        pytest.param(
            LastRun(began=NOW - 4 * MINUTE, ended=NOW - 3 * MINUTE), "is the timer on?", id="late"
        ),
    ],
)
def test_missing_and_unfinished_runs_are_warned_of(run: LastRun, warning: str) -> None:
    lines = warn_of_last_run(a_config(), run, NOW)
    assert [warning in sentence for sentence in lines] == ([True] if warning else [])


@pytest.mark.parametrize(
    ("minutes", "interval", "is_unseen"),
    [
        pytest.param(None, 1, False, id="never-ran"),
        pytest.param(-5, 1, False, id="clock-set-back"),
        pytest.param(1, 1, False, id="as-ever"),
        pytest.param(60, 1, False, id="an-hour"),
        pytest.param(61, 1, True, id="longer"),
        pytest.param(61, 30, False, id="three-long-intervals"),
        pytest.param(91, 30, True, id="longer-than-three"),
    ],
)
def test_gap_without_runs_is_detected(
    minutes: int | None, interval: int, is_unseen: bool, tmp_path: Path
) -> None:
    config = a_config(tmp_path, check_interval=interval * MINUTE)
    if minutes is not None:
        ended = (NOW - minutes * MINUTE).timestamp()
        config.ended_path.touch()
        os.utime(config.ended_path, (ended, ended))
    expected = NOW - (minutes or 0) * MINUTE if is_unseen else None
    assert unseen_since(config, NOW) == expected


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        pytest.param(a_lent_node(), None, id="busy"),
        pytest.param(a_lent_node(idle_since=NOW - MINUTE), 9 * MINUTE, id="idle"),
        pytest.param(a_lent_node(idle_since=NOW - 11 * MINUTE), 0 * MINUTE, id="long-idle"),
        pytest.param(a_lent_node(Phase.RELEASING, idle_since=NOW), None, id="on-its-way"),
        pytest.param(a_lent_node(idle_since=NOW, namespace="old"), None, id="not-monitored"),
        pytest.param(a_lent_node(idle_since=NOW, leaves="manual"), None, id="returned-manually"),
    ],
)
def test_time_until_a_node_is_returned_follows_its_idle_clock(
    entry: LentNode, left: timedelta | None
) -> None:
    policy = a_policy(reversion_idle=10 * MINUTE)
    registry = Registry(nodes={"a001": entry})
    times = times_to_return(a_config(namespaces={"dev": policy}), registry, NOW)
    assert times.get("a001") == left
