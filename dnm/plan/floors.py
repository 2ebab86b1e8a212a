"""What a namespace is to have at least, whatever its pods ask for now. Pure.

`min_nodes` is what the configuration says. Whatever else knows of need that has not come yet is a
floor for as long as it knows it. Floors are no demand: the highest holds, demand may go above it,
and every cap stays in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dnm.model.config import Config, NamespacePolicy
from dnm.model.value import Value


class NodeFloor(Value):
    """So many nodes for a monitored namespace, of them so many `of_type` at least; `why` is a
    clause that people read."""

    namespace: str
    nodes: int
    why: str
    of_type: Mapping[str, int] = {}


def raise_floors(config: Config, floors: Iterable[NodeFloor]) -> Config:
    """Returns the configuration as it is in force now: `min_nodes` of each namespace is the highest
    of its floors, so is that of each node type, and both are at most its `max_nodes`."""
    namespaces = dict(config.namespaces)
    for floor in floors:
        if floor.namespace in namespaces:
            namespaces[floor.namespace] = _raised(namespaces[floor.namespace], floor)
    return msgspec.structs.replace(config, namespaces=namespaces)


def _raised(policy: NamespacePolicy, floor: NodeFloor) -> NamespacePolicy:
    most = min(floor.nodes, policy.max_nodes) if isinstance(policy.max_nodes, int) else floor.nodes
    of_type = dict(policy.min_of_type)
    left = most
    for name, count in floor.of_type.items():
        of_type[name] = max(of_type.get(name, 0), min(count, left))
        left -= min(count, left)
    policy = msgspec.structs.replace(policy, min_of_type=of_type)
    if most <= policy.min_nodes:
        return policy
    return msgspec.structs.replace(policy, min_nodes=most, min_nodes_by=floor.why)
