"""What this instance asks of the queue document, from the record and from demand. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.demand.demand import Demand
from dnm.model.config import Config
from dnm.model.queue_edit import QueueWants
from dnm.model.registry import Phase, Registry
from dnm.model.value import Resources


def queue_wants(
    config: Config,
    remembered: Registry,
    nodes: Mapping[str, Mapping[str, Resources]],
    floors: Mapping[str, Resources] | None = None,
) -> QueueWants:
    """Returns what this instance asks while `nodes` serve (`serving_sizes`). `remembered` has the
    ledger as the last run left it, in case it is lost."""
    return QueueWants(
        instance_id=config.instance_id,
        nodes=nodes,
        floors=floors or {},
        remembered=_remembered_ledger(remembered),
        adjust_guaranteed=config.adjust_guaranteed,
        allowed_prefixes=config.allowed_queue_prefixes,
    )


def _remembered_ledger(remembered: Registry) -> str | None:
    """A record of an older dnm has no ledger; where no queue of it had a lent node, that is as good
    as an empty one."""
    last = remembered.last_run
    if last.ledger is None and last.queues:
        statuses = last.queues.values()
        is_nothing_lent = all(one.is_judged and not any(one.lent.values()) for one in statuses)
        return "" if is_nothing_lent else None
    return last.ledger


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
