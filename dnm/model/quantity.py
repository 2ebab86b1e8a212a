"""Exact integers from the two quantity grammars, and back to YuniKorn's.

Amounts are in YuniKorn's units: `vcore` in millicores, others in bytes or plain counts. YuniKorn's
grammar is `parse` of pkg/common/resources/quantity.go (the same since 1.0). Kubernetes' grammar is
resource.Quantity of apimachinery, rounded up as the scheduler's shim rounds it. Spans of time have
a unit: 90m, 36h, 7d.
"""

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
_OF_VCORE = {"m": 1} | {suffix: 1000 * unit for suffix, unit in UNITS.items()}
_GO_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    chr(point) for point in range(0x2000, 0x200B)
)
_YUNIKORN = re.compile(r"([0-9]+)([ \t\n\f\r]*)((?:[mkKMGTPE]i?)?)\Z")
KUBERNETES = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?((?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?)\Z"
)
FRACTIONS = {"n": -9, "u": -6, "m": -3}
_LONGEST = 256
_FAR_EXPONENT = 64  # beyond it every value but zero is above int64 or below one nano


class QuantityError(DnmError):
    """A text that is not a quantity of its grammar."""


@lru_cache(maxsize=65536)
def parse_yunikorn(resource: str, text: str) -> int:
    """Returns the amount of a value in queues.yaml. Raises QuantityError with YuniKorn's own
    message.

    Only `vcore` knows the suffix `m`; a bare `vcore` counts cores.
    """
    match = _YUNIKORN.match(text.strip(_GO_SPACE))
    if match is None:
        raise QuantityError("invalid quantity")
    number, _, suffix = match.groups()
    if len(number.lstrip("0")) > 19 or int(number) > INT64_MAX:
        raise QuantityError("invalid quantity: overflow")
    unit = _unit(resource, suffix)
    if unit is None:
        raise QuantityError("invalid suffix")
    amount = int(number) * unit
    if amount > INT64_MAX:
        raise QuantityError("invalid quantity: overflow")
    return amount


def _unit(resource: str, suffix: str) -> int | None:
    """Returns the value of a suffix, or None for a suffix that the resource does not know."""
    return (_OF_VCORE if resource == "vcore" else UNITS).get(suffix)


def format_yunikorn(resource: str, amount: int, like: str) -> str:
    """Returns `amount` in the unit and spacing of `like` if exact, else in the largest exact unit.

    `like` is a legal value of the same resource. Nothing else changes the result, so equal amounts
    have equal texts. Raises QuantityError for amounts that YuniKorn cannot hold.
    """
    if not 0 <= amount <= INT64_MAX:
        raise QuantityError(f"{amount} of {resource} is outside what YuniKorn can count")
    core = like.strip(_GO_SPACE)
    match = _YUNIKORN.match(core)
    unit = _unit(resource, match.group(3)) if match else None
    if match is None or unit is None:
        raise QuantityError(f"{like!r} is no quantity of {resource}")
    if amount % unit == 0:
        before, after = like.split(core, 1)
        return f"{before}{amount // unit}{match.group(2)}{match.group(3)}{after}"
    return format_amount(resource, amount)


def format_amount(resource: str, amount: int) -> str:
    """Returns the amount in the largest exact unit; `vcore` in cores or millicores."""
    if resource == "vcore":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    best = max((s for s, unit in UNITS.items() if amount % unit == 0), key=lambda s: UNITS[s])
    return f"{amount // UNITS[best]}{best}" if amount else "0"


@lru_cache(maxsize=65536)
def parse_kubernetes(resource: str, text: str) -> int:
    """Returns the amount of a Kubernetes quantity, rounded away from zero, at most 2^63 - 1.

    `resource` is a name of either system: `cpu` and `vcore` give millicores, others whole units.
    Raises QuantityError for other text, and for a quantity that is longer than the API server
    prints: tenants write annotations.
    """
    sign, number, exponent = _split_quantity(resource, text)
    amount = min(scale_up(number, exponent), INT64_MAX)
    return -amount if sign == "-" else amount


def parse_exact(resource: str, text: str) -> int:
    """Returns the amount of a Kubernetes quantity that needs no rounding. Raises QuantityError for
    other text, and for a fraction of a unit, e.g. of a byte."""
    amount = parse_kubernetes(resource, text)
    _, number, exponent = _split_quantity(resource, text)
    if exponent < 0 and number and (-exponent > _FAR_EXPONENT + _LONGEST or number % 10**-exponent):
        raise QuantityError(f"{text!r} is no whole number")
    return amount


def _split_quantity(resource: str, text: str) -> tuple[str, int, int]:
    """Splits a Kubernetes quantity into its sign, a whole number, and a power of ten of the
    unit."""
    if len(text) > _LONGEST:
        raise QuantityError(f"{text[:20]!r}… is {len(text)} characters long")
    match = KUBERNETES.match(text)
    if match is None or not (match.group(2) or match.group(3)):
        raise QuantityError(f"{text!r} is no Kubernetes quantity")
    sign, integral, fraction, suffix = match.groups(default="")
    number = int(integral + fraction)
    exponent = -len(fraction) + (3 if resource in ("cpu", "vcore") else 0)
    if suffix in UNITS:
        number *= UNITS[suffix]
    elif suffix in FRACTIONS:
        exponent += FRACTIONS[suffix]
    else:
        exponent += int(suffix[1:])
    return sign, number, exponent


def scale_up(number: int, exponent: int) -> int:
    """Returns number x 10^exponent, rounded up; exponents that do not change it are cut."""
    if number == 0:
        return 0
    if -exponent > len(str(number)) + _FAR_EXPONENT:
        return 1
    power: int = 10 ** min(abs(exponent), len(str(number)) + _FAR_EXPONENT)
    return number * power if exponent >= 0 else -(-number // power)


def kube_resources(quantities: Mapping[str, str]) -> dict[str, int]:
    """Returns a Kubernetes resource list under YuniKorn's names (`cpu` becomes `vcore`)."""
    return {
        "vcore" if name == "cpu" else name: parse_kubernetes(name, text)
        for name, text in quantities.items()
    }


def add_to(total: dict[str, int], amounts: Resources, times: int = 1) -> None:
    """Adds amounts to a total, `times` times."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s?([smhdw]?)")


def parse_span(text: str, unit: str = "") -> timedelta | None:
    """Returns the span of `90s`, `90m`, `2h`, `1d` or `1w`, or of a number in `unit`s; None for
    other text."""
    match = _SPAN.fullmatch(text)
    used = match[2] or unit if match else ""
    if match is None or not used:
        return None
    return timedelta(seconds=float(match[1]) * _SECONDS[used])
