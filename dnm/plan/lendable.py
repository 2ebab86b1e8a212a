"""Which nodes there are and on their way, and how many more may be had: what caps, the batch side
and the rules leave. Pure.

Caps are counted over the registry, every conversion under way, and every Node that carries our
mark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Node
from dnm.model.opening import OPENING_TAINT
from dnm.model.registry import Registry
from dnm.plan.bridged import bridge_bounds
from dnm.plan.facts import Facts
from dnm.plan.hooks import Budgeted
from dnm.plan.rule import list_bounds, nodes_kept_out
from dnm.sizing.caps import Bound, ConversionBudget, count_left, lent_in
from dnm.sizing.node_supply import IncomingNode, NodeSupply

if TYPE_CHECKING:
    from dnm.plan.inputs import Inputs


def conversion_budget(config: Config, registry: Registry, facts: Facts) -> ConversionBudget:
    """What caps and the batch side leave, where nodes whose conversion was interrupted may be had
    like idle ones. A batch side that can't be read bounds nothing here: then no conversion is
    started at all."""
    resumable = {name: one for name, one in registry.claimed.items() if one.can_resume}
    claimed = {name: one for name, one in registry.claimed.items() if name not in resumable}
    others = msgspec.structs.replace(registry, claimed=claimed)
    at_hand = _at_hand(config, registry, facts)
    for one in resumable.values() if at_hand else ():
        at_hand[one.node_type] += 1
    lent = counted_as_lent(config, others, facts)
    resumed = Counter(one.node_type for one in resumable.values())
    asked = Budgeted(config=config, registry=registry, facts=facts, resumable=resumed)
    return count_left(config, lent, at_hand, _bounds(asked))


def fresh_budget(config: Config, registry: Registry, facts: Facts) -> ConversionBudget:
    """What the caps and Slurm's own needs leave for nodes that are claimed anew, with all that is
    claimed counted."""
    lent = counted_as_lent(config, registry, facts)
    asked = Budgeted(config=config, registry=registry, facts=facts)
    return count_left(config, lent, {}, _bounds(asked))


def _bounds(asked: Budgeted) -> Iterator[Bound]:
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
    return [
        name
        for name, node in (facts.batch or {}).items()
        if _can_be_lent(config, node) and name not in registry.nodes and name not in out
    ]


def _can_be_lent(config: Config, node: BatchNode) -> bool:
    return node.verdict == "OK" or (node.verdict == "PREEMPT" and config.allow_preempt)


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
        IncomingNode(node_type=one.node_type, namespace=one.namespace, queue=one.queue, name=name)
        for name, one in registry.nodes_of(instance, Phase.JOINING).items()
    ]
    incoming += [
        _moving(inputs, name, one)
        for name, one in registry.nodes_of(instance, Phase.MOVING).items()
    ]
    leaving = registry.nodes_of(instance, Phase.RELEASING, Phase.RETURNING, Phase.FAILED)
    there = tuple(_opened(nodes[name], serving.get(name)) for name in sorted(nodes))
    return NodeSupply(
        nodes=inputs.snapshot.waits.offering(there) if inputs.snapshot.waits else there,
        lent=serving,
        incoming=tuple(incoming),
        leaving=frozenset(leaving),
    )


def _opened(node: Node, entry: LentNode | None) -> Node:
    """A Node as this run leaves it: fence and opening taint of one that serves come off."""
    if entry is None or entry.leaves is not None:
        return node
    taints = tuple(one for one in node.taints if one.key != OPENING_TAINT)
    return msgspec.structs.replace(node, taints=taints, is_cordoned=node.is_cordoned_by_another)


def _moving(inputs: Inputs, name: str, entry: LentNode) -> IncomingNode:
    """One that changes its queue is on its way to the new one, or back."""
    policy = inputs.config.namespaces.get(entry.heads_for)
    is_new = policy is not None and entry.heads_for != entry.namespace
    return IncomingNode(
        node_type=entry.node_type,
        namespace=entry.heads_for,
        queue=policy.queue if policy and is_new else entry.queue,
        name=name,
    )
