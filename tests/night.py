"""The parts of the tests that run at night: `make test` plays a sample of `make test-night`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

night = pytest.mark.night


def sample_by_day(every: int, values: Iterable[Any]) -> list[Any]:
    """Marks all but one parameter in each block of so many for the night. The one by day changes
    its place, so that each value of a table's pairs occurs."""
    return [
        value
        if (number + number // every) % every == 0
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=night)
        for number, value in enumerate(values)
    ]


def by_night(day: int, night_amount: int) -> list[Any]:
    """Returns two parameters: the amounts that are played by day, and by night."""
    return [day, pytest.param(night_amount, marks=night)]
