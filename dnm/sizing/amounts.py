"""Amounts of resources as people read them in a verdict. Cores and gigabytes, shortly."""

from __future__ import annotations


def amount_text(resource: str, amount: int) -> str:
    """Writes an amount and its resource: `1.5 vcore`, `16G memory`, `2 nvidia.com/gpu`."""
    return f"{number_text(resource, amount)} {resource}"


def number_text(resource: str, amount: int) -> str:
    """Writes an amount (millicores, bytes, a count) in cores, in gigabytes, or as it is."""
    if resource == "vcore":
        return f"{round(amount / 1000, 3):,g}" if amount < 10**6 else f"{amount / 1000:,.0f}"
    if resource in ("memory", "ephemeral-storage"):
        gigabytes = amount / 10**9
        return f"{gigabytes:.3g}G" if gigabytes < 100 else f"{gigabytes:,.0f}G"
    return f"{amount:,}"
