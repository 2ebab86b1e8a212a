"""The actions of a plan, in their order. Pure.

Overdue converters are ended first. Then come marks and lifted fences (dnm's cordons), the edit of
limits, new fences, evictions, moves, lends and returns. So a fence is lifted before the limit
grows, and a limit shrinks before its node is fenced. `planner.py` appends the actions of rules."""

from __future__ import annotations

import msgspec

from dnm.model.lent import LentNode, Phase
from dnm.model.node import Mark, Node
from dnm.model.plan import (
    Action,
    EndConverter,
    Fence,
    MarkNode,
    ReturnNode,
    StartConversion,
    Unfence,
)
from dnm.model.registry import Registry
from dnm.plan.conversions import Decided
from dnm.plan.decision_table import NodeDecision
from dnm.plan.facts import Facts
from dnm.plan.inputs import Inputs
from dnm.plan.node_decisions import NodeDecisions
from dnm.plan.requests import calls_until

_IN_USE = (Phase.JOINING, Phase.SERVING, Phase.RELEASING)
_FENCED_PHASES = (Phase.RELEASING, Phase.MOVING)


def list_actions(decided: Decided) -> list[Action]:
    """Returns the actions that the decisions of this run still require, in their order."""
    inputs, decisions, limits = decided.inputs, decided.decisions, decided.limits
    registry, nodes = decided.conversions.registry, inputs.facts.nodes or {}
    own_nodes = [
        (name, entry)
        for name, entry in sorted(registry.nodes.items())
        if name in nodes and entry.owner == inputs.config.instance_id
    ]
    actions: list[Action] = []
    if inputs.facts.running:
        actions += overdue_converters(inputs, registry)
    actions += [
        MarkNode(node=name, mark=entry.mark)
        for name, entry in own_nodes
        if entry.phase in _IN_USE and _needs_mark(nodes[name], entry.mark)
    ]
    actions += [
        Unfence(node=name)
        for name, entry in own_nodes
        if entry.phase is Phase.SERVING and nodes[name].carries_fence and not entry.leaves
    ]
    if limits.action is not None and limits.is_changed:
        actions.append(limits.action)
    actions += [
        Fence(node=name)
        for name, entry in own_nodes
        if (
            entry.phase in _FENCED_PHASES
            or name in decisions.returned
            or _leaves(decisions, name, entry)
        )
        and not nodes[name].is_cordoned
        and not _cancels_move(entry)
    ]
    if any(entry.eviction for _, entry in own_nodes):
        from dnm.plan.evictions import list_evictions

        actions += list_evictions(decided)
    actions += decisions.relabels
    actions += [StartConversion(request=request) for request in decided.conversions.requests]
    actions += [ReturnNode(node=name) for name in decisions.returned]
    return actions


def overdue_converters(inputs: Inputs, registry: Registry) -> list[EndConverter]:
    """Returns an action to end each converter that outlived its run and exceeds its time limit."""
    facts = inputs.facts
    recorded = msgspec.structs.replace(registry, requests=inputs.registry.requests)
    return [
        EndConverter(key=key, process=process)
        for key, process, until in calls_until(inputs.config, recorded)
        if facts.is_running(process) and process not in facts.elsewhere and inputs.now > until
    ]


def find_conflicts(facts: Facts, registry: Registry) -> list[str]:
    """Returns an error for each node that both Slurm and Kubernetes have in service."""
    conflicts = []
    for name, entry in sorted(registry.nodes.items()):
        node = facts.node(name)
        is_offered = entry.phase is Phase.SERVING or (
            entry.phase is Phase.FAILED and node is not None and not node.is_cordoned
        )
        if is_offered and node is not None and facts.is_in_service(name):
            conflicts.append(
                f"{name} is offered to Slurm and to Kubernetes at once: drain it in Slurm now "
                f"(scontrol update nodename={name} state=drain reason=...)"
            )
    return conflicts


def _cancels_move(entry: LentNode) -> bool:
    """Returns whether the node moves back to its old queue, so that it need not be cordoned."""
    return entry.phase is Phase.MOVING and entry.heads_for == entry.namespace


def _leaves(decisions: NodeDecisions, name: str, entry: LentNode) -> bool:
    """Returns whether a serving node must be cordoned to be returned; no if returns are paused."""
    if entry.phase is not Phase.SERVING or entry.leaves is None:
        return False
    return decisions.by_node.get(name) is not NodeDecision.PAUSED


def _needs_mark(node: Node, mark: Mark) -> bool:
    """Returns whether dnm's annotations must be written on the Node. Another instance's annotations
    stay: the ledger, stored with the limits, decides which instance owns the node."""
    if not node.is_free_for(mark.instance):
        return False
    return node.mark is None or msgspec.structs.replace(node.mark, fenced=False) != mark
