"""What this instance asks of the queue document, from the record and from demand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dnm.demand.demand import Demand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.plan import SetQueueLimits
from dnm.model.registry import Phase, Registry
from dnm.queues.document import LimitPlace
from dnm.queues.edit import QueueWants


def queue_wants(config: Config, registry: Registry, action: SetQueueLimits) -> QueueWants:
    """What the action asks of the queue document, with what the ledger may need to be rebuilt."""
    return QueueWants(
        instance_id=config.instance_id,
        nodes=action.queues,
        floors=action.floors,
        remembered={
            path: status for path, status in registry.last_run.queues.items() if status.is_judged
        },
        adjust_guaranteed=config.adjust_guaranteed,
        allowed_prefixes=config.allowed_queue_prefixes,
    )


def set_queue_limits(config: Config, registry: Registry, demand: Demand) -> SetQueueLimits:
    """The queue edit as an action: what serves now, and how low a limit may go."""
    return SetQueueLimits(queues=serving_sizes(config, registry), floors=floors(demand))


def serving_sizes(config: Config, registry: Registry) -> dict[str, dict[str, dict[str, int]]]:
    """Queue -> node -> recorded size, of exactly the nodes of this instance that serve now."""
    queues: dict[str, dict[str, dict[str, int]]] = {}
    for name, entry in registry.nodes_of(config.instance_id, Phase.SERVING).items():
        queues.setdefault(entry.queue, {})[name] = dict(entry.counted)
    return queues


def floors(demand: Demand) -> dict[str, dict[str, int]]:
    """What no limit may shrink below: allocated now, and the largest gang application."""
    return {
        path: {
            name: max(queue.used.get(name, 0), queue.largest_gang.get(name, 0))
            for name in {*queue.used, *queue.largest_gang}
        }
        for path, queue in demand.queues.items()
    }


def with_fixed(
    limits: Mapping[str, QueueLimits], frozen: Iterable[LimitPlace]
) -> Mapping[str, QueueLimits]:
    """Marks the limits that a person set below what is lent: no node raises or lowers them."""
    fixed = {(place.queue, place.resource) for place in frozen if place.kind == "max"}
    if not fixed:
        return limits
    return {
        path: msgspec.structs.replace(
            one, fixed=frozenset(name for name in one.max if (path, name) in fixed)
        )
        for path, one in limits.items()
    }
