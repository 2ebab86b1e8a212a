"""How many nodes a namespace needed, quarter of an hour by quarter of an hour: what a forecast is
made from. Pure.

The need is what its queue's pods ask for, beyond the queue's own limit, in nodes of the first type;
so it does not depend on what is lent. A point is written where a quarter's highest need differs
from the last one's. Points are kept for six weeks, and no more than a thousand of a namespace.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from dnm.model.config import Forecast, NamespacePolicy
from dnm.model.history import PodKind
from dnm.model.registry import NeedPoint, Needs, Phase, QueueStatus, Registry
from dnm.model.value import Resources
from dnm.plan.known import Known

QUARTER = timedelta(minutes=15)
QUARTERS_OF_A_WEEK = 7 * 24 * 4
MOST_POINTS = 1_000
KEPT_WEEKS = 6
_EPOCH = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday


def quarter_of(moment: datetime) -> int:
    """Returns the number of the quarter of an hour; that of a Monday's first is a multiple of a
    week's."""
    return (moment - _EPOCH) // QUARTER


def begin_of(quarter: int) -> datetime:
    """Returns when a quarter begins."""
    return _EPOCH + quarter * QUARTER


def need_at(needs: Needs, quarter: int) -> int | None:
    """Returns how many nodes were needed in a quarter; None: nobody looked yet, or no more is
    kept."""
    point = point_at(needs, quarter)
    return point.nodes if point else None


def point_at(needs: Needs, quarter: int) -> NeedPoint | None:
    """Returns the point that holds in a quarter."""
    place = bisect_right(needs.points, quarter, key=lambda one: one.quarter)
    return needs.points[place - 1] if place else None


def note_needs(
    known: Known,
    after: Registry,
    statuses: Mapping[str, QueueStatus],
    kinds: Mapping[str, tuple[PodKind, ...]],
) -> Registry:
    """Returns `after` with what is needed now, of the namespaces that have a forecast; what could
    not be read is not noted."""
    noted = {}
    for name, policy in known.config.namespaces.items():
        if policy.forecast is Forecast.OFF:
            continue
        needs = after.needs.get(name, Needs())
        status = statuses.get(policy.queue)
        if status is not None and status.is_demand_known and status.is_judged:
            pods = sum(one.pending + one.bound for one in kinds.get(policy.queue, ()))
            needs = with_point(needs, _point(known, policy, status, pods))
        if needs.points:
            noted[name] = needs
    return msgspec.structs.replace(after, needs=noted)


def with_point(needs: Needs, point: NeedPoint) -> Needs:
    """Returns the needs with one more moment: the highest of its quarter counts."""
    points = needs.points
    last = points[-1] if points else None
    if last is not None and (point.quarter < last.quarter or point.nodes == last.nodes):
        return needs
    if last is not None and point.quarter == last.quarter:
        if point.nodes < last.nodes:
            return needs
        points = points[:-1]
    oldest = point.quarter - KEPT_WEEKS * QUARTERS_OF_A_WEEK
    kept = [one for one in (*points, point) if one.quarter >= oldest]
    before = [one for one in points if one.quarter < oldest]
    if before and (not kept or kept[0].quarter > oldest):
        kept.insert(0, msgspec.structs.replace(before[-1], quarter=oldest))
    return Needs(points=tuple(kept[-MOST_POINTS:]))


def _point(known: Known, policy: NamespacePolicy, status: QueueStatus, pods: int) -> NeedPoint:
    """A queue without limits has no share of its own: what it needs is what it uses of lent nodes,
    and what waits."""
    size = known.config.node_types[policy.node_types[0]].size
    asked = {
        name: status.used.get(name, 0) + status.pending.get(name, 0)
        for name in {**status.used, **status.pending}
    }
    if status.baseline:
        beyond = {name: asked.get(name, 0) - own for name, own in status.baseline.items()}
        nodes = _in_nodes(beyond, size)
    else:
        lent = known.registry.nodes_of(known.config.instance_id, Phase.SERVING).values()
        used = sum(one.namespace == policy.name and one.idle_since is None for one in lent)
        nodes = used + _in_nodes(status.pending, size)
    whole = max(_in_nodes(asked, size), 1)
    return NeedPoint(quarter=quarter_of(known.now), nodes=nodes, pods=-(-pods // whole))


def _in_nodes(amounts: Resources, size: Resources) -> int:
    """So many nodes hold these amounts, of what nodes bring."""
    parts = (
        -(-amount // size[name])
        for name, amount in amounts.items()
        if name != "pods" and amount > 0 and size.get(name, 0) > 0
    )
    return max(parts, default=0)
