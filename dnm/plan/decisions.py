"""The numbers behind each queue's verdict, for the record. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dnm.model.cluster import QueueLimits
from dnm.model.history import Decision
from dnm.model.plan import Verdict
from dnm.model.queue_path import is_under, known_lineage
from dnm.model.registry import QueueStatus
from dnm.model.value import Resources
from dnm.plan.conversions import Converted
from dnm.plan.known import Known
from dnm.sizing.budget import NodePool
from dnm.sizing.queue_sizing import QueueSizing

MOST_PODS = 10  # named


def headroom(
    queues: Mapping[str, QueueLimits], used: Mapping[str, Resources], path: str
) -> dict[str, int]:
    """What a queue may still use of each resource that it or a queue above it limits; root's size
    is the cluster's and not among them."""
    room: dict[str, int] = {}
    for above in known_lineage(path, queues):
        for resource, amount in queues[above].max.items():
            rest = max(amount - used.get(above, {}).get(resource, 0), 0)
            room[resource] = min(rest, room.get(resource, rest))
    return room


def list_decisions(
    converted: Converted, statuses: Mapping[str, QueueStatus]
) -> dict[str, Decision]:
    """Returns the numbers of every monitored queue, as the run found and decided them."""
    known, sizing = converted.known, converted.sizing
    sizings = sizing.queues if sizing else {}
    demand = known.demand
    used = {path: one.used for path, one in demand.queues.items()} if demand else {}
    return {
        queue: _decision(known, status, sizings.get(queue, QueueSizing(queue=queue)), used)
        for queue, status in statuses.items()
    }


def _decision(
    known: Known, status: QueueStatus, sizing: QueueSizing, used: Mapping[str, Resources]
) -> Decision:
    queue = sizing.queue
    is_limited = known.demand is not None and queue in known.limits
    return Decision(
        pending_pods=status.pending_pods,
        pending=status.pending,
        used=status.used,
        limit=known.limits[queue].max if queue in known.limits else {},
        headroom=headroom(known.limits, used, queue) if is_limited else {},
        wanted=_by_type(sizing.wanted),
        # What a brake, a pause or another host kept from being lent was not granted.
        granted=_by_type(sizing.granted) if status.verdict == Verdict.CONVERT.value else {},
        no_room=sizing.no_room,
        no_quota=sizing.no_quota,
        pods=_lacking(known, sizing),
    )


def _by_type(nodes: Mapping[NodePool, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for pool, count in nodes.items():
        counts[pool.node_type] += count
    return dict(sorted(counts.items()))


def _lacking(known: Known, sizing: QueueSizing) -> tuple[str, ...]:
    """Pods of the groups that do not all have room and quota, the largest groups first."""
    if known.demand is None:
        return ()
    lacking = [
        group
        for group in known.demand.groups
        if is_under(group.queue, sizing.queue)
        and group.count > sizing.fits.get(group.fingerprint, 0)
    ]
    lacking.sort(key=lambda group: (-group.count, group.fingerprint))
    names = [f"{group.namespace}/{name}" for group in lacking for name in group.names]
    return tuple(names[:MOST_PODS])
