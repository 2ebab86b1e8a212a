"""Counts of nodes that serve a `dnm lend` order or a minimum, join for it, or are missing. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.orders import LendOrder
from dnm.model.registry import Registry

_HERE = (Phase.JOINING, Phase.SERVING)


def nodes_of_order(order: LendOrder, registry: Registry) -> list[str]:
    """Returns the nodes that serve, or are joining for, an administrator's `dnm lend` order."""
    return [
        name
        for name, entry in sorted(registry.nodes.items())
        if entry.order == order.id and entry.phase in _HERE and entry.leaves is None
    ]


def count_missing(order: LendOrder, registry: Registry) -> int:
    """Returns how many nodes of a `dnm lend` order neither serve it nor are incoming."""
    requests = (
        request
        for request in registry.requests
        if request.order == order.id and not request.is_abandoned
    )
    incoming = sum(request.count for request in requests)
    return max(order.count - len(nodes_of_order(order, registry)) - incoming, 0)


def count_missing_of_floor(queue: str, registry: Registry) -> int:
    """Returns how many nodes a queue lacks of its min_nodes, which events may raise. Incoming nodes
    are not missing."""
    status = registry.last_run.queues.get(queue)
    if status is None or not status.floor:
        return 0
    nodes = registry.nodes.values()
    count = sum(node.queue == queue and node.phase in _HERE for node in nodes)
    count += sum(
        request.count
        for request in registry.requests
        if request.queue == queue and not request.is_abandoned
    )
    return max(status.floor - count, 0)


def count_missing_nodes(
    config: Config, registry: Registry, now: datetime
) -> Counter[tuple[str, str]]:
    """Returns how many nodes each queue lacks, by (queue, `floor` or `order` as the cause)."""
    missing = Counter(
        {(queue, "floor"): count_missing_of_floor(queue, registry) for queue in config.queues}
    )
    for order in registry.orders:
        if order.namespace in config.namespaces and now < order.until:
            queue = config.namespaces[order.namespace].queue
            missing[queue, "order"] += count_missing(order, registry)
    return missing
