"""Marks for tests that run only at night: `make test` plays a sample of `make test-night`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

night = pytest.mark.night


def sample_by_day(every: int, values: Iterable[Any]) -> list[Any]:
    """Returns the parameters, of which only one in each block of `every` runs by day too. Its place
    in the block changes, so that pairs in a table vary in both values."""
    return [
        value
        if (number + number // every) % every == 0
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=night)
        for number, value in enumerate(values)
    ]


def by_night(day: int, night_amount: int) -> list[Any]:
    """Returns two parameters of a test: its amount of work by day, and by night."""
    return [day, pytest.param(night_amount, marks=night)]
