"""Interrupted conversions of this run: forwards where a queue wants a node of the kind now, within
caps and brakes, else back to Slurm. Pure.

A lending that stopped in the middle is worth a node to whoever wants one of its namespace and type.
It is asked for by name; what nobody wants is taken into the record as on its way back, and the next
run calls the converter for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import msgspec

from dnm.model.config import Config
from dnm.model.plan import NodeVerdict, Reason, Verdict
from dnm.model.registry import ClaimedNode, Half, LentNode, Phase, Registry
from dnm.plan.brakes import fresh_budget, is_paused
from dnm.plan.known import Known
from dnm.sizing.budget import NodePool


def resumable_nodes(config: Config, registry: Registry) -> dict[NodePool, list[str]]:
    """Returns the nodes that can be gone on with, by what they would be lent as."""
    found: dict[NodePool, list[str]] = defaultdict(list)
    for name, one in sorted(registry.claimed.items()):
        policy = config.namespaces.get(one.namespace)
        if one.can_resume and policy is not None:
            found[NodePool(policy.queue, one.namespace, one.node_type)].append(name)
    return dict(found)


def room_for_fresh(known: Known, registry: Registry, pool: NodePool) -> int:
    """Returns how many nodes of a pool may be claimed anew, with every claim counted."""
    budget = fresh_budget(known.config, registry, known.facts)
    return min(budget.left[name] for name in budget.bounds_of(pool))


def without_claim(registry: Registry, name: str) -> Registry:
    """Returns the registry where a request holds what was claimed."""
    claimed = {other: one for other, one in registry.claimed.items() if other != name}
    return msgspec.structs.replace(registry, claimed=claimed)


def give_back_unwanted(
    known: Known, registry: Registry, wanted: Mapping[NodePool, int], undecided: Collection[str]
) -> tuple[Registry, dict[str, NodeVerdict]]:
    """Takes those that are wanted no more into the record as returning; `wanted`: how many of each
    pool are, by requests that wait. Nothing is decided for `undecided` queues, nor without the
    batch side or in a pause."""
    if known.facts.batch is None or is_paused(registry, known.now, Half.RETURNING):
        return registry, {}
    nodes, claimed = dict(registry.nodes), dict(registry.claimed)
    verdicts = {}
    for pool, names in resumable_nodes(known.config, registry).items():
        if pool.queue in undecided:
            continue
        for name in names[wanted.get(pool, 0) :]:
            nodes[name] = _returning(known, pool, claimed.pop(name))
            verdicts[name] = NodeVerdict(
                node=name,
                verdict=Verdict.REVERT,
                reason=Reason.CLAIMED,
                detail="its conversion was interrupted and is not wanted any more: it goes back",
            )
    return msgspec.structs.replace(registry, nodes=nodes, claimed=claimed), verdicts


def _returning(known: Known, pool: NodePool, one: ClaimedNode) -> LentNode:
    return LentNode(
        node_type=one.node_type,
        namespace=one.namespace,
        queue=pool.queue,
        owner=known.config.instance_id,
        phase=Phase.RETURNING,
        since=known.now,
    )
