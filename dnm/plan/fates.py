"""What becomes of each lent node in this run: one fate a node, by the table in `fate.py`. Pure.

A return takes two runs at least. The first shrinks the queue and fences the node; demand that comes
back before the converter is asked takes the fence off again. The second has seen the fence, no pod
on the node, the queue without it, and Slurm without it, and only then has it returned.

A node that leaves although its queue uses it is fenced, its pods run on, its queue counts it until
it is empty, and then it goes back whatever its queue wants. `dnm hold` keeps it, and so does the
end of the reason: then the fence comes off. The reasons are rules of their own: `plan/rules`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from dnm.demand.demand import Demand
from dnm.model.lent import TOLD_TO_GO, Leaving, LentNode, Phase
from dnm.model.observed import StalledPods
from dnm.model.orders import Way
from dnm.model.plan import RelabelNode
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.advance import Advanced
from dnm.plan.breaker import forgive
from dnm.plan.facts import enter_phase, node_verdict
from dnm.plan.fate import Case, Fate, find_fate
from dnm.plan.hooks import Look, Moves
from dnm.plan.inputs import Inputs, demand_of
from dnm.plan.lendable import conversion_budget, node_supply
from dnm.plan.limits import StandingLimits
from dnm.plan.rule import rules_of
from dnm.sizing.node_supply import is_sound
from dnm.sizing.releases import (
    IS_USED,
    Candidates,
    Releases,
    choose_releases,
    judge_fenced,
    keeps_ready,
)


class Fates(Value):
    """`of`: of the nodes that are up for anything; of the others the look has said all.
    `demand`: without the pods that were found to wait for something else. `relabels`: the exchange
    of labels and taints. `returned`: those that the converter is called for."""

    registry: Registry
    verdicts: Mapping[str, NodeVerdict]
    demand: Demand | None
    of: Mapping[str, Fate] = {}
    relabels: tuple[RelabelNode, ...] = ()
    returned: tuple[str, ...] = ()

    def fated(self, fate: Fate) -> list[str]:
        """Returns the nodes of this fate, in the order of their names."""
        return sorted(name for name, item in self.of.items() if item is fate)


def decide_fates(inputs: Inputs, seen: Advanced, standing: StandingLimits) -> Fates:
    """Judges those that are fenced, lets those move that another queue wants, then chooses whom to
    fence next."""
    look = Look(inputs=inputs, nodes=seen.nodes, standing=standing)
    is_whole = inputs.demand is not None and inputs.facts.nodes is not None
    fates = Fates(registry=standing.registry, verdicts=seen.verdicts, demand=inputs.demand)
    if is_whole:
        fates = msgspec.structs.replace(fates, registry=_with_leaving(inputs, fates.registry))
    fates = _return(look, _reopen(look, _judge_fenced(look, fates)))
    left = inputs.config.max_reversions_per_run
    if is_whole:
        moves = _moves(look, fates)
        fates = msgspec.structs.replace(
            fates,
            registry=moves.registry,
            verdicts={**fates.verdicts, **moves.verdicts},
            relabels=moves.relabels,
        )
        left -= len(moves.begun)
    serving = [
        name
        for name, entry in _ours(look, fates, Phase.SERVING).items()
        if entry.leaves or _was_serving(look, name)
    ]
    fates = _fence_empty(look, _judged(look, fates, serving), left)
    return _keep_ready(look, _fence_spare(look, fates, left - len(fates.fated(Fate.GOES))))


def _ours(look: Look, fates: Fates, *phases: Phase) -> dict[str, LentNode]:
    return fates.registry.nodes_of(look.inputs.config.instance_id, *phases)


def _was_serving(look: Look, name: str) -> bool:
    entry = look.nodes[name].entry
    return entry is not None and entry.phase is Phase.SERVING


def _judged(
    look: Look, fates: Fates, names: Iterable[str], wanted: Mapping[str, NodeVerdict] = {}
) -> Fates:
    """With the fate of each of these nodes, and what is said of it."""
    of, verdicts = dict(fates.of), dict(fates.verdicts)
    for name in names:
        case = Case(
            name=name,
            entry=fates.registry.nodes[name],
            seen=look.nodes[name],
            inputs=look.inputs,
            registry=fates.registry,
            objection=look.standing.objection,
            wanted=wanted.get(name),
        )
        if (found := find_fate(case)) is not None:
            of[name], verdicts[name] = found
    return msgspec.structs.replace(fates, of=of, verdicts=verdicts)


def _with_nodes(fates: Fates, nodes: Mapping[str, LentNode]) -> Fates:
    registry = msgspec.structs.replace(fates.registry, nodes={**fates.registry.nodes, **nodes})
    return msgspec.structs.replace(fates, registry=registry)


# --- those that leave whatever their queues want -----------------------------------------------


def _with_leaving(inputs: Inputs, registry: Registry) -> Registry:
    """The record with those that leave from now on, at most `max_reversions_per_run` more, and
    without those whose reason is over."""
    if inputs.paused(Way.RETURNING):
        return registry
    ours = registry.nodes_of(inputs.config.instance_id, Phase.SERVING, Phase.RELEASING)
    over = {
        name: msgspec.structs.replace(entry, leaves=None, emptying=None)
        for name, entry in ours.items()
        if entry.leaves and (inputs.is_kept(name, entry) or _is_over(inputs, registry, name))
    }
    registry = msgspec.structs.replace(registry, nodes={**registry.nodes, **over})
    left = inputs.config.max_reversions_per_run
    new: dict[str, LentNode] = {}
    for name, why in _who_leaves(inputs, registry):
        entry = registry.nodes[name]
        gone = msgspec.structs.replace(entry, leaves=why)
        leaves_for_less = why in TOLD_TO_GO and entry.leaves not in TOLD_TO_GO
        is_free = (entry.leaves is None or leaves_for_less) and not inputs.is_kept(name, gone)
        if is_free and name not in new and len(new) < left and _can_leave(inputs, name):
            new[name] = gone
    return msgspec.structs.replace(registry, nodes={**registry.nodes, **new})


def _who_leaves(inputs: Inputs, registry: Registry) -> Iterator[tuple[str, str]]:
    for rule in rules_of(inputs.config, registry, inputs.facts):
        if rule.leave and rule.leave.find_nodes:
            yield from ((name, rule.leave.word) for name in rule.leave.find_nodes(inputs, registry))


def _can_leave(inputs: Inputs, name: str) -> bool:
    """Whether its Node is there, nobody else has cordoned it, and who is on it can be told."""
    node = inputs.facts.node(name)
    return node is not None and not node.is_cordoned_by_another and inputs.facts.sees_all_pods


def _is_over(inputs: Inputs, registry: Registry, name: str) -> bool:
    """Whether the reason for which a node leaves holds no longer; that of a rule that is off does
    not."""
    leaves = registry.nodes[name].leaves
    if leaves == Leaving.BY_HAND:
        return False
    rules = rules_of(inputs.config, registry, inputs.facts)
    reasons = (rule.leave for rule in rules if rule.leave)
    found = next((reason for reason in reasons if reason.word == leaves), None)
    return found is None or bool(found.is_over and found.is_over(inputs, registry, name))


# --- those that are fenced ----------------------------------------------------------------------


def _judge_fenced(look: Look, fates: Fates) -> Fates:
    """Whatever has come to speak for a fenced node before the converter was asked, wins."""
    fenced, inputs = _ours(look, fates, Phase.RELEASING, Phase.RETURNING), look.inputs
    stays = {
        name: node
        for name, node in fenced.items()
        if node.phase is Phase.RELEASING and not node.leaves
        if is_sound(inputs.config, inputs.facts.node(name), node.node_type)
    }
    wanted: Mapping[str, NodeVerdict] = {}
    if stays and inputs.demand is not None and inputs.facts.nodes is not None:
        wanted = judge_fenced(
            inputs.config,
            inputs.demand,
            look.standing.limits,
            node_supply(inputs, fates.registry),
            stays,
            conversion_budget(inputs.config, fates.registry, inputs.facts),
        )
    return _judged(look, fates, fenced, wanted)


def _reopen(look: Look, fates: Fates) -> Fates:
    """Those that stay serve again; one that Slurm has in service is found by the next look to be
    offered to both, which calls a person."""
    now, nodes = look.inputs.now, fates.registry.nodes
    serve = {
        name: enter_phase(nodes[name], Phase.SERVING, now, idle_since=None)
        for name in fates.fated(Fate.STAYS)
    }
    offered = {
        name: enter_phase(nodes[name], Phase.RETURNING, now) for name in fates.fated(Fate.OFFERED)
    }
    return _with_nodes(fates, {**serve, **offered})


def _return(look: Look, fates: Fates) -> Fates:
    """Hands nodes to the converter, oldest first, within the run's budget."""
    most, nodes = look.inputs.config.max_reversions_per_run, fates.registry.nodes
    names = sorted(fates.fated(Fate.RETURNS), key=lambda name: (nodes[name].since, name))
    budget = f"max_conversions_per_run lets {most} go back in a run"
    late = {name: node_verdict(name, Verdict.WAIT, Reason.BUDGET, budget) for name in names[most:]}
    begun = {
        name: enter_phase(nodes[name], Phase.RETURNING, look.inputs.now)
        for name in names[:most]
        if nodes[name].phase is Phase.RELEASING
    }
    return msgspec.structs.replace(
        _with_nodes(fates, begun),
        verdicts={**fates.verdicts, **late},
        of={**fates.of, **dict.fromkeys(late, Fate.WAITS)},
        returned=tuple(names[:most]),
    )


def _moves(look: Look, fates: Fates) -> Moves:
    inputs, moves = look.inputs, Moves(registry=fates.registry)
    for rule in rules_of(inputs.config, fates.registry, inputs.facts):
        moves = rule.moves(look, moves.registry) if rule.moves else moves
    return moves


# --- those that are fenced next -----------------------------------------------------------------


def _fence_empty(look: Look, fates: Fates, most: int) -> Fates:
    """Nodes that leave and are empty: they are fenced already, and their queue shrinks now."""
    names = fates.fated(Fate.GOES)
    nodes = {
        name: enter_phase(fates.registry.nodes[name], Phase.RELEASING, look.inputs.now)
        for name in names[:most]
    }
    later = dict.fromkeys(names[most:], Fate.LEAVES)
    return msgspec.structs.replace(_with_nodes(fates, nodes), of={**fates.of, **later})


def _fence_spare(look: Look, fates: Fates, most: int) -> Fates:
    """Those of the idle nodes that their queues can spare are released."""
    inputs, registry, names = look.inputs, fates.registry, tuple(fates.fated(Fate.MAY_GO))
    if not names or inputs.demand is None:
        return fates
    asked = Candidates(
        names=names,
        at_most=most,
        budget=conversion_budget(inputs.config, registry, inputs.facts),
    )
    supply = node_supply(inputs, registry)
    chosen = choose_releases(inputs.config, inputs.demand, look.standing.limits, supply, asked)
    stalled, demand = registry.stalled, inputs.demand
    if chosen.stalled:
        # From now on they ask for nothing.
        stalled = {**stalled, **chosen.stalled}
        found = demand_of(inputs.config, inputs.snapshot, inputs.limits, stalled)
        demand = msgspec.structs.replace(found, mark=demand.mark) if found else demand
        stalled = dict(demand.stalled)
    chosen, clocks = _with_clocks(chosen, registry.nodes, inputs.now)
    gone = {
        name: enter_phase(registry.nodes[name], Phase.RELEASING, inputs.now) for name in chosen.go
    }
    of = {name: Fate.GOES if name in gone else Fate.STAYS for name in names}
    return msgspec.structs.replace(
        fates,
        demand=demand,
        registry=_once_gone(inputs, registry, {**clocks, **gone}, chosen.go, stalled),
        verdicts={**fates.verdicts, **chosen.verdicts},
        of={**fates.of, **of},
    )


def _keep_ready(look: Look, fates: Fates) -> Fates:
    """Reports that `min_nodes` keeps an idle node before its idle time is over: it does not go back
    then."""
    policies = look.inputs.config.namespaces
    if not any(policy.min_nodes for policy in policies.values()):
        return fates
    nodes = _ours(look, fates, Phase.JOINING, Phase.SERVING)
    verdicts = dict(fates.verdicts)
    for namespace, policy in policies.items():
        here = {name: node for name, node in nodes.items() if node.namespace == namespace}
        ready = Counter(node.node_type for node in here.values() if not node.leaves)
        for request in fates.registry.requests:
            ready[request.node_type] += request.count * (request.namespace == namespace)
        for name, entry in here.items():
            kept = keeps_ready(policy, entry, ready)
            if kept and entry.idle_since and verdicts[name].reason is Reason.IDLE:
                verdicts[name] = node_verdict(name, Verdict.KEEP, kept.reason, kept.detail)
    return msgspec.structs.replace(fates, verdicts=verdicts)


def _with_clocks(
    chosen: Releases, nodes: Mapping[str, LentNode], now: datetime
) -> tuple[Releases, dict[str, LentNode]]:
    """A node whose quota pods elsewhere used until now was of use as if they had been on it: its
    idle time begins when it is needed no more."""
    clocks: dict[str, LentNode] = {}
    verdicts = dict(chosen.verdicts)
    for name, verdict in chosen.verdicts.items():
        is_needed = verdict.reason is Reason.NEEDED and verdict.detail.endswith(IS_USED)
        if is_needed and not nodes[name].is_needed:
            clocks[name] = msgspec.structs.replace(nodes[name], is_needed=True, was_used=True)
        elif nodes[name].is_needed and not is_needed:
            clocks[name] = msgspec.structs.replace(nodes[name], is_needed=False, idle_since=now)
            verdicts[name] = node_verdict(
                name, Verdict.KEEP, Reason.IDLE, "it was needed until now"
            )
    go = tuple(name for name in chosen.go if verdicts[name].verdict is Verdict.REVERT)
    return msgspec.structs.replace(chosen, go=go, verdicts=verdicts), clocks


def _once_gone(
    inputs: Inputs,
    registry: Registry,
    changed: Mapping[str, LentNode],
    gone: Iterable[str],
    stalled: Mapping[str, StalledPods],
) -> Registry:
    """The record once these have gone: which pods wait for something else, and which nodes are held
    against nobody although they went unused."""
    breakers = dict(registry.breakers)
    for name in gone:
        entry = registry.nodes[name]
        if not entry.was_used and _is_excused(inputs, entry):
            breakers = forgive(breakers, entry.queue)
    return msgspec.structs.replace(
        registry,
        nodes={**registry.nodes, **changed},
        stalled=dict(stalled),
        breakers=breakers,
    )


def _is_excused(inputs: Inputs, entry: LentNode) -> bool:
    """Whether a rule wanted the node there although nobody came to use it."""
    rules = rules_of(inputs.config, inputs.registry, inputs.facts)
    return any(rule.excuses(inputs, entry) for rule in rules if rule.excuses)
