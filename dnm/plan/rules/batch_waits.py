"""`when_batch_waits`: what becomes of lending while jobs wait that nodes of a type would start.
Pure.

The rule: with `wait` no node of the type is lent, with `return` those that are idle go back at once
too, but never to or from a namespace whose `priority` is above 0: that comes before jobs. Where
nobody says what jobs wait for, nothing follows. A node that its queue's pods wait for is not given
back, and a queue that gave its warm node back gets another only once pods have waited: so jobs that
come and go move no node that pods would not have moved.

`batch_reclaim_minutes`, with `return`: nodes that pods use are fenced while jobs wait, until each
side has its half. Nodes of a type that are lent while jobs wait for that type are wanted by both
sides, and half of them, rounded up, are the batch side's, as far as its jobs ask for so many. What
it has had less than that is its deficit, in node-hours, while jobs wait; it is forgotten some hours
after the last one did. Once jobs have waited for so long without a break and there is a deficit,
the least used nodes are fenced, as many as the half lacks. They empty by themselves: nothing is
evicted. When no job waits any more the fences come off. What can't be read moves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from dnm.demand.demand import NO_USE
from dnm.model.config import Config, WhenBatchWaits
from dnm.model.registry import Deficit, Leaving, LentNode, Phase, Registry
from dnm.plan.facts import Facts
from dnm.plan.inputs import Inputs
from dnm.plan.rule import Budgeted, Rule
from dnm.sizing.budget import WAITING_JOBS, Bound

REMEMBERED = timedelta(hours=4)


def types_for_jobs(config: Config, facts: Facts) -> frozenset[str]:
    """Returns the node types that jobs wait for, where lending has regard to them."""
    if config.when_batch_waits is WhenBatchWaits.LEND:
        return frozenset()
    return frozenset(one.node_type for one in facts.waiting_jobs or () if one.jobs)


def comes_first(config: Config, namespace: str) -> bool:
    """Returns whether a namespace comes before jobs that wait."""
    policy = config.namespaces.get(namespace)
    return policy is not None and policy.priority > 0


def waiting_bounds(config: Config, facts: Facts) -> Iterator[Bound]:
    """Yields the bound of each type that is not lent now."""
    behind = frozenset(name for name in config.namespaces if not comes_first(config, name))
    for node_type in sorted(types_for_jobs(config, facts)):
        yield Bound(
            name=f"{WAITING_JOBS} of type {node_type}",
            left=0,
            node_types=frozenset((node_type,)),
            namespaces=behind,
        )


def goes_at_once(config: Config, entry: LentNode, facts: Facts) -> bool:
    """Returns whether an idle lent node need not wait out its idle time."""
    return (
        config.when_batch_waits is WhenBatchWaits.RETURN
        and entry.node_type in types_for_jobs(config, facts)
        and not comes_first(config, entry.namespace)
    )


# --- batch_reclaim_minutes -------------------------------------------------------------------


def advance_deficits(inputs: Inputs, registry: Registry) -> dict[str, Deficit]:
    """Returns the deficits by node type as they stand after this look; one that only grows as it
    did is the same value, so that nothing is written for it."""
    waiting = inputs.facts.waiting_jobs
    if inputs.config.when_batch_waits is not WhenBatchWaits.RETURN:
        return {}
    if waiting is None:
        return dict(registry.deficits)
    wanted: Counter[str] = Counter()
    for row in waiting:
        wanted[row.node_type] += row.nodes
    found = {
        name: _advanced(inputs, registry, name, wanted[name]) for name in inputs.config.node_types
    }
    return {name: one for name, one in found.items() if one is not None}


def _advanced(inputs: Inputs, registry: Registry, node_type: str, wanted: int) -> Deficit | None:
    now, old = inputs.now, registry.deficits.get(node_type)
    if old is None:
        old = Deficit(at=now)
    if not wanted and old.since is None:
        return old if old.seconds and now - old.at < REMEMBERED else None
    given = old.given + _given_now(inputs, registry, node_type) if wanted else 0
    new = Deficit(
        at=now,
        seconds=old.seconds_at(now),
        since=(old.since or now) if wanted else None,
        given=given,
        share=fair_share(lent_of(inputs, registry, node_type), given, wanted),
    )
    is_same = (old.since, old.given, old.share) == (new.since, new.given, new.share)
    return old if is_same else new


def fair_share(lent: int, given: int, wanted: int) -> int:
    """Returns half of the nodes that both sides want, as far as jobs ask for so many."""
    return min((lent + given + 1) // 2, wanted + given)


_LENT = (Phase.JOINING, Phase.SERVING, Phase.MOVING)


def lent_of(inputs: Inputs, registry: Registry, node_type: str) -> int:
    """Counts the lent nodes of a type that are not about to be back, of namespaces that do not come
    before jobs."""
    return sum(
        entry.node_type == node_type
        and entry.owner == inputs.config.instance_id
        and (entry.phase in _LENT or entry.leaves is Leaving.FOR_JOBS)
        and not comes_first(inputs.config, entry.namespace)
        for entry in registry.nodes.values()
    )


def _given_now(inputs: Inputs, registry: Registry, node_type: str) -> int:
    """Counts nodes that were fenced for jobs and have gone since the last run."""
    return sum(
        entry.node_type == node_type and entry.leaves is Leaving.FOR_JOBS
        for name, entry in inputs.registry.nodes.items()
        if name not in registry.nodes
    )


def reclaimed(inputs: Inputs, registry: Registry) -> Iterator[str]:
    """Yields the nodes to fence next, the least used first. `registry` has the deficits of now."""
    for node_type, deficit in registry.deficits.items():
        if deficit.since is None or not inputs.config.batch_reclaim:
            continue
        is_due = inputs.now - deficit.since >= inputs.config.batch_reclaim
        if inputs.facts.waiting_jobs is None or not is_due or deficit.seconds_at(inputs.now) <= 0:
            continue
        leaving = sum(
            one.leaves is Leaving.FOR_JOBS and one.node_type == node_type
            for one in registry.nodes.values()
        )
        lacking = max(0, deficit.share - deficit.given - leaving)
        yield from _least_used(inputs, registry, node_type)[:lacking]


def _least_used(inputs: Inputs, registry: Registry, node_type: str) -> list[str]:
    """The serving nodes of a type that may be fenced: all but those that `min_nodes` keeps."""
    nodes = {
        name: entry
        for name, entry in registry.nodes_of(inputs.config.instance_id, Phase.SERVING).items()
        if entry.leaves is None and not comes_first(inputs.config, entry.namespace)
    }
    spare = Counter(entry.namespace for entry in nodes.values())
    for policy in inputs.config.namespaces.values():
        spare[policy.name] -= policy.min_nodes
    found = []
    for name in sorted(
        (name for name, one in nodes.items() if one.node_type == node_type),
        key=lambda name: (_used_share(inputs, name, nodes[name]), name),
    ):
        if spare[nodes[name].namespace] > 0:
            spare[nodes[name].namespace] -= 1
            found.append(name)
    return found


def _used_share(inputs: Inputs, name: str, entry: LentNode) -> float:
    """What pods have of it, of the resource that they have most of."""
    use = inputs.demand.nodes.get(name, NO_USE).used if inputs.demand else {}
    return max((use.get(key, 0) / size for key, size in entry.counted.items() if size), default=0)


def _with_deficits(inputs: Inputs, registry: Registry) -> Registry:
    return msgspec.structs.replace(registry, deficits=advance_deficits(inputs, registry))


def _bounds(asked: Budgeted) -> Iterator[Bound]:
    if not asked.is_forced:
        yield from waiting_bounds(asked.config, asked.facts)


def _is_over(inputs: Inputs, registry: Registry, name: str) -> bool:
    if inputs.config.when_batch_waits is not WhenBatchWaits.RETURN:
        return True
    waiting, node_type = inputs.facts.waiting_jobs, registry.nodes[name].node_type
    return waiting is not None and not any(one.node_type == node_type for one in waiting)


RULE = Rule(
    bounds=_bounds,
    goes_early=goes_at_once,
    remembers=_with_deficits,
    leaving=Leaving.FOR_JOBS,
    why_leaving="jobs have waited for nodes of its type for batch_reclaim_minutes",
    leaves=reclaimed,
    is_over=_is_over,
)
