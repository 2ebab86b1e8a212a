"""Takes up the Nodes that carry our mark but are not recorded (a registry that was lost). Pure."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from dnm.model.cluster import Mark
from dnm.model.config import Config
from dnm.model.registry import LentNode, Phase
from dnm.model.value import Value
from dnm.plan.facts import Facts


class Adoption(Value):
    """The nodes to record again, and what is said of those that can't be."""

    nodes: dict[str, LentNode]
    notes: tuple[str, ...]
    errors: tuple[str, ...]


def adopt_marked_nodes(config: Config, recorded: Container[str], facts: Facts) -> Adoption:
    """A Node with our mark is ours, whatever the registry says."""
    nodes, errors = {}, []
    for name, node in sorted((facts.nodes or {}).items()):
        mark = node.mark
        if name in recorded or mark is None or mark.instance != config.instance_id:
            continue
        if mark.namespace in config.namespaces:
            nodes[name] = _from_mark(config, mark, facts.now)
        else:
            errors.append(
                f"{name} carries our mark for namespace {mark.namespace!r}, which is not "
                "monitored: add it to monitored_namespaces, or take the dynamic-node-manager/ "
                "annotations off the Node"
            )
    notes = tuple(f"node={name} carries our mark and is recorded again" for name in nodes)
    return Adoption(nodes=nodes, notes=notes, errors=tuple(errors))


def _from_mark(config: Config, mark: Mark, now: datetime) -> LentNode:
    return LentNode(
        node_type=mark.node_type,
        namespace=mark.namespace,
        queue=mark.queue or config.namespaces[mark.namespace].queue,
        owner=mark.instance,
        phase=Phase.JOINING,
        since=now,
    )
