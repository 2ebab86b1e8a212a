"""Reads amounts as Kubernetes and as YuniKorn write them, apart from dnm's own reading of both.

Kubernetes: resource.Quantity of apimachinery. YuniKorn: pkg/common/resources/quantity.go, which
takes whole numbers only. What comes out is in YuniKorn's units: `vcore` in thousandths, everything
else in bytes or pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

LARGEST = 2**63 - 1
_SMALLEST = Fraction(1, 10**9)
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SUFFIXES = {
    **{name: Fraction(1000**power) for name, power in _POWERS.items()},
    **{f"{name.upper()}i": Fraction(1024**power) for name, power in _POWERS.items() if power},
    **{"n": _SMALLEST, "u": Fraction(1, 10**6), "m": Fraction(1, 10**3)},
}
_OF_KUBERNETES = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?[0-9]+))"
)
_OF_YUNIKORN = re.compile(r"([0-9]+)[ \t\n\f\r]*((?:[mkKMGTPE]i?)?)")
_GO_SPACE = (  # strings.TrimSpace: Unicode's White_Space, which Python's strip() adds to
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_FAR = 60  # powers of ten: beyond it an exponent is only large or only small


class AmountError(ValueError):
    """The text is no amount; the message is the one that the server would give."""


def kubernetes_amount(text: str) -> Fraction:
    """Reads a resource.Quantity exactly: what is smaller than a billionth is rounded away from
    zero, what is larger than an int64 is held there. Raises AmountError."""
    match = _OF_KUBERNETES.fullmatch(text)
    if match is None:
        raise AmountError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, whole, decimals, suffix, exponent = match.groups(default="")
    amount = Fraction(int(f"{whole}{decimals}" or "0"), 10 ** len(decimals))
    power = max(-_FAR, min(_FAR, int(exponent or "0")))
    amount *= Fraction(10) ** power * _SUFFIXES[suffix]
    amount = min(ceil(amount / _SMALLEST) * _SMALLEST, Fraction(LARGEST))
    return -amount if sign == "-" else amount


def canonical_amount(text: str) -> str:
    """Writes a resource.Quantity as the API server prints it back: the largest unit that leaves no
    fraction, thousands unless it was written in Ki and is 1024 or more. Raises AmountError."""
    amount, base = kubernetes_amount(text), 1000
    if text.endswith("i") and abs(amount) >= 1024 and amount.denominator == 1:
        units, base = ["", *(name for name in _SUFFIXES if name.endswith("i"))], 1024
    elif re.search("[eE][+-]?[0-9]", text):
        units = [f"e{power}" if power else "" for power in range(-9, 19, 3)]
    else:
        units = ["n", "u", "m", *_POWERS]
    pieces = int(amount if base == 1024 else amount / _SMALLEST)
    while pieces and pieces % base == 0 and len(units) > 1:
        pieces, units = pieces // base, units[1:]
    return f"{pieces}{units[0]}" if pieces else "0"


def yunikorn_units(requests: Mapping[str, Any]) -> dict[str, int]:
    """Turns a ResourceList into YuniKorn's names and whole numbers, rounded away from zero:
    MilliValue() of cpu, Value() of the rest."""
    found = {}
    for name, text in requests.items():
        amount = kubernetes_amount(str(text))
        is_cpu = name == "cpu"
        pieces = min(ceil(abs(amount) * (1000 if is_cpu else 1)), LARGEST)
        found["vcore" if is_cpu else name] = -pieces if amount < 0 else pieces
    return found


def configured_amount(name: str, text: str) -> int:
    """Reads one value of a `max`, `guaranteed` or `maxresources`. Raises AmountError."""
    match = _OF_YUNIKORN.fullmatch(text.strip(_GO_SPACE))
    if match is None:
        raise AmountError("invalid quantity")
    number, suffix = int(match[1]), match[2]
    if number > LARGEST:
        raise AmountError("invalid quantity: overflow")
    is_cpu = name == "vcore"
    if suffix not in _SUFFIXES or (suffix == "m" and not is_cpu):
        raise AmountError("invalid suffix")
    amount = number * _SUFFIXES[suffix] * (1000 if is_cpu else 1)
    if amount > LARGEST:
        raise AmountError("invalid quantity: overflow")
    return int(amount)


def configured_amounts(texts: Mapping[str, str] | None) -> dict[str, int]:
    """Reads a whole map of a queue document. Raises AmountError."""
    return {name: configured_amount(name, text) for name, text in (texts or {}).items()}


def total(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Adds up by type; a sum stays within an int64, as YuniKorn's do."""
    found: dict[str, int] = {}
    for entry in amounts:
        for name, amount in entry.items():
            found[name] = min(found.get(name, 0) + amount, LARGEST)
    return found
