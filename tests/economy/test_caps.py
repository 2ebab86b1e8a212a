"""A short version of the measurement of caps, `python -m tests.economy DAYS SEEDS caps`."""

from __future__ import annotations

from dnm.simulate.values import DAY
from tests.economy.caps import list_caps, measure_cap


def test_percentage_cap_bounds_the_lent_nodes() -> None:
    none, some, most = (measure_cap(0.7, percent, DAY / 2, (1,)) for percent in (0, 5, 75))
    assert none.lent == 0 < some.lent < most.lent
    assert none.pods > some.pods > most.pods
    assert len(list(list_caps([none, some, most]))) == 5
