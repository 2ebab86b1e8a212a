"""The decision about each lent node in this run, by the table in `decision_table.py`. Pure.

A return takes at least two runs. The first shrinks the queue and fences the node; if demand returns
before the converter is called, the fence is lifted. The second returns the node after it has seen
the fence, no pod on the node, limits that do not count it, and no use of it by Slurm.

A node that leaves although its queue uses it is fenced. Its pods keep running, its queue counts it
until it is empty, and then it is returned even if its queue needs it. `dnm hold` or the end of the
reason keeps it: the fence is lifted. The reasons to leave come from rules: `plan/rules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from dnm.demand.demand import Demand
from dnm.model.departure import OVERRIDES_STAY, Leaving
from dnm.model.lent import LentNode, Phase
from dnm.model.lent_state import Releasing, Returning, Serving
from dnm.model.observed import StalledPods
from dnm.model.orders import Way
from dnm.model.plan import RelabelNode
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.advance import Advanced
from dnm.plan.breaker import forgive
from dnm.plan.decision_table import Case, NodeDecision, decide_node
from dnm.plan.facts import changed, node_verdict
from dnm.plan.hooks import Look, Moves
from dnm.plan.inputs import Inputs, demand_of
from dnm.plan.lendable import conversion_budget, node_supply
from dnm.plan.limits import CurrentLimits, limits_objection_to
from dnm.plan.rule import rules_of
from dnm.sizing.node_supply import is_sound
from dnm.sizing.releases import Candidates, Releases, choose_releases, judge_fenced, keeps_ready


class NodeDecisions(Value):
    """The decisions of a run about lent nodes. `by_node` has one for each node that needed one.
    `demand` omits pods that wait for something else than nodes. `relabels` exchanges labels and
    taints. `returned` has the nodes that are passed to the converter."""

    registry: Registry
    verdicts: Mapping[str, NodeVerdict]
    demand: Demand | None
    by_node: Mapping[str, NodeDecision] = {}
    relabels: tuple[RelabelNode, ...] = ()
    returned: tuple[str, ...] = ()

    def nodes_with(self, decision: NodeDecision) -> list[str]:
        """Returns the nodes about which this decision was made, sorted by name."""
        return sorted(name for name, item in self.by_node.items() if item is decision)


def decide_nodes(inputs: Inputs, seen: Advanced, current: CurrentLimits) -> NodeDecisions:
    """Decides about cordoned nodes, then about moves to another queue, then about new cordons."""
    look = Look(inputs=inputs, nodes=seen.nodes, current=current)
    is_complete = inputs.demand is not None and inputs.facts.nodes is not None
    registry = _record_leaving(inputs, current.registry) if is_complete else current.registry
    decisions = NodeDecisions(registry=registry, verdicts=seen.verdicts, demand=inputs.demand)
    decisions = _return(look, _reopen(look, _decide_fenced(look, decisions)))
    left = inputs.config.max_reversions_per_run
    if is_complete:
        moves = _plan_moves(look, decisions)
        decisions = msgspec.structs.replace(
            decisions,
            registry=moves.registry,
            verdicts={**decisions.verdicts, **moves.verdicts},
            relabels=moves.relabels,
        )
        left -= len(moves.begun)
    serving = [
        name
        for name, entry in _own_nodes(look, decisions, Phase.SERVING).items()
        if entry.leaves or _was_serving(look, name)
    ]
    decisions = _fence_empty(look, _decide(look, decisions, serving), left)
    left -= len(decisions.nodes_with(NodeDecision.RELEASED))
    return _report_kept_ready(look, release_idle(look, decisions, left))


def _own_nodes(look: Look, decisions: NodeDecisions, *phases: Phase) -> dict[str, LentNode]:
    return decisions.registry.nodes_of(look.inputs.config.instance_id, *phases)


def _was_serving(look: Look, name: str) -> bool:
    entry = look.nodes[name].entry
    return entry is not None and entry.phase is Phase.SERVING


def _decide(
    look: Look,
    decisions: NodeDecisions,
    names: Iterable[str],
    wanted: Mapping[str, NodeVerdict] = {},
) -> NodeDecisions:
    """Returns the decisions with one more, and its reason, for each node in `names`."""
    by_node, verdicts = dict(decisions.by_node), dict(decisions.verdicts)
    nodes = decisions.registry.nodes
    for name in names:
        case = Case(
            name=name,
            entry=nodes[name],
            seen=look.nodes[name],
            inputs=look.inputs,
            registry=decisions.registry,
            objection=limits_objection_to(look.inputs, look.current, nodes[name].queue),
            wanted=wanted.get(name),
        )
        if (decision := decide_node(case)) is not None:
            by_node[name], verdicts[name] = decision
    return msgspec.structs.replace(decisions, by_node=by_node, verdicts=verdicts)


def _with_nodes(decisions: NodeDecisions, nodes: Mapping[str, LentNode]) -> NodeDecisions:
    registry = msgspec.structs.replace(
        decisions.registry, nodes={**decisions.registry.nodes, **nodes}
    )
    return msgspec.structs.replace(decisions, registry=registry)


# --- nodes that leave even if their queues need them -------------------------------------------


def _record_leaving(inputs: Inputs, registry: Registry) -> Registry:
    """Returns the registry in which nodes with a reason to leave begin to leave, at most
    `max_reversions_per_run` of them. A node stops leaving if its reason has ended."""
    if inputs.paused(Way.RETURNING):
        return registry
    own_nodes = registry.nodes_of(inputs.config.instance_id, Phase.SERVING, Phase.RELEASING)
    over = {
        name: changed(entry, departure=None)
        for name, entry in own_nodes.items()
        if entry.leaves and (inputs.is_kept(name, entry) or _is_over(inputs, registry, name))
    }
    registry = msgspec.structs.replace(registry, nodes={**registry.nodes, **over})
    left = inputs.config.max_reversions_per_run
    new: dict[str, LentNode] = {}
    for name, word in _list_leaving(inputs, registry):
        entry = registry.nodes[name]
        leaving = entry.leave(word)
        leaves_for_less = word in OVERRIDES_STAY and entry.leaves not in OVERRIDES_STAY
        is_free = (entry.leaves is None or leaves_for_less) and not inputs.is_kept(name, leaving)
        if is_free and name not in new and len(new) < left and _can_leave(inputs, name):
            new[name] = leaving
    return msgspec.structs.replace(registry, nodes={**registry.nodes, **new})


def _list_leaving(inputs: Inputs, registry: Registry) -> Iterator[tuple[str, str]]:
    for rule in rules_of(inputs.config, registry, inputs.facts):
        if rule.leave and rule.leave.find_nodes:
            yield from ((name, rule.leave.word) for name in rule.leave.find_nodes(inputs, registry))


def _can_leave(inputs: Inputs, name: str) -> bool:
    """Returns whether a Node exists without an administrator's cordon, and all pods were read."""
    node = inputs.facts.node(name)
    return node is not None and not node.is_cordoned_by_another and inputs.facts.sees_all_pods


def _is_over(inputs: Inputs, registry: Registry, name: str) -> bool:
    """Returns whether the reason for which a node leaves has ended, or its rule is disabled."""
    leaves = registry.nodes[name].leaves
    if leaves == Leaving.MANUAL:
        return False
    rules = rules_of(inputs.config, registry, inputs.facts)
    reasons = (rule.leave for rule in rules if rule.leave)
    active = next((reason for reason in reasons if reason.word == leaves), None)
    return active is None or bool(active.is_over and active.is_over(inputs, registry, name))


# --- fenced nodes -------------------------------------------------------------------------------


def _decide_fenced(look: Look, decisions: NodeDecisions) -> NodeDecisions:
    """Decides about cordoned nodes: any reason to keep one wins until the converter is called."""
    fenced, inputs = _own_nodes(look, decisions, Phase.RELEASING, Phase.RETURNING), look.inputs
    staying = {
        name: node
        for name, node in fenced.items()
        if node.phase is Phase.RELEASING and not node.leaves
        if is_sound(inputs.config, inputs.facts.node(name), node.node_type)
    }
    wanted: Mapping[str, NodeVerdict] = {}
    if staying and inputs.demand is not None and inputs.facts.nodes is not None:
        wanted = judge_fenced(
            inputs.config,
            inputs.demand,
            look.current.limits,
            node_supply(inputs, decisions.registry),
            staying,
            conversion_budget(inputs.config, decisions.registry, inputs.facts),
        )
    return _decide(look, decisions, fenced, wanted)


def _reopen(look: Look, decisions: NodeDecisions) -> NodeDecisions:
    """Puts nodes that were to be returned, but now stay lent, into phase serving again. Nodes that
    Slurm uses already get the phase returning, and the next run reports them as failed."""
    now, nodes = look.inputs.now, decisions.registry.nodes
    reopened = {
        name: changed(nodes[name], state=Serving(since=now), idle_since=None)
        for name in decisions.nodes_with(NodeDecision.STAYS)
    }
    offered = {
        name: changed(nodes[name], state=Returning(since=now))
        for name in decisions.nodes_with(NodeDecision.OFFERED)
    }
    return _with_nodes(decisions, {**reopened, **offered})


def _return(look: Look, decisions: NodeDecisions) -> NodeDecisions:
    """Passes nodes to the converter, the longest cordoned first, as many as a run may return."""
    most, nodes = look.inputs.config.max_reversions_per_run, decisions.registry.nodes
    names = sorted(
        decisions.nodes_with(NodeDecision.RETURNS), key=lambda name: (nodes[name].since, name)
    )
    budget = f"max_conversions_per_run allows {most} returns in a run"
    late = {name: node_verdict(name, Verdict.WAIT, Reason.BUDGET, budget) for name in names[most:]}
    begun = {
        name: changed(nodes[name], state=Returning(since=look.inputs.now))
        for name in names[:most]
        if nodes[name].phase is Phase.RELEASING
    }
    return msgspec.structs.replace(
        _with_nodes(decisions, begun),
        verdicts={**decisions.verdicts, **late},
        by_node={**decisions.by_node, **dict.fromkeys(late, NodeDecision.WAITS)},
        returned=tuple(names[:most]),
    )


def _plan_moves(look: Look, decisions: NodeDecisions) -> Moves:
    inputs, moves = look.inputs, Moves(registry=decisions.registry)
    for rule in rules_of(inputs.config, decisions.registry, inputs.facts):
        moves = rule.moves(look, moves.registry) if rule.moves else moves
    return moves


# --- nodes to fence next ------------------------------------------------------------------------


def _fence_empty(look: Look, decisions: NodeDecisions, most: int) -> NodeDecisions:
    """Cordons up to `most` empty nodes that leave, and takes them out of their queues' limits."""
    names = decisions.nodes_with(NodeDecision.RELEASED)
    nodes = {
        name: changed(decisions.registry.nodes[name], state=Releasing(since=look.inputs.now))
        for name in names[:most]
    }
    later = dict.fromkeys(names[most:], NodeDecision.LEAVES)
    return msgspec.structs.replace(
        _with_nodes(decisions, nodes), by_node={**decisions.by_node, **later}
    )


def release_idle(look: Look, decisions: NodeDecisions, most: int) -> NodeDecisions:
    """Decides which idle nodes are released: cordoned now, and returned by a later run. `_idle` in
    `phases.py` has checked their idle time. The table's rows `At.IDLE` have checked commands,
    pauses and unknown facts, and decided RELEASABLE. `choose_releases` then keeps those that a
    queue needs."""
    inputs, registry = look.inputs, decisions.registry
    names = tuple(decisions.nodes_with(NodeDecision.RELEASABLE))
    if not names or inputs.demand is None:
        return decisions
    candidates = Candidates(
        names=names, at_most=most, budget=conversion_budget(inputs.config, registry, inputs.facts)
    )
    supply = node_supply(inputs, registry)
    chosen = choose_releases(inputs.config, inputs.demand, look.current.limits, supply, candidates)
    stalled, demand = registry.stalled, inputs.demand
    if chosen.stalled:  # from now on these pods request nothing
        stalled = {**stalled, **chosen.stalled}
        next_demand = demand_of(inputs.config, inputs.snapshot, inputs.limits, stalled)
        demand = msgspec.structs.replace(next_demand, mark=demand.mark) if next_demand else demand
        stalled = dict(demand.stalled)
    chosen, clocks = _restart_idle_times(chosen, registry.nodes, inputs.now)
    nodes = {**registry.nodes, **clocks}
    released = {name: changed(nodes[name], state=Releasing(since=inputs.now)) for name in chosen.go}
    by_node = {
        name: NodeDecision.RELEASED if name in released else NodeDecision.STAYS for name in names
    }
    return msgspec.structs.replace(
        decisions,
        demand=demand,
        registry=_after_release(inputs, registry, {**nodes, **released}, chosen.go, stalled),
        verdicts={**decisions.verdicts, **chosen.verdicts},
        by_node={**decisions.by_node, **by_node},
    )


def _report_kept_ready(look: Look, decisions: NodeDecisions) -> NodeDecisions:
    """Reports that `min_nodes` keeps an idle node, even before its idle time is over, since it will
    not be returned then."""
    policies = look.inputs.config.namespaces
    if not any(policy.min_nodes for policy in policies.values()):
        return decisions
    nodes = _own_nodes(look, decisions, Phase.JOINING, Phase.SERVING)
    verdicts = dict(decisions.verdicts)
    for namespace, policy in policies.items():
        own = {name: node for name, node in nodes.items() if node.namespace == namespace}
        ready = Counter(node.node_type for node in own.values() if not node.leaves)
        for request in decisions.registry.requests:
            ready[request.node_type] += request.count * (request.namespace == namespace)
        for name, entry in own.items():
            kept = keeps_ready(policy, entry, ready)
            if kept and entry.idle_since and verdicts[name].reason is Reason.IDLE:
                verdicts[name] = node_verdict(name, Verdict.KEEP, kept.reason, kept.detail)
    return msgspec.structs.replace(decisions, verdicts=verdicts)


def _restart_idle_times(
    chosen: Releases, nodes: Mapping[str, LentNode], now: datetime
) -> tuple[Releases, dict[str, LentNode]]:
    """Restarts the idle time of a node if until now pods on other nodes used its quota, which
    counts as use of the node."""
    if chosen.incomplete:
        from dnm.plan.partly_lent import await_workloads

        return await_workloads(chosen, nodes, now, _restart_idle_times)
    clocks: dict[str, LentNode] = {}
    verdicts = dict(chosen.verdicts)
    for name in chosen.verdicts:
        is_needed = name in chosen.quota_in_use
        if is_needed and not nodes[name].is_needed:
            clocks[name] = msgspec.structs.replace(nodes[name], is_needed=True, was_used=True)
        elif nodes[name].is_needed and not is_needed:
            clocks[name] = msgspec.structs.replace(nodes[name], is_needed=False, idle_since=now)
            detail = "it was needed until now"
            verdicts[name] = node_verdict(name, Verdict.KEEP, Reason.IDLE, detail)
    go = tuple(name for name in chosen.go if verdicts[name].verdict is Verdict.REVERT)
    return msgspec.structs.replace(chosen, go=go, verdicts=verdicts), clocks


def _after_release(
    inputs: Inputs,
    registry: Registry,
    changed: Mapping[str, LentNode],
    released: Iterable[str],
    stalled: Mapping[str, StalledPods],
) -> Registry:
    """Returns the registry after these releases, with the `stalled` pods. An unused node that a
    rule kept does not count for the circuit breaker of its queue."""
    breakers = dict(registry.breakers)
    for name in released:
        entry = registry.nodes[name]
        if not entry.was_used and _is_excused(inputs, entry):
            breakers = forgive(breakers, entry.queue)
    return msgspec.structs.replace(
        registry, nodes={**registry.nodes, **changed}, stalled=dict(stalled), breakers=breakers
    )


def _is_excused(inputs: Inputs, entry: LentNode) -> bool:
    """Returns whether a rule needed the node although no pod used it, e.g. for an event."""
    rules = rules_of(inputs.config, inputs.registry, inputs.facts)
    return any(rule.excuses(inputs, entry) for rule in rules if rule.excuses)
