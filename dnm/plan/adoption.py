"""Takes up the Nodes that carry our mark but are not recorded (a registry that was lost). Pure.

A mark is a hint: a kubelet can write it on its own Node. The ledger or Slurm must say the same.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from dnm.model.cluster import Mark
from dnm.model.config import Config
from dnm.model.printable import printable
from dnm.model.registry import LentNode, Phase
from dnm.model.value import Value
from dnm.plan.facts import Facts


class Adoption(Value):
    """The nodes to record again, and what is said of those that can't be."""

    nodes: dict[str, LentNode]
    notes: tuple[str, ...]
    errors: tuple[str, ...]


def adopt_marked_nodes(config: Config, recorded: Container[str], facts: Facts) -> Adoption:
    """Records again what carries our mark, has a monitored namespace, and is lent by more than the
    mark's word; what is said of the others."""
    nodes, notes, errors = {}, [], []
    for name, node in sorted((facts.nodes or {}).items()):
        mark = node.mark
        if name in recorded or mark is None or mark.instance != config.instance_id:
            continue
        is_lent = facts.is_lent_by(name, config.instance_id)
        if is_lent is None:
            notes.append(
                f"{name} carries our mark and is not recorded: it waits until Slurm and the ledger "
                "can be asked"
            )
        elif not is_lent:
            errors.append(
                f"{name} carries our mark, but neither the ledger nor Slurm knows it as lent: the "
                "mark changes nothing. Take the dynamic-node-manager/ annotations off the Node"
            )
        elif mark.namespace in config.namespaces:
            nodes[name] = _from_mark(config, name, mark, facts.now)
            notes.append(f"node={name} carries our mark and is recorded again")
        else:
            errors.append(
                f"{name} carries our mark for namespace {printable(mark.namespace, 80)!r}, which "
                "is not monitored: add it to monitored_namespaces, or take the "
                "dynamic-node-manager/ annotations off the Node"
            )
    return Adoption(nodes=nodes, notes=tuple(notes), errors=tuple(errors))


def _from_mark(config: Config, name: str, mark: Mark, now: datetime) -> LentNode:
    """Its queue is the namespace's and its type that of its name, whatever the mark says."""
    policy = config.namespaces[mark.namespace]
    return LentNode(
        node_type=config.type_of(name) or policy.node_types[0],
        namespace=mark.namespace,
        queue=policy.queue,
        owner=mark.instance,
        phase=Phase.JOINING,
        since=now,
    )
