"""Pods that stayed pending beside an idle node with capacity and quota, so for another cause."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dnm.demand.demand import Demand
from dnm.demand.pending import Created, PendingGroup, count_created, text_time
from dnm.model.observed import StalledPods
from dnm.model.queue_path import is_under
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.queue_sizing import Sizing


def find_stalled(
    demand: Demand, node_supply: NodeSupply, base: Sizing, bounds: Mapping[str, datetime]
) -> dict[str, dict[str, StalledPods]]:
    """Returns, by queue, the pods that stayed pending although they had capacity and quota on an
    idle node for its whole idle time. `bounds`: queue -> since when its candidates are idle.

    A queue is skipped if a node joined it more recently, or is about to: then its pods may only
    just have got what they needed. It is also skipped while its first Workload lacks nodes."""
    stalled: dict[str, dict[str, StalledPods]] = {}
    fits = base.fits()
    for queue, bound in sorted(bounds.items()):
        if (
            any(node.since > bound for node in node_supply.lent.values() if node.queue == queue)
            or any(incoming.queue == queue for incoming in node_supply.incoming)
            or base.of(queue).first_lacks
        ):
            continue
        of_queue = stalled[queue] = {}
        needs = base.of(queue).wanted or base.of(queue).granted or base.of(queue).incomplete
        for group in demand.groups:
            count = count_created(group.created, text_time(bound))
            # It has capacity and quota, or no node can help it now.
            lacks_nothing = fits.get(group.fingerprint, 0) > 0 or not needs
            if count and lacks_nothing and is_under(group.queue, queue):
                of_queue[group.fingerprint] = StalledPods(
                    count=count, until=_newest_of_oldest(group, count)
                )
    return stalled


def without_stalled(demand: Demand, stalled: Mapping[str, Mapping[str, StalledPods]]) -> Demand:
    """Returns the demand without these pods, which wait for another cause than a lack of nodes."""
    left_out = {
        name: stalled_pods.count
        for of_queue in stalled.values()
        for name, stalled_pods in of_queue.items()
    }
    kept = (_without_oldest(group, left_out.get(group.fingerprint, 0)) for group in demand.groups)
    groups = tuple(group for group in kept if group is not None)
    return msgspec.structs.replace(demand, groups=groups)


def _newest_of_oldest(group: PendingGroup, count: int) -> str:
    """Returns the creation time of the youngest among the `count` oldest pods of a group."""
    return group.oldest if count < 1 else _drop_oldest(group.created, count - 1)[0][0]


def _without_oldest(group: PendingGroup, count: int) -> PendingGroup | None:
    """Returns a copy of the group without its `count` oldest pods; None if no pod remains."""
    if count >= group.total:
        return None
    return msgspec.structs.replace(
        group,
        created=_drop_oldest(group.created, count),
        total=group.total - count,
        count=max(0, group.count - count),
    )


def _drop_oldest(created: Created, count: int) -> Created:
    """Returns the creation times that remain without those of the `count` oldest pods."""
    left = []
    for instant, many in created:
        removed = min(count, many)
        count -= removed
        if many > removed:
            left.append((instant, many - removed))
    return tuple(left)
