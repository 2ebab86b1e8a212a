"""What is left to the night: `make test` plays a sample of what `make test-night` plays whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

night = pytest.mark.night


def one_in(every: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of which one in each block of so many is played by day, in turns another of it: so
    that of the pairs of a table each value comes up."""
    return [
        value
        if (number + number // every) % every == 0
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=night)
        for number, value in enumerate(values)
    ]


def by_night(day: int, whole: int) -> list[Any]:
    """Two parameters: how much is played by day, and by night."""
    return [day, pytest.param(whole, marks=night)]
