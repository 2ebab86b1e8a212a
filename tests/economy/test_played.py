"""Test that a replay by the simulator is close to the played result. It plays two of the eleven
workloads of `python -m tests.economy.played`, for two hours in the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm.simulate.values import DAY
from tests.economy.played import busiest, play
from tests.economy.public_shapes import heavy_tails, oscillation
from tests.night import night


@pytest.mark.parametrize(
    "make", [oscillation, pytest.param(heavy_tails, marks=night)], ids=lambda make: make.__name__
)
def test_replayed_history_is_close_to_the_played_run(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    case = play(busiest(make(1, DAY), 2.0), tmp_path)
    assert case.played.lent > 1 and case.played.waited > 100, "else this shows nothing"
    assert case.is_close, case
