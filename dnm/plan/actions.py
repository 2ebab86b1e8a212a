"""The actions of a plan, in their order. Pure.

Converters that hang are ended, marks and lifted fences, then the queue edit, then new fences, then
evictions behind them, then nodes that change their queue, then conversions, then returns. So
capacity grows before promises, and promises shrink before capacity. What only shows something comes
last.
"""

from __future__ import annotations

import msgspec

from dnm.model.cluster import Mark, Node
from dnm.model.plan import (
    Action,
    EndConverter,
    Fence,
    MarkNode,
    ReturnNode,
    StartConversion,
    Unfence,
)
from dnm.model.registry import Half, LentNode, Phase
from dnm.plan.brakes import is_paused
from dnm.plan.conversions import Converted
from dnm.plan.ended_calls import calls_until
from dnm.plan.evictions import list_evictions
from dnm.plan.rule import rules_of

_IN_USE = (Phase.JOINING, Phase.SERVING, Phase.RELEASING)
_GOES = (Phase.RELEASING, Phase.MOVING)


def list_actions(converted: Converted) -> list[Action]:
    """What follows from the decisions and from what is there already."""
    returned, registry = converted.returned, converted.registry
    limits, known = converted.limits, converted.known
    nodes = known.facts.nodes or {}
    ours = [
        (name, entry)
        for name, entry in sorted(registry.nodes.items())
        if name in nodes and entry.owner == known.config.instance_id
    ]
    actions: list[Action] = [*overdue_converters(converted)]
    actions += [
        MarkNode(node=name, mark=entry.mark)
        for name, entry in ours
        if entry.phase in _IN_USE and _lacks(nodes[name], entry.mark)
    ]
    actions += [
        Unfence(node=name)
        for name, entry in ours
        if entry.phase is Phase.SERVING and nodes[name].carries_fence and not entry.leaves
    ]
    if limits.action is not None and limits.is_changed:
        actions.append(limits.action)
    actions += [
        Fence(node=name)
        for name, entry in ours
        if (entry.phase in _GOES or name in returned.names or _leaves(converted, entry))
        and not nodes[name].is_cordoned
        and not _turns_back(entry)
    ]
    if any(entry.emptying for _, entry in ours):
        actions += list_evictions(converted)
    rules = rules_of(known.config, registry, known.facts)
    actions += [
        rule.dresses(known, name, registry.nodes[name])
        for rule in rules
        if rule.dresses
        for name in limits.fenced.dress
    ]
    actions += [StartConversion(request=request) for request in converted.requests]
    actions += [ReturnNode(node=name) for name in returned.names]
    for rule in rules:
        actions += rule.shows(known.config, registry, known.facts) if rule.shows else ()
    return actions


def overdue_converters(converted: Converted) -> list[EndConverter]:
    """Converters at work for longer than any run would have let them: their runs are gone."""
    known = converted.known
    facts = known.facts
    recorded = msgspec.structs.replace(converted.registry, requests=known.registry.requests)
    return [
        EndConverter(key=key, process=process)
        for key, process, until in calls_until(known.config, recorded)
        if facts.is_running(process) and process not in facts.elsewhere and known.now > until
    ]


def find_conflicts(converted: Converted) -> list[str]:
    """A serving node that Slurm also has in service is the worst that can be found."""
    facts = converted.known.facts
    conflicts = []
    for name, entry in sorted(converted.registry.nodes.items()):
        node = (facts.nodes or {}).get(name)
        is_offered = entry.phase is Phase.SERVING or (
            entry.phase is Phase.FAILED and node is not None and not node.is_cordoned
        )
        if is_offered and node is not None and facts.is_in_service(name):
            conflicts.append(
                f"{name} is offered to Slurm and to Kubernetes at once: drain it in Slurm now "
                f"(scontrol update nodename={name} state=drain reason=...)"
            )
    return conflicts


def _turns_back(entry: LentNode) -> bool:
    """Whether it serves its old queue on as soon as its labels say so, fenced or not."""
    return entry.phase is Phase.MOVING and entry.heads_for == entry.namespace


def _leaves(converted: Converted, entry: LentNode) -> bool:
    """Whether it serves its pods and takes no more. A pause fences nobody anew."""
    if entry.phase is not Phase.SERVING or entry.leaves is None:
        return False
    return not is_paused(converted.registry, converted.known.now, Half.RETURNING)


def _lacks(node: Node, mark: Mark) -> bool:
    """Whether the mark is to be written. Another instance's is not written over: the ledger tells
    whose the node is."""
    if node.mark is not None and node.mark.instance not in ("", mark.instance):
        return False
    return node.mark is None or msgspec.structs.replace(node.mark, fenced=False) != mark
