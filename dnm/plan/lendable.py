"""The supply of nodes: those in Kubernetes, those incoming, how many more can be lent (within caps,
rules and what Slurm has), and the reasons that delay a lend now. Pure.

Caps count the registry, every conversion under way, and every Node with the mark of this instance.
The cooldown is between conversions; a node type backs off after failures. `breaker.py` stops a
queue after nodes went unused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Node
from dnm.model.observed import Backoff
from dnm.model.orders import LendOrder, Way
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.model.verdict import Objection
from dnm.plan.breaker import active_backoffs, cooldown_end
from dnm.plan.bridged import bridge_bounds
from dnm.plan.facts import Facts
from dnm.plan.hooks import CountedFrom
from dnm.plan.rule import excluded_nodes, list_bounds
from dnm.sizing.caps import Bound, ConversionBudget, NodePool, count_left, lent_in
from dnm.sizing.node_supply import IncomingNode, NodeSupply

if TYPE_CHECKING:
    from dnm.plan.inputs import Inputs
    from dnm.plan.limits import PlannedLimits


def conversion_budget(
    config: Config, registry: Registry, facts: Facts, *, unclaimed: bool = False
) -> ConversionBudget:
    """Returns how many nodes may be lent by caps, rules and Slurm, including interrupted lends.
    With `unclaimed`, all claimed nodes count as lent, and Slurm's nodes are no bound. Nor are they
    if they were not read: then no lend is started at all."""
    claimed = registry.claimed
    resumable = (
        {} if unclaimed else {name: claim for name, claim in claimed.items() if claim.can_resume}
    )
    rest = {name: claim for name, claim in claimed.items() if name not in resumable}
    lent = counted_as_lent(config, msgspec.structs.replace(registry, claimed=rest), facts)
    lendable = {} if unclaimed else _count_lendable(config, registry, facts)
    resumed = Counter(claim.node_type for claim in resumable.values())
    for node_type, count in resumed.items() if lendable else ():
        lendable[node_type] += count
    asked = CountedFrom(config=config, registry=registry, facts=facts, resumable=resumed)
    return count_left(config, lent, lendable, _bounds(asked))


def _bounds(bound_inputs: CountedFrom) -> Iterator[Bound]:
    """Yields the bounds that slurm-bridge (if Slurm was read) and enabled rules set."""
    facts = bound_inputs.facts
    nodes = (*(facts.nodes or {}).values(), *facts.with_batch.values())
    if facts.batch is not None and any(node.is_managed for node in nodes):
        yield from bridge_bounds(bound_inputs.config, bound_inputs.registry, bound_inputs.facts)
    yield from list_bounds(bound_inputs)


def counted_as_lent(config: Config, registry: Registry, facts: Facts) -> list[tuple[str, str]]:
    """Returns (node type, namespace) of each node that caps count: those in the registry, and Nodes
    with this instance's annotations unless a fact contradicts these."""
    return lent_in(registry) + [
        (node.mark.node_type, node.mark.namespace)
        for name, node in (facts.nodes or {}).items()
        if node.mark and node.mark.instance == config.instance_id
        if name not in registry.nodes and name not in registry.claimed
        if facts.is_lent_by(name, config.instance_id) is not False
    ]


def _count_lendable(config: Config, registry: Registry, facts: Facts) -> dict[str, int]:
    """Returns how many of Slurm's nodes the converter could lend now, by node type."""
    if facts.batch is None:
        return {}
    counts = Counter(config.type_of(name) for name in lendable_names(config, registry, facts))
    for request in registry.requests:
        if request.since == facts.now and not request.end:  # of this run: no node is claimed yet
            counts[request.node_type] -= request.count
    return {node_type: max(counts[node_type], 0) for node_type in config.node_types}


def lendable_names(config: Config, registry: Registry, facts: Facts) -> list[str]:
    """Returns the names of Slurm's nodes that could be lent now and are not excluded."""
    excluded = excluded_nodes(config, registry, facts.batch, facts.now)
    verdicts = ("OK", "PREEMPT") if config.allow_preempt else ("OK",)
    return [
        name
        for name, node in (facts.batch or {}).items()
        if node.verdict in verdicts and name not in registry.nodes and name not in excluded
    ]


def node_supply(inputs: Inputs, registry: Registry) -> NodeSupply:
    """Returns the nodes for sizing: all Nodes, and which are serving, incoming or leaving."""
    nodes = inputs.facts.nodes or {}
    instance = inputs.config.instance_id
    serving = registry.nodes_of(instance, Phase.SERVING)
    incoming = [
        IncomingNode(node_type=r.node_type, namespace=r.namespace, queue=r.queue)
        for r in registry.requests
        if not r.is_abandoned
        for _ in range(r.count)
    ]
    incoming += [
        _incoming(inputs, name, node)
        for phase in (Phase.JOINING, Phase.MOVING)
        for name, node in registry.nodes_of(instance, phase).items()
    ]
    leaving = registry.nodes_of(instance, Phase.RELEASING, Phase.RETURNING, Phase.FAILED)
    present = tuple(_without_fence(nodes[name], serving.get(name)) for name in sorted(nodes))
    return NodeSupply(
        nodes=inputs.snapshot.waits.offering(present) if inputs.snapshot.waits else present,
        lent=serving,
        incoming=tuple(incoming),
        leaving=frozenset(leaving),
        daemon_sets=inputs.snapshot.daemon_sets,
    )


def _without_fence(node: Node, entry: LentNode | None) -> Node:
    """Returns the Node, without dnm's cordon if its `entry` in the registry serves and stays."""
    if entry is None or entry.leaves is not None:
        return node
    return msgspec.structs.replace(node, is_cordoned=node.is_cordoned_by_another)


def _incoming(inputs: Inputs, name: str, entry: LentNode) -> IncomingNode:
    """Returns a joining or moving node as an incoming one of the queue that it will serve."""
    policy = inputs.config.namespaces.get(entry.heads_for)
    is_new = policy is not None and entry.heads_for != entry.namespace
    return IncomingNode(
        node_type=entry.node_type,
        namespace=entry.heads_for,
        queue=policy.queue if policy and is_new else entry.queue,
        name=name,
    )


# --- what delays a conversion -------------------------------------------------------------------


def start_objection(
    inputs: Inputs, registry: Registry, node_type: str, order: LendOrder | None = None
) -> Objection | None:
    """Returns why no node of this type is requested now for any queue, or None. `order` is the `dnm
    lend` order that would request it, `registry` the one before this run's requests."""
    batch = inputs.snapshot.batch
    if isinstance(batch, Unreadable):
        return Objection(reason=Reason.NO_BATCH_NODE, detail=batch.error)
    if batch is None:
        detail = "" if order else "the next run reads them"
        return Objection(reason=Reason.BATCH_NOT_ASKED, detail=detail)
    return find_brake(inputs.config, registry, node_type, inputs.now, order)


def find_brake(
    config: Config,
    registry: Registry,
    node_type: str,
    now: datetime,
    order: LendOrder | None = None,
) -> Objection | None:
    """Returns the reason that delays lending nodes of this type, or None: a pause, the cooldown
    (which `dnm lend --force` ignores) or the type's back-off."""
    if pause := registry.paused(now, Way.LENDING):
        return pause
    is_forced = order is not None and order.is_forced
    if not is_forced and (until := cooldown_end(config, registry, now)) is not None:
        return Objection(reason=Reason.COOLDOWN, detail=f"until {until:%H:%M:%S} UTC")
    backoff = active_backoffs(registry, now).get(node_type)
    if backoff is None or (order is not None and _passes(order, backoff, now)):
        return None
    error = f"{backoff.last_error}; " if backoff.last_error else ""
    return Objection(
        reason=Reason.BACKOFF,
        detail=f"{backoff.failures} of type {node_type}, until {backoff.until:%H:%M:%S} UTC; "
        f"{error}`dnm reset {node_type}` ends it",
    )


def _passes(order: LendOrder, backoff: Backoff, now: datetime) -> bool:
    """Returns whether a forced `dnm lend` order ignores this back-off, which is older than it."""
    return order.is_forced and not (backoff.since and order.since < backoff.since <= now)


def limit_objection(
    inputs: Inputs, limits: PlannedLimits, registry: Registry, pool: NodePool, count: int
) -> Objection | None:
    """Returns why a queue's limits cannot grow by `count` and the incoming nodes, or None."""
    action, node_types = limits.action, inputs.config.node_types
    if inputs.queues is None or action is None or not count:
        return None
    incoming = node_supply(inputs, registry).incoming
    types = [pool.node_type] * count
    types += [item.node_type for item in incoming if item.queue == pool.queue]
    sizes = [node_types[name].size for name in types if name in node_types]
    return inputs.queues.growth_objection(action.wants, pool.queue, sizes)
