"""Amounts of resources, formatted for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from dnm.model.quantity import format_amount

_LONGEST_EXACT = 6  # characters of an amount that people read exactly, e.g. 1024G


def amounts(resources: Mapping[str, int]) -> str:
    """Returns resource amounts as text, omitting `pods`, e.g. `128 cpu, 256G memory`."""
    return ", ".join(
        f"{shown_amount(name, resources[name])} {name}" for name in order_resources(resources)
    )


def order_resources(names: Iterable[str]) -> list[str]:
    """Returns the names of resources for display: `cpu`, then the others sorted, without `pods`."""
    return sorted(set(names) - {"pods"}, key=lambda name: (name != "cpu", name))


@lru_cache(4096)  # many lines of a history contain the same amounts
def shown_amount(resource: str, amount: int) -> str:
    """Returns an amount as text for people: cores, bytes in decimal units, or a count. An amount
    with few digits is exact; a longer one is rounded and begins with `~`."""
    if resource == "cpu":
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if resource != "memory":
        exact = str(amount)
    else:
        exact = f"{amount // 10**9}G" if amount % 10**9 == 0 else format_amount(resource, amount)
    # Always decimal, since a reader cannot compare 251Gi with 270G at a glance.
    is_decimal = resource != "memory" or not exact.endswith("i")
    if amount < 10**6 or (is_decimal and len(exact) <= _LONGEST_EXACT):
        return exact
    return f"~{amount / 10**9:.1f}G" if amount >= 10**8 else f"~{amount / 10**6:.1f}M"
