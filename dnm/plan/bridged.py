"""Nodes from which slurm-bridge evicts pods, and lends that would create such nodes. Pure.

slurm-bridge sets a NoExecute taint on every Node if its Slurm knows the name or slurm-nodename. If
Slurm and Kubernetes share names, a Slurm node that becomes a Node loses all its pods at once, so
dnm converts no such node. A lent node that is already a Node stays one, and its converter handles
the taint. dnm detects both cases from the Nodes and the list that a run reads anyway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.slinky import SLURM_NAME
from dnm.plan.facts import Facts
from dnm.sizing.caps import Bound


def managed_nodes(nodes: Iterable[Node], batch: Mapping[str, BatchNode]) -> tuple[str, ...]:
    """Returns the names of Nodes that have slurm-bridge's taint and that this Slurm knows. If there
    are any, slurm-bridge is active for this Slurm."""
    return tuple(
        sorted(
            node.name
            for node in nodes
            if node.is_managed and node.labels.get(SLURM_NAME, node.name) in batch
        )
    )


def bare_types(
    config: Config, registry: Registry, nodes: Mapping[str, Node], batch: Mapping[str, BatchNode]
) -> dict[str, str]:
    """Returns, for each node type, one node that could be lent, or its interrupted lend resumed,
    and that is not a Node of Kubernetes yet."""
    interrupted = {
        name: claim.node_type for name, claim in registry.claimed.items() if claim.can_resume
    }
    lendable = {
        name: config.type_of(name) or "" for name, row in batch.items() if row.verdict != "SKIP"
    }
    bare: dict[str, str] = {}
    for name, node_type in sorted({**lendable, **interrupted}.items()):
        if node_type and name not in nodes:
            bare.setdefault(node_type, name)
    return bare


def bridge_bounds(config: Config, registry: Registry, facts: Facts) -> Iterator[Bound]:
    """Yields a bound of zero nodes for each type that must not be lent because of slurm-bridge."""
    nodes, batch = {**(facts.nodes or {}), **facts.with_batch}, facts.batch or {}
    if not (managed := managed_nodes(nodes.values(), batch)):
        return
    for node_type in bare_types(config, registry, nodes, batch):
        yield Bound(
            name=f"nodes that slurm-bridge leaves pods on, as from {managed[0]}, those of type "
            f"{node_type}",
            left=0,
            reason=Reason.BRIDGE_EVICTS,
            node_types=frozenset((node_type,)),
        )


def describe_taint_eviction(taint: Taint) -> str:
    """Returns a clause that names Slinky's taint because of which pods are evicted from a Node. It
    follows the node's name in a message."""
    value = f"={taint.value}" if taint.value else ""
    return f"carries the taint {taint.key}{value}:{taint.effect}, so its pods are evicted"


def eviction_remedy(name: str) -> str:
    """Returns what an administrator can do about a lent node with an evicting taint of Slinky."""
    return (
        "slurm-bridge puts it on each Node that its Slurm knows by the same name (docs/slinky.md); "
        f"the node serves again once it is off; `dnm reset {name}` returns it to Slurm"
    )
