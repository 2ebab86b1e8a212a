"""The nodes that a decision counts with, as the decisions before it leave them. Pure."""

from __future__ import annotations

from dnm.model.registry import Phase, Registry
from dnm.plan.known import Known
from dnm.sizing.node_supply import IncomingNode, NodeSupply


def node_supply(known: Known, registry: Registry) -> NodeSupply:
    """The Nodes that are there, those that serve, those on their way and those that leave."""
    nodes = known.facts.nodes or {}
    instance = known.config.instance_id
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
    leaving = registry.nodes_of(instance, Phase.RELEASING, Phase.RETURNING, Phase.FAILED)
    return NodeSupply(
        nodes=tuple(nodes[name] for name in sorted(nodes)),
        lent=registry.nodes_of(instance, Phase.SERVING),
        incoming=tuple(incoming),
        leaving=frozenset(leaving),
        unbuffered=frozenset(registry.unbuffered),
    )
