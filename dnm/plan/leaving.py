"""Which serving nodes are fenced although their queue uses them, so that they empty by themselves.
Pure.

The rule: a node that leaves is fenced, its pods run on, its queue counts it until it is empty, and
then it goes back whatever its queue wants. `dnm hold` keeps it, and so does the end of the reason:
then the fence comes off. The reasons are rules of their own: `max_lend`, `node_hours`, `reclaim`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dnm.model.config import WhenBatchWaits
from dnm.model.plan import NodeVerdict, Reason, Verdict
from dnm.model.registry import Leaving, LentNode, Phase, Registry
from dnm.plan.brakes import is_paused
from dnm.plan.known import Known
from dnm.plan.max_lend import is_overdue
from dnm.plan.node_hours import hours_left
from dnm.plan.reclaim import advance_deficits, reclaimed

_WHY = {
    Leaving.FOR_JOBS: "jobs have waited for nodes of its type for batch_reclaim_minutes",
    Leaving.OVERDUE: "it has been lent for max_lend_hours",
    Leaving.SPENT: "node_hours_per_week of its namespace is used up",
}


def plan_leaving(known: Known, registry: Registry) -> Registry:
    """Returns the record with those that leave from now on, at most `max_reversions_per_run` more,
    and without those whose reason is over."""
    registry = msgspec.structs.replace(registry, deficits=advance_deficits(known, registry))
    if is_paused(registry, known.now):
        return registry
    ours = registry.nodes_of(known.config.instance_id, Phase.SERVING, Phase.RELEASING)
    over = {
        name: msgspec.structs.replace(entry, leaves=None)
        for name, entry in ours.items()
        if entry.leaves and (name in registry.held or _is_over(known, registry, entry))
    }
    registry = msgspec.structs.replace(registry, nodes={**registry.nodes, **over})
    left = known.config.max_reversions_per_run
    new: dict[str, LentNode] = {}
    for name, why in _candidates(known, registry):
        entry = registry.nodes[name]
        may_leave = entry.leaves is None and name not in registry.held and name not in new
        if may_leave and len(new) < left and _is_there(known, name):
            new[name] = msgspec.structs.replace(entry, leaves=why)
    return msgspec.structs.replace(registry, nodes={**registry.nodes, **new})


def _candidates(known: Known, registry: Registry) -> Iterator[tuple[str, Leaving]]:
    left = hours_left(known.config, registry, known.now)
    for name, entry in registry.nodes_of(known.config.instance_id, Phase.SERVING).items():
        if is_overdue(known.config, entry, known.facts):
            yield name, Leaving.OVERDUE
        if left.get(entry.namespace, 1.0) <= 0:
            yield name, Leaving.SPENT
    yield from ((name, Leaving.FOR_JOBS) for name in reclaimed(known, registry))


def _is_there(known: Known, name: str) -> bool:
    """Whether its Node is there and nobody else has cordoned it."""
    node = (known.facts.nodes or {}).get(name)
    return node is not None and not node.is_cordoned_by_another


def _is_over(known: Known, registry: Registry, entry: LentNode) -> bool:
    """Whether the reason for which a node leaves holds no longer."""
    if entry.leaves is Leaving.OVERDUE:
        return not is_overdue(known.config, entry, known.facts)
    if entry.leaves is Leaving.SPENT:
        return hours_left(known.config, registry, known.now).get(entry.namespace, 1.0) > 0
    if known.config.when_batch_waits is not WhenBatchWaits.RETURN:
        return True
    waiting = known.facts.waiting_jobs
    return waiting is not None and not any(one.node_type == entry.node_type for one in waiting)


def leaving_verdict(name: str, entry: LentNode) -> NodeVerdict:
    """What is said of a node that leaves."""
    assert entry.leaves is not None
    return NodeVerdict(
        node=name, verdict=Verdict.REVERT, reason=Reason.LEAVING, detail=_WHY[entry.leaves]
    )
