"""Parsers and formatters of Kubernetes quantities, as exact integers, and of time spans.

Amounts are in the units of this project: `cpu` in millicores, others in bytes or plain counts. The
grammar is resource.Quantity of apimachinery, rounded up. Spans of time have a unit: 90m, 36h,
7d."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache

from dnm.model.errors import DnmError
from dnm.model.value import Resources

INT64_MAX = 2**63 - 1

UNITS = {"": 1} | {
    suffix: scale
    for power, letter in enumerate("kMGTPE", start=1)
    for suffix, scale in (
        (letter, 1000**power),
        ("Ki" if letter == "k" else f"{letter}i", 1024**power),
    )
}
KUBERNETES = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?((?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?)\Z"
)
FRACTIONS = {"n": -9, "u": -6, "m": -3}
_LONGEST = 256
_FAR_EXPONENT = 64  # beyond it every value but zero is above int64 or below one nano


class QuantityError(DnmError):
    """The error for a text that is not a valid quantity."""


def format_amount(resource: str, amount: int) -> str:
    """Returns an amount as a Kubernetes quantity in the largest exact unit, e.g. `16Gi`."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    best = max((s for s, unit in UNITS.items() if amount % unit == 0), key=lambda s: UNITS[s])
    return f"{amount // UNITS[best]}{best}" if amount else "0"


def amount_text(resource: str, amount: int) -> str:
    """Returns an amount with its resource: `1.5 cpu`, `16G memory`, `2 nvidia.com/gpu`."""
    return f"{number_text(resource, amount)} {resource}"


def number_text(resource: str, amount: int) -> str:
    """Returns an amount as a number for people: cores, gigabytes with `G`, or a plain count."""
    if resource == "cpu":
        return f"{round(amount / 1000, 3):,g}" if amount < 10**6 else f"{amount / 1000:,.0f}"
    if resource in ("memory", "ephemeral-storage"):
        gigabytes = amount / 10**9
        return f"{gigabytes:.3g}G" if gigabytes < 100 else f"{gigabytes:,.0f}G"
    return f"{amount:,}"


@lru_cache(maxsize=65536)
def parse_kubernetes(resource: str, text: str) -> int:
    """Returns the amount of a Kubernetes quantity, rounded away from zero, at most 2^63 - 1.

    The amount is in millicores for `cpu`, else in whole units. Raises QuantityError for invalid
    text, and for text longer than any that the API server prints, since tenants can write it."""
    sign, number, exponent = _split_quantity(resource, text)
    amount = min(scale_up(number, exponent), INT64_MAX)
    return -amount if sign == "-" else amount


def parse_exact(resource: str, text: str) -> int:
    """Returns the amount of a Kubernetes quantity that is a whole number. Raises QuantityError for
    invalid text, and for a fraction of a unit, e.g. of a byte."""
    amount = parse_kubernetes(resource, text)
    _, number, exponent = _split_quantity(resource, text)
    if exponent < 0 and number and (-exponent > _FAR_EXPONENT + _LONGEST or number % 10**-exponent):
        raise QuantityError(f"{text!r} is not a whole number")
    return amount


def _split_quantity(resource: str, text: str) -> tuple[str, int, int]:
    """Splits a Kubernetes quantity into its sign, a whole number, and the power of ten by which the
    number is multiplied."""
    if len(text) > _LONGEST:
        raise QuantityError(f"{text[:20]!r}… is {len(text)} characters long")
    match = KUBERNETES.match(text)
    if match is None or not (match.group(2) or match.group(3)):
        raise QuantityError(f"{text!r} is not a Kubernetes quantity")
    sign, integral, fraction, suffix = match.groups(default="")
    number = int(integral + fraction)
    exponent = -len(fraction) + (3 if resource == "cpu" else 0)
    if suffix in UNITS:
        number *= UNITS[suffix]
    elif suffix in FRACTIONS:
        exponent += FRACTIONS[suffix]
    else:
        exponent += int(suffix[1:])
    return sign, number, exponent


def scale_up(number: int, exponent: int) -> int:
    """Returns number x 10^exponent, rounded up; extreme exponents are limited."""
    if number == 0:
        return 0
    if -exponent > len(str(number)) + _FAR_EXPONENT:
        return 1
    power: int = 10 ** min(abs(exponent), len(str(number)) + _FAR_EXPONENT)
    return number * power if exponent >= 0 else -(-number // power)


def kube_resources(quantities: Mapping[str, str]) -> dict[str, int]:
    """Parses a Kubernetes resource list (name -> quantity) into integer amounts by name."""
    return {name: parse_kubernetes(name, text) for name, text in quantities.items()}


def add_to(total: dict[str, int], amounts: Resources, times: int = 1) -> None:
    """Adds the amounts, multiplied by `times`, to `total`, which it modifies."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s?([smhdw]?)")


def parse_span(text: str, unit: str = "") -> timedelta | None:
    """Parses a time span such as `90s`, `90m`, `2h`, `1d` or `1w`, or a number without a unit,
    which is in `unit`. Returns None for other text."""
    match = _SPAN.fullmatch(text)
    used = match[2] or unit if match else ""
    if match is None or not used:
        return None
    return timedelta(seconds=float(match[1]) * _SECONDS[used])
