"""Test that a replay of a history is close to the simulation that wrote it, for some hours of two
workloads of `python -m tests.economy.recorded`."""

from __future__ import annotations

import pytest

from dnm.simulate.values import HOUR
from tests.economy.public_shapes import oscillation
from tests.economy.recorded import compare
from tests.economy.site_shapes import long_tails


@pytest.mark.parametrize("make", [oscillation, long_tails], ids=lambda make: make.__name__)
def test_simulated_history_is_close_to_the_played_run(make) -> None:  # type: ignore[no-untyped-def]
    case = compare(make(1, 12 * HOUR))
    assert case.played.lent > 1 and case.played.waited > 30, "otherwise this shows nothing"
    assert case.is_close, case
