"""Which nodes there are and on their way, how many more may be had (what caps, the batch side and
the rules leave), and what keeps a wanted conversion from being started now. Pure.

Caps are counted over the registry, every conversion under way, and every Node that carries our
mark. The cooldown is between conversions; a node type backs off after failures. What stops a queue
whose nodes went unused is in `breaker.py`.
"""

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
from dnm.plan.breaker import backoffs_in_force, cooldown_end
from dnm.plan.bridged import bridge_bounds
from dnm.plan.facts import Facts
from dnm.plan.hooks import CountedFrom
from dnm.plan.rule import list_bounds, nodes_kept_out
from dnm.queues.edit import why_no_growth
from dnm.sizing.caps import Bound, ConversionBudget, NodePool, count_left, lent_in
from dnm.sizing.node_supply import IncomingNode, NodeSupply

if TYPE_CHECKING:
    from dnm.plan.inputs import Inputs
    from dnm.plan.limits import PlannedLimits


def conversion_budget(
    config: Config, registry: Registry, facts: Facts, *, anew: bool = False
) -> ConversionBudget:
    """What caps and the batch side leave, where nodes whose conversion was interrupted may be had
    like idle ones. `anew`: for nodes that nobody has claimed yet, with all that is claimed counted,
    and whatever is at hand. A batch side that can't be read bounds nothing here: then no conversion
    is started at all."""
    claimed = registry.claimed
    resumable = {} if anew else {name: claim for name, claim in claimed.items() if claim.can_resume}
    others = {name: claim for name, claim in claimed.items() if name not in resumable}
    lent = counted_as_lent(config, msgspec.structs.replace(registry, claimed=others), facts)
    at_hand = {} if anew else _at_hand(config, registry, facts)
    resumed = Counter(claim.node_type for claim in resumable.values())
    for node_type, count in resumed.items() if at_hand else ():
        at_hand[node_type] += count
    asked = CountedFrom(config=config, registry=registry, facts=facts, resumable=resumed)
    return count_left(config, lent, at_hand, _bounds(asked))


def _bounds(asked: CountedFrom) -> Iterator[Bound]:
    """What slurm-bridge and the rules leave, as far as the batch side could be asked."""
    facts = asked.facts
    nodes = (*(facts.nodes or {}).values(), *facts.with_batch.values())
    if facts.batch is not None and any(node.is_managed for node in nodes):
        yield from bridge_bounds(asked.config, asked.registry, asked.facts)
    yield from list_bounds(asked)


def counted_as_lent(config: Config, registry: Registry, facts: Facts) -> list[tuple[str, str]]:
    """Returns (node type, namespace) of every node that counts under the caps: the union of what
    the registry says and the nodes marked as ours where no fact contradicts the mark."""
    return lent_in(registry) + [
        (node.mark.node_type, node.mark.namespace)
        for name, node in (facts.nodes or {}).items()
        if node.mark and node.mark.instance == config.instance_id
        if name not in registry.nodes and name not in registry.claimed
        if facts.is_lent_by(name, config.instance_id) is not False
    ]


def _at_hand(config: Config, registry: Registry, facts: Facts) -> dict[str, int]:
    """Node type -> batch nodes that could be lent now, by the converter's own judgement; nothing
    where it was not asked."""
    if facts.batch is None:
        return {}
    counts = Counter(config.type_of(name) for name in lendable_names(config, registry, facts))
    for request in registry.requests:
        if request.since == facts.now and not request.ended:  # of this run: nothing is claimed yet
            counts[request.node_type] -= request.count
    return {node_type: max(counts[node_type], 0) for node_type in config.node_types}


def lendable_names(config: Config, registry: Registry, facts: Facts) -> list[str]:
    """Returns the batch nodes that could be lent now, those that the converter would take first
    first, without what is kept out."""
    out = nodes_kept_out(config, registry, facts.batch, facts.now)
    may_be = ("OK", "PREEMPT") if config.allow_preempt else ("OK",)
    return [
        name
        for name, node in (facts.batch or {}).items()
        if node.verdict in may_be and name not in registry.nodes and name not in out
    ]


def node_supply(inputs: Inputs, registry: Registry) -> NodeSupply:
    """The Nodes that are there, those that serve, those on their way and those that leave."""
    nodes = inputs.facts.nodes or {}
    instance = inputs.config.instance_id
    serving = registry.nodes_of(instance, Phase.SERVING)
    incoming = [
        IncomingNode(node_type=r.node_type, namespace=r.namespace, queue=r.queue)
        for r in registry.requests
        if not r.is_given_up
        for _ in range(r.count)
    ]
    incoming += [
        _incoming(inputs, name, node)
        for phase in (Phase.JOINING, Phase.MOVING)
        for name, node in registry.nodes_of(instance, phase).items()
    ]
    leaving = registry.nodes_of(instance, Phase.RELEASING, Phase.RETURNING, Phase.FAILED)
    there = tuple(_opened(nodes[name], serving.get(name)) for name in sorted(nodes))
    return NodeSupply(
        nodes=inputs.snapshot.waits.offering(there) if inputs.snapshot.waits else there,
        lent=serving,
        incoming=tuple(incoming),
        leaving=frozenset(leaving),
        daemon_sets=inputs.snapshot.daemon_sets,
    )


def _opened(node: Node, entry: LentNode | None) -> Node:
    """A Node as this run leaves it: the fence of one that serves comes off."""
    if entry is None or entry.leaves is not None:
        return node
    return msgspec.structs.replace(node, is_cordoned=node.is_cordoned_by_another)


def _incoming(inputs: Inputs, name: str, entry: LentNode) -> IncomingNode:
    """One that changes its queue is on its way to the new one, or back."""
    policy = inputs.config.namespaces.get(entry.heads_for)
    is_new = policy is not None and entry.heads_for != entry.namespace
    return IncomingNode(
        node_type=entry.node_type,
        namespace=entry.heads_for,
        queue=policy.queue if policy and is_new else entry.queue,
        name=name,
    )


# --- what holds a conversion back ---------------------------------------------------------------


def why_not_now(
    inputs: Inputs, registry: Registry, node_type: str, order: LendOrder | None = None
) -> Objection | None:
    """Why none of this type is started now, whatever queue it is for; `order`: a person's, for
    which it would be. `registry`: as it was before any conversion of this run."""
    batch = inputs.snapshot.batch
    if isinstance(batch, Unreadable):
        return Objection(reason=Reason.NO_BATCH_NODE, detail=batch.error)
    if batch is None:
        detail = "" if order else "the next run asks"
        return Objection(reason=Reason.BATCH_NOT_ASKED, detail=detail)
    return why_wait(inputs.config, registry, node_type, inputs.now, order)


def why_wait(
    config: Config,
    registry: Registry,
    node_type: str,
    now: datetime,
    order: LendOrder | None = None,
) -> Objection | None:
    """The pause, the cooldown (which force passes) or the back-off that holds a conversion of this
    type back for now."""
    if pause := registry.paused(now, Way.LENDING):
        return pause
    is_forced = order is not None and order.is_forced
    if not is_forced and (until := cooldown_end(config, registry, now)) is not None:
        return Objection(reason=Reason.COOLDOWN, detail=f"until {until:%H:%M:%S} UTC")
    backoff = backoffs_in_force(registry, now).get(node_type)
    if backoff is None or (order is not None and _passes(order, backoff, now)):
        return None
    error = f"{backoff.last_error}; " if backoff.last_error else ""
    return Objection(
        reason=Reason.BACKOFF,
        detail=f"{backoff.failures} of type {node_type}, until {backoff.until:%H:%M:%S} UTC; "
        f"{error}`dnm reset {node_type}` ends it",
    )


def _passes(order: LendOrder, backoff: Backoff, now: datetime) -> bool:
    """Whether force passes a back-off: one that the order itself has made it does not."""
    return order.is_forced and not (backoff.since and order.since < backoff.since <= now)


def why_not_counted(
    inputs: Inputs, limits: PlannedLimits, registry: Registry, pool: NodePool, count: int
) -> Objection | None:
    """Why the size of so many nodes, and of those on their way, would not fit into the limits."""
    asked, known = limits.action, inputs.config.node_types
    if inputs.document is None or asked is None or not count:
        return None
    incoming = node_supply(inputs, registry).incoming
    types = [pool.node_type] * count
    types += [item.node_type for item in incoming if item.queue == pool.queue]
    sizes = [known[name].size for name in types if name in known]
    return why_no_growth(inputs.document, asked.wants, pool.queue, sizes)
