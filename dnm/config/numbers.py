"""Parsers of numbers, durations, shares and percentages, one value at a time, like `values.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from dnm.config import names, values
from dnm.config.values import _FALSE, TRUE
from dnm.model.share import Floor, Share

T = TypeVar("T", int, float)


def _number(
    pattern: str, wrong: str, least: int, most: int, make: Callable[[str], T]
) -> Callable[[str], T]:
    """Returns a parser of numbers from `least` to `most`. `wrong` is its error for another text."""

    def parse(text: str) -> T:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"is {wrong}; write one from {least} to {most}")
        if not least <= (number := make(text)) <= most:
            raise ValueError(f"is out of range; write a number from {least} to {most}")
        return number

    return parse


def integer(least: int, most: int, of: str = "") -> Callable[[str], int]:
    """Returns a parser of decimal integers. Its error says what they count, e.g. ` of hours`."""
    return _number("[+-]?[0-9]{1,18}", f"not a whole number{of}", least, most, int)


def amount(least: int, most: int) -> Callable[[str], float]:
    """Returns a parser of numbers with an optional fraction."""
    return _number(r"[0-9]{1,12}(\.[0-9]{1,6})?", "not a number", least, most, float)


def span(unit: str, least: int, most: int) -> Callable[[str], timedelta]:
    """Returns a parser of durations in whole units: minutes, hours or days. Days may end in `d`."""
    parse = integer(least, most, f" of {unit}")
    return lambda text: timedelta(
        **{unit: parse(text.removesuffix("d") if unit == "days" else text)}
    )


def cap(text: str) -> int | Share:
    """Returns a cap: a number of nodes, or a percentage of the nodes in Slurm."""
    if "%" not in text:
        return integer(0, 100_000)(text)
    percent = _percent(text)
    if percent is None:
        raise ValueError("is not a percentage of batch nodes; write one from 0% to 100%, e.g. 25%")
    return Share(percent=percent)


def reserved_ahead(text: str) -> timedelta:
    """Returns how many days ahead dnm reserves nodes. `true` is seven, `false` or 0 is none."""
    if text.lower() in _FALSE or text == "0":
        return timedelta()
    try:
        return timedelta(days=7) if text.lower() in TRUE else span("days", 2, 365)(text)
    except ValueError as error:
        raise ValueError("is not a number of days; write true for seven, or 2 to 365") from error


def share(text: str) -> float:
    """Returns a share: a number above 0 and up to 1."""
    if percent := re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,7})?) ?%{1,2}", text):
        raise ValueError(f"is a percentage; write {float(percent[1]) / 100:g}")
    is_number = text and re.fullmatch(r"[0-9]{0,3}(\.[0-9]{1,9})?", text)
    if not is_number or not 0 < float(text) <= 1:
        why = "is out of range" if is_number else "is not a share"
        raise ValueError(f"{why}; write a number above 0 and up to 1, e.g. 0.95")
    return float(text)


def floors(text: str) -> dict[str, object]:
    """Returns the numbers of nodes that Slurm must keep, from e.g. `10, b: 5%, partition p: 2`."""
    fields: dict[str, object] = {}
    types: dict[str, Floor] = {}
    partitions: dict[str, Floor] = {}
    seen: set[str] = set()
    for entry in values.names(text):
        of, _, amount = entry.rpartition(":")
        kind, _, name = (of := " ".join(of.split())).rpartition(" ")
        if of in seen:
            raise ValueError(f"has two floors for {of or 'all'}; write one")
        seen.add(of)
        if not name:
            fields["batch_floor"] = floor(amount.strip())
        elif kind == "partition":
            partitions[names.partition_name(name)] = floor(amount.strip())
        elif kind:
            raise ValueError(f"has '{of}'; write TYPE: 5, or partition NAME: 5")
        else:
            types[name] = floor(amount.strip())
    return {**fields, "type_floors": types, "partition_floors": partitions}


def floor(text: str) -> Floor:
    """Returns a minimum of nodes: a number, or a percentage of all nodes."""
    if re.fullmatch(r"[0-9]{1,6}", text):
        return Floor(nodes=int(text))
    percent = _percent(text)
    if percent is None:
        raise ValueError("is not a floor; write a number of nodes or a percentage, e.g. 10 or 5%")
    return Floor(percent=percent)


def _percent(text: str) -> float | None:
    """Returns the percentage in the text, from 0 to 100, or None if it is another text."""
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?) ?%{1,2}", text)
    return None if match is None or float(match[1]) > 100 else float(match[1])
