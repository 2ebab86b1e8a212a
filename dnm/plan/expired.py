"""What a person has said for a time, and the time is over. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dnm.model.registry import Registry


def without_expired(registry: Registry, now: datetime) -> Registry:
    """Returns the registry without what a person has said for a time that is over."""
    over = {name for name, one in registry.holds.items() if not one.is_in_force(now)}
    return msgspec.structs.replace(
        registry,
        held=tuple(name for name in registry.held if name not in over),
        holds={name: one for name, one in registry.holds.items() if name not in over},
        excluded={name: one for name, one in registry.excluded.items() if one.is_in_force(now)},
        orders=tuple(order for order in registry.orders if now < order.until),
    )
