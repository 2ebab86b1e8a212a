"""The nodes that a decision counts with, as the decisions before it leave them. Pure."""

from __future__ import annotations

import msgspec

from dnm.model.cluster import Node
from dnm.model.registry import LentNode, Phase, Registry
from dnm.plan.inputs import Inputs
from dnm.sizing.node_supply import IncomingNode, NodeSupply


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
    return NodeSupply(
        nodes=tuple(_opened(nodes[name], serving.get(name)) for name in sorted(nodes)),
        lent=serving,
        incoming=tuple(incoming),
        leaving=frozenset(leaving),
        unbuffered=frozenset(registry.unbuffered),
    )


def _opened(node: Node, entry: LentNode | None) -> Node:
    """A Node as this run leaves it: the fence of one that serves comes off."""
    if entry is None or entry.leaves is not None or not node.is_fenced:
        return node
    return msgspec.structs.replace(node, is_cordoned=False)


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
