"""Spans as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dnm.model.quantity import parse_span

SPANS = {
    "90s": 90, "90m": 5400, "2h": 7200, "1d": 86_400, "1w": 604_800, "1.5h": 5400, "36 h": 129_600,
    "45": None, "": None, "m": None, "2y": None, "-1h": None, "1h30m": None, "1e3s": None,
}  # fmt: skip


@pytest.mark.parametrize("text", SPANS)
def test_a_span(text: str) -> None:
    seconds = SPANS[text]
    assert parse_span(text) == (None if seconds is None else timedelta(seconds=seconds))


def test_a_number_alone_has_the_unit_of_its_option() -> None:
    assert parse_span("45", "m") == timedelta(minutes=45)
    assert parse_span("45s", "m") == timedelta(seconds=45)
