"""Which serving nodes are fenced although their queue uses them, so that they empty by themselves.
Pure.

The rule: a node that leaves is fenced, its pods run on, its queue counts it until it is empty, and
then it goes back whatever its queue wants. `dnm hold` keeps it, and so does the end of the reason:
then the fence comes off. The reasons are rules of their own: `plan/rules`.
Pods are asked to go where a person has said so, and nowhere else: `evictions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from dnm.model.plan import NodeVerdict, Reason, Verdict
from dnm.model.registry import Emptying, Half, Leaving, LentNode, Phase, Registry
from dnm.plan.brakes import is_paused
from dnm.plan.known import Known
from dnm.plan.rule import rules_of

_BY_HAND = "a person returns it"


def plan_leaving(known: Known, registry: Registry) -> Registry:
    """Returns the record with those that leave from now on, at most `max_reversions_per_run` more,
    and without those whose reason is over."""
    for rule in rules_of(known.config, registry, known.facts):
        registry = rule.remembers(known, registry) if rule.remembers else registry
    if is_paused(registry, known.now, Half.RETURNING):
        return registry
    ours = registry.nodes_of(known.config.instance_id, Phase.SERVING, Phase.RELEASING)
    over = {
        name: msgspec.structs.replace(entry, leaves=None, emptying=None)
        for name, entry in ours.items()
        if entry.leaves and (_is_kept(known, registry, name) or _is_over(known, registry, name))
    }
    registry = msgspec.structs.replace(registry, nodes={**registry.nodes, **over})
    left = known.config.max_reversions_per_run
    new: dict[str, LentNode] = {}
    for name, why in _candidates(known, registry):
        entry = registry.nodes[name]
        is_free = entry.leaves is None and not _is_kept(known, registry, name)
        may_leave = is_free and name not in new
        if may_leave and len(new) < left and _is_there(known, name):
            new[name] = msgspec.structs.replace(entry, leaves=why)
    return msgspec.structs.replace(registry, nodes={**registry.nodes, **new})


def _candidates(known: Known, registry: Registry) -> Iterator[tuple[str, Leaving]]:
    for rule in rules_of(known.config, registry, known.facts):
        if rule.leaves and rule.leaving:
            yield from ((name, rule.leaving) for name in rule.leaves(known, registry))


def _is_kept(known: Known, registry: Registry, name: str) -> bool:
    """Whether a person's word keeps it, whatever else speaks for its leaving."""
    return name in registry.held or registry.nodes[name].is_kept_at(known.now)


def _is_there(known: Known, name: str) -> bool:
    """Whether its Node is there and nobody else has cordoned it."""
    node = (known.facts.nodes or {}).get(name)
    return node is not None and not node.is_cordoned_by_another


def _is_over(known: Known, registry: Registry, name: str) -> bool:
    """Whether the reason for which a node leaves holds no longer; that of a rule that is off does
    not."""
    leaves = registry.nodes[name].leaves
    if leaves is Leaving.BY_HAND:
        return False
    rules = rules_of(known.config, registry, known.facts)
    found = next((rule for rule in rules if rule.leaving is leaves), None)
    return found is None or found.is_over is None or found.is_over(known, registry, name)


def leaving_verdict(known: Known, registry: Registry, name: str, stopped: str = "") -> NodeVerdict:
    """What is said of a node that leaves; `stopped`: why nobody is asked to go now."""
    entry = registry.nodes[name]
    detail = _BY_HAND if entry.leaves is Leaving.BY_HAND else "what spoke for it is over"
    for rule in rules_of(known.config, registry, known.facts):
        if rule.leaving is entry.leaves:
            detail = rule.why_leaving
    if entry.emptying is not None:
        detail += f", and its pods are {_emptied(entry.emptying, known.now, stopped)}"
    return NodeVerdict(node=name, verdict=Verdict.REVERT, reason=Reason.LEAVING, detail=detail)


def _emptied(emptying: Emptying, now: datetime, stopped: str) -> str:
    if now < emptying.since:
        return f"asked to go from {emptying.since:%Y-%m-%d %H:%M:%S} UTC on"
    if stopped:
        return f"not asked to go: {stopped}"
    return f"asked to go: {emptying.why}" if emptying.why else "asked to go"
