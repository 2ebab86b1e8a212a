"""`fault_conditions`: a lent node that reports a fault in Kubernetes is returned. Pure.

A lent node that shows one of the configured conditions or taints (signs) is fenced, its pods are
evicted, and it is returned. It stays drained in Slurm, with the sign as the reason, until an
administrator or the site's health check resumes it. It stays faulty even if the sign disappears."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from dnm.model.departure import Departure, Eviction, Leaving
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Node
from dnm.model.opening import Check
from dnm.model.registry import Registry
from dnm.plan.hooks import Leave, Rule, in_a_run
from dnm.plan.inputs import Inputs

_IN_USE = (Phase.SERVING, Phase.RELEASING)


def sign_of(step: Check, node: Node) -> str:
    """Returns the configured sign of a fault that the Node shows: a taint, or a condition with its
    status. Returns an empty text if it shows none."""
    name = step.name.rpartition("/")[2]
    if step.kind == "taint":
        return f"taint:{name}" if any(taint.key == step.name for taint in node.taints) else ""
    is_shown = node.conditions.get(step.name) == step.status
    return f"{name}:{step.status}" if is_shown else ""


def _record_signs(inputs: Inputs, registry: Registry) -> Registry:
    """Returns the registry with the faults that lent nodes show, and evictions of their pods."""
    if inputs.demand is None or inputs.facts.nodes is None:
        return registry
    nodes = dict(registry.nodes)
    for name, entry in registry.nodes_of(inputs.config.instance_id, *_IN_USE).items():
        node = inputs.facts.node(name)
        if node is not None and not entry.fault:
            entry = replace(entry, fault=_first_sign(inputs, node))
        nodes[name] = _with_eviction(inputs, entry)
    return replace(registry, nodes=nodes)


def _first_sign(inputs: Inputs, node: Node) -> str:
    return next(
        (sign for step in inputs.config.fault_conditions if (sign := sign_of(step, node))), ""
    )


def _with_eviction(inputs: Inputs, entry: LentNode) -> LentNode:
    if entry.departure == Departure(reason=Leaving.FAULTY):  # without an eviction yet
        eviction = Eviction(since=inputs.now)
        return replace(entry, departure=Departure(reason=Leaving.FAULTY, eviction=eviction))
    return entry


def _faulty_nodes(inputs: Inputs, registry: Registry) -> Iterator[str]:
    own_nodes = registry.nodes_of(inputs.config.instance_id, *_IN_USE)
    yield from (name for name, entry in own_nodes.items() if entry.fault)


RULE = Rule(
    records=in_a_run(_record_signs),
    leave=Leave(
        word=Leaving.FAULTY, reason="Kubernetes reports a fault of it", find_nodes=_faulty_nodes
    ),
)
