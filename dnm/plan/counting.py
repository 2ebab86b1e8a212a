"""What serves a person's order, what is on its way, and what of it is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dnm.model.registry import ConversionRequest, LendOrder, Phase, Registry

_HERE = (Phase.JOINING, Phase.SERVING)


def nodes_of_order(order: LendOrder, registry: Registry) -> list[str]:
    """Returns the nodes that serve an order, or are about to."""
    return [
        name
        for name, entry in sorted(registry.nodes.items())
        if entry.order == order.id and entry.phase in _HERE and entry.leaves is None
    ]


def requests_of_order(order: LendOrder, registry: Registry) -> Iterator[ConversionRequest]:
    """Yields the requests that something may still come of."""
    for request in registry.requests:
        if request.order == order.id and not request.is_given_up:
            yield request


def count_missing(order: LendOrder, registry: Registry) -> int:
    """Returns how many nodes of an order neither serve it nor are on their way."""
    coming = sum(request.count for request in requests_of_order(order, registry))
    return max(order.count - len(nodes_of_order(order, registry)) - coming, 0)
