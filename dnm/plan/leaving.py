"""Which serving nodes are fenced although their queue uses them, so that they empty by themselves.
Pure.

The rule: a node that leaves is fenced, its pods run on, its queue counts it until it is empty, and
then it goes back whatever its queue wants. `dnm hold` keeps it, and so does the end of the reason:
then the fence comes off. The reasons are rules of their own: `max_lend`, `node_hours`, `reclaim`.
Pods are asked to go where a person has said so, and nowhere else: `evictions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from dnm.model.config import WhenBatchWaits
from dnm.model.plan import NodeVerdict, Reason, Verdict
from dnm.model.registry import Emptying, Half, Leaving, LentNode, Phase, Registry
from dnm.plan.brakes import is_paused
from dnm.plan.kept_out import can_be_judged, unwelcome_nodes
from dnm.plan.known import Known
from dnm.plan.max_lend import is_overdue
from dnm.plan.node_hours import hours_left
from dnm.plan.reclaim import advance_deficits, reclaimed

_WHY = {
    Leaving.FOR_JOBS: "jobs have waited for nodes of its type for batch_reclaim_minutes",
    Leaving.OVERDUE: "it has been lent for max_lend_hours",
    Leaving.BY_HAND: "a person returns it",
    Leaving.KEPT_OUT: "it came although it is kept out of lending",
    Leaving.SPENT: "node_hours_per_week of its namespace is used up",
}


def plan_leaving(known: Known, registry: Registry) -> Registry:
    """Returns the record with those that leave from now on, at most `max_reversions_per_run` more,
    and without those whose reason is over."""
    registry = msgspec.structs.replace(registry, deficits=advance_deficits(known, registry))
    if is_paused(registry, known.now, Half.RETURNING):
        return registry
    ours = registry.nodes_of(known.config.instance_id, Phase.SERVING, Phase.RELEASING)
    over = {
        name: msgspec.structs.replace(entry, leaves=None, emptying=None)
        for name, entry in ours.items()
        if entry.leaves and (_is_kept(known, registry, name) or _is_over(known, registry, name))
    }
    registry = msgspec.structs.replace(registry, nodes={**registry.nodes, **over})
    left = known.config.max_reversions_per_run
    new: dict[str, LentNode] = {}
    for name, why in _candidates(known, registry):
        entry = registry.nodes[name]
        is_free = entry.leaves is None and not _is_kept(known, registry, name)
        may_leave = is_free and name not in new
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


def _is_kept(known: Known, registry: Registry, name: str) -> bool:
    """Whether a person's word keeps it, whatever else speaks for its leaving."""
    return name in registry.held or registry.nodes[name].is_kept_at(known.now)


def _is_there(known: Known, name: str) -> bool:
    """Whether its Node is there and nobody else has cordoned it."""
    node = (known.facts.nodes or {}).get(name)
    return node is not None and not node.is_cordoned_by_another


def _is_over(known: Known, registry: Registry, name: str) -> bool:
    """Whether the reason for which a node leaves holds no longer."""
    entry = registry.nodes[name]
    if entry.leaves is Leaving.BY_HAND:
        return False
    if entry.leaves is Leaving.KEPT_OUT:
        config, batch = known.config, known.facts.batch
        is_told = batch is not None and can_be_judged(config, batch, name)
        return is_told and name not in unwelcome_nodes(config, registry, batch, known.now)
    if entry.leaves is Leaving.OVERDUE:
        return not is_overdue(known.config, entry, known.facts)
    if entry.leaves is Leaving.SPENT:
        return hours_left(known.config, registry, known.now).get(entry.namespace, 1.0) > 0
    if known.config.when_batch_waits is not WhenBatchWaits.RETURN:
        return True
    waiting = known.facts.waiting_jobs
    return waiting is not None and not any(one.node_type == entry.node_type for one in waiting)


def leaving_verdict(name: str, entry: LentNode, now: datetime, stopped: str = "") -> NodeVerdict:
    """What is said of a node that leaves; `stopped`: why nobody is asked to go now."""
    assert entry.leaves is not None
    detail = _WHY[entry.leaves]
    if entry.emptying is not None:
        detail += f", and its pods are {_emptied(entry.emptying, now, stopped)}"
    return NodeVerdict(node=name, verdict=Verdict.REVERT, reason=Reason.LEAVING, detail=detail)


def _emptied(emptying: Emptying, now: datetime, stopped: str) -> str:
    if now < emptying.since:
        return f"asked to go from {emptying.since:%Y-%m-%d %H:%M:%S} UTC on"
    if stopped:
        return f"not asked to go: {stopped}"
    return f"asked to go: {emptying.why}" if emptying.why else "asked to go"
