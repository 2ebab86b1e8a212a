"""Numbers and durations, one value at a time, as `values.py` reads texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

from dnm.config.shares import cap_share
from dnm.config.values import _FALSE, TRUE
from dnm.model.share import Share


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A parser of decimal integers from `least` to `most`."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise ValueError(f"is not a whole number; write one from {least} to {most}")
        if not least <= int(text) <= most:
            raise ValueError(f"is out of range; write a number from {least} to {most}")
        return int(text)

    return parse


def minutes(least: int, most: int) -> Callable[[str], timedelta]:
    """A parser of durations in whole minutes."""

    def parse(text: str) -> timedelta:
        return timedelta(minutes=whole_number(least, most)(text))

    return parse


def hours(least: int, most: int) -> Callable[[str], timedelta]:
    """A parser of durations in whole hours."""

    def parse(text: str) -> timedelta:
        return timedelta(hours=whole_number(least, most)(text))

    return parse


def amount(least: int, most: int) -> Callable[[str], float]:
    """A parser of numbers from `least` to `most`, with a fraction where somebody likes one."""

    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text):
            raise ValueError(f"is no number; write one from {least} to {most}")
        if not least <= float(text) <= most:
            raise ValueError(f"is out of range; write a number from {least} to {most}")
        return float(text)

    return parse


def days(least: int, most: int) -> Callable[[str], timedelta]:
    """A parser of durations in whole days, with or without the d."""

    def parse(text: str) -> timedelta:
        return timedelta(days=whole_number(least, most)(text.removesuffix("d")))

    return parse


def cap(text: str) -> int | Share:
    """A number of nodes, or a percentage of those that the batch side has."""
    return cap_share(text) if "%" in text else whole_number(0, 100_000)(text)


def booked_ahead(text: str) -> timedelta:
    """So many days ahead; `true`: seven, `false` or 0: not at all."""
    if text.lower() in _FALSE or text == "0":
        return timedelta()
    try:
        return timedelta(days=7) if text.lower() in TRUE else days(2, 365)(text)
    except ValueError as error:
        raise ValueError("is no number of days; write true for seven, or 2 to 365") from error
