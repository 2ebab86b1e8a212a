"""Spans of time as people write them: 90m, 36h, 7d."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s?([smhdw]?)")


def parse_span(text: str, unit: str = "") -> timedelta | None:
    """Returns how long `90s`, `90m`, `2h`, `1d` or `1w` are, and a number alone in `unit`s; None
    for anything else."""
    match = _SPAN.fullmatch(text)
    used = match[2] or unit if match else ""
    if match is None or not used:
        return None
    return timedelta(seconds=float(match[1]) * _UNITS[used])
