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
from dnm.model.lent import Phase
from dnm.model.orders import Way
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.facts import node_verdict
from dnm.plan.found import newly_recorded
from dnm.plan.inputs import Inputs
from dnm.sizing.caps import NodePool

_NOT_WANTED = "its conversion was interrupted and is not wanted any more: it goes back"


def resumable_nodes(config: Config, registry: Registry) -> dict[NodePool, list[str]]:
    """Returns the nodes that can be gone on with, by what they would be lent as."""
    found: dict[NodePool, list[str]] = defaultdict(list)
    for name, one in sorted(registry.claimed.items()):
        policy = config.namespaces.get(one.namespace)
        if one.can_resume and policy is not None:
            found[NodePool(policy.queue, one.namespace, one.node_type)].append(name)
    return dict(found)


def give_back_unwanted(
    inputs: Inputs, registry: Registry, wanted: Mapping[NodePool, int], undecided: Collection[str]
) -> tuple[Registry, dict[str, NodeVerdict]]:
    """Takes those that are wanted no more into the record as returning; `wanted`: how many of each
    pool are, by requests that wait. Nothing is decided for `undecided` queues, nor without the
    batch side or in a pause."""
    if inputs.facts.batch is None or inputs.paused(Way.RETURNING):
        return registry, {}
    nodes, claimed = dict(registry.nodes), dict(registry.claimed)
    verdicts = {}
    for pool, names in resumable_nodes(inputs.config, registry).items():
        if pool.queue in undecided:
            continue
        for name in names[wanted.get(pool, 0) :]:
            del claimed[name]
            nodes[name] = newly_recorded(
                inputs.config, pool.node_type, pool.namespace, Phase.RETURNING, inputs.now
            )
            verdicts[name] = node_verdict(name, Verdict.REVERT, Reason.CLAIMED, _NOT_WANTED)
    return msgspec.structs.replace(registry, nodes=nodes, claimed=claimed), verdicts
