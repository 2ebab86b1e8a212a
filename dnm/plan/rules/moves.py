"""`move_in_place`: which idle lent nodes change their queue without a reboot, and which of those
that do go on. Pure. What each fact means to a node on its way is in `moving.py`.

The rule: a node moves that could go back to Slurm as far as its own queue goes (`choose_releases`),
to a queue whose pods wait, or that lacks nodes of its min_nodes, and that would be lent a node of
the type. It takes nothing of Slurm; it keeps to the caps and the budget of its new namespace, to
that queue's breaker, to jobs that come first, to holds and what is kept out, to orders, floors and
the pause. A node goes on only while the new queue wants it and the old one does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode, Move, Phase
from dnm.model.plan import RelabelNode
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict, Objection, Verdict
from dnm.plan.breaker import allowed_at_once, judge_breaker, take_chance
from dnm.plan.cap_shares import in_nodes
from dnm.plan.facts import Facts, enter_phase, node_verdict
from dnm.plan.hooks import CountedFrom, Look, Moves, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.lendable import conversion_budget, counted_as_lent, node_supply
from dnm.plan.limits import wants_of
from dnm.plan.rule import list_bounds, nodes_kept_out
from dnm.plan.rules.moving import (
    MOVED,
    MOVING,
    STAYS,
    advance_moving,
    change_labels,
    is_another_s,
    move_of,
    moving_detail,
    stay,
    stay_for_now,
)
from dnm.queues.edit import why_no_growth
from dnm.sizing.caps import (
    ConversionBudget,
    NodePool,
    bounds_at_hand,
    budget_of,
    count_caps,
)
from dnm.sizing.node_supply import is_sound
from dnm.sizing.queue_sizing import QueueSizing
from dnm.sizing.releases import Candidates, choose_releases, judge_fenced
from dnm.sizing.sizing import size_queues

LEAST_IDLE = timedelta(minutes=1)
"""So long a node is without pods before another queue may have it, or for its idle time, where that
is shorter."""


def plan_moves(look: Look, registry: Registry) -> Moves:
    """Goes on with the nodes that change their queue, then chooses whom to let move next."""
    inputs = look.inputs
    if inputs.demand is None or inputs.facts.nodes is None:
        return Moves(registry=registry)
    moves = _go_on(look, registry)
    is_free = inputs.config.move_in_place and not inputs.paused()
    if not is_free or inputs.document is None or look.standing.objection:
        return moves
    return _begin(look, moves)


def relabel_action(inputs: Inputs, name: str, entry: LentNode) -> RelabelNode:
    """Returns what is done to the Node of a node that changes its queue, or goes back to it."""
    move, change = move_of(inputs.config, entry)
    policy = inputs.config.namespaces.get(move.to)
    if not move.goes_back and policy is not None:
        mark = msgspec.structs.replace(entry.mark, namespace=policy.name, queue=policy.queue)
        return RelabelNode(node=name, mark=mark, labels=change.labels, off=change.off, on=change.on)
    back = change_labels(inputs.config, entry.node_type, move.to, entry.namespace)
    return RelabelNode(
        node=name, mark=entry.mark, labels=back.labels, off=back.off, on=back.on, is_back=True
    )


# --- those on their way ------------------------------------------------------------------------


def _go_on(look: Look, registry: Registry) -> Moves:
    """Lets those be relabelled that still may, and brings the others back."""
    inputs = look.inputs
    moving = registry.nodes_of(inputs.config.instance_id, Phase.MOVING)
    if not moving:
        return Moves(registry=registry)
    nodes, verdicts, relabels = dict(registry.nodes), {}, []
    before = {name: node for name, node in moving.items() if _is_not_relabelled(inputs, name, node)}
    unwanted = _unwanted(look, registry, before)
    for name, entry in moving.items():
        if name in before and (why := _why_stop(inputs, registry, name)):
            nodes[name] = stay(entry, inputs.facts)
            verdicts[name] = node_verdict(name, Verdict.KEEP, STAYS, why)
        elif name in unwanted:
            nodes[name] = stay_for_now(inputs.config, entry, inputs.facts)
            verdicts[name] = node_verdict(name, Verdict.KEEP, STAYS, unwanted[name])
        elif name in before and (pause := inputs.paused()):
            verdicts[name] = node_verdict(name, Verdict.WAIT, pause.reason, pause.detail)
        elif look.nodes[name].wants_relabel and _is_uncounted(inputs, name):
            relabels.append(relabel_action(inputs, name, entry))
    return Moves(
        registry=msgspec.structs.replace(registry, nodes=nodes),
        verdicts=verdicts,
        relabels=tuple(relabels),
    )


def _is_not_relabelled(inputs: Inputs, name: str, entry: LentNode) -> bool:
    """Whether its Node is its old namespace's still. Of one that can't be seen nothing is said."""
    node = inputs.facts.node(name)
    move, change = move_of(inputs.config, entry)
    if node is None or node.unreadable or move.to not in inputs.config.namespaces:
        return False
    return not move.goes_back and not change.is_done(node)


def _why_stop(inputs: Inputs, registry: Registry, name: str) -> str | None:
    """Why a node does not move on, whatever the queues want."""
    if name in registry.held:
        return f"{Reason.HELD.text}: dnm unhold {name}"
    if registry.nodes[name].is_kept_at(inputs.now):
        return Reason.ASKED_FOR.text
    if _is_converting(inputs, registry, name, registry.nodes[name]):
        return "a converter may be at work on it"
    return None if inputs.config.move_in_place else "move_in_place is off"


def _unwanted(look: Look, registry: Registry, moving: Mapping[str, LentNode]) -> dict[str, str]:
    """Node -> why it stays, by what the queues want now: its old one comes first."""
    inputs, limits = look.inputs, look.standing.limits
    if not moving or inputs.demand is None:
        return {}
    left = {
        name: msgspec.structs.replace(lent, phase=Phase.RELEASING) for name, lent in moving.items()
    }
    without = msgspec.structs.replace(registry, nodes={**registry.nodes, **left})
    supply = node_supply(inputs, without)
    budget = conversion_budget(inputs.config, registry, inputs.facts)
    of_old = judge_fenced(inputs.config, inputs.demand, limits, supply, moving, budget)
    queues = {name: policy.queue for name, policy in inputs.config.namespaces.items()}
    as_new = {
        name: msgspec.structs.replace(lent, namespace=lent.heads_for, queue=queues[lent.heads_for])
        for name, lent in moving.items()
    }
    # As when they were chosen: of the types that can be had by moves.
    at_hand = Counter(lent.node_type for lent in moving.values())
    of_moves = _move_budget(inputs.config, without, inputs.facts, at_hand)
    of_new = judge_fenced(inputs.config, inputs.demand, limits, supply, as_new, of_moves)
    wanted = {name: of_old[name].detail for name in moving if _keeps(of_old[name])}
    lost = {
        name: f"{as_new[name].queue} wants no more nodes"
        for name in moving
        if not _keeps(of_new[name])
    }
    return {**lost, **wanted}


def _keeps(verdict: NodeVerdict) -> bool:
    return verdict.verdict is Verdict.KEEP


def _is_uncounted(inputs: Inputs, name: str) -> bool:
    """Whether no limit of the document that was read counts the node."""
    document = inputs.document
    return document is not None and not document.is_counted(name, inputs.config.instance_id)


# --- those that begin --------------------------------------------------------------------------


def _begin(look: Look, before: Moves) -> Moves:
    """For the first queue that can have any: what it is given changes what the next would be."""
    inputs, registry = look.inputs, before.registry
    out = nodes_kept_out(inputs.config, registry, inputs.facts.batch, inputs.now)
    idle = {
        name: entry
        for name, entry in registry.nodes_of(inputs.config.instance_id, Phase.SERVING).items()
        if name not in out and _may_move(inputs, registry, name, entry)
    }
    if not idle or inputs.demand is None:
        return before
    supply = node_supply(inputs, registry)
    at_hand = Counter(entry.node_type for entry in idle.values())
    # A cap of nobody knows how many is one of none; a move that has begun goes on.
    config = in_nodes(inputs.config, inputs.facts.batch or {})
    budget = _move_budget(config, registry, inputs.facts, at_hand)
    sizing = size_queues(inputs.config, inputs.demand, look.standing.limits, supply, budget)
    most = min(inputs.config.max_reversions_per_run, inputs.config.max_conversions_per_run)
    for pool, granted in sizing.granted().items():
        names = tuple(name for name, node in idle.items() if _is_other(inputs, name, node, pool))
        count = min(_allowed(look, registry, pool, sizing.queues[pool.queue], granted), most)
        if not names or count <= 0:
            continue
        asked = Candidates(
            names=names,
            at_most=count,
            budget=conversion_budget(inputs.config, registry, inputs.facts),
            are_early=True,
        )
        chosen = choose_releases(inputs.config, inputs.demand, look.standing.limits, supply, asked)
        after = _begun(inputs, before, pool, chosen.go, sizing.queues[pool.queue])
        if chosen.go and not _why_not_counted(inputs, after.registry, pool, chosen.go):
            return after
    return before


def _may_move(inputs: Inputs, registry: Registry, name: str, entry: LentNode) -> bool:
    """Whether nothing but its own queue's needs may speak against it."""
    node = inputs.facts.node(name)
    least = min(LEAST_IDLE, inputs.facts.idle_times.get(name, LEAST_IDLE))
    is_idle = entry.idle_since is not None and inputs.now - entry.idle_since >= least
    if node is None or not is_idle or node.is_cordoned:
        return False
    if not is_sound(inputs.config, node, entry.node_type):
        return False
    if entry.since >= inputs.now:  # it has come back to its queue in this run
        return False
    is_kept = inputs.is_kept(name, entry) or entry.leaves is not None
    is_resting = entry.retry_after is not None and inputs.now < entry.retry_after
    return not (
        is_kept
        or is_resting
        or _is_converting(inputs, registry, name, entry)
        or inputs.unreadable_namespaces(entry.queue)
    )


def _is_converting(inputs: Inputs, registry: Registry, name: str, entry: LentNode) -> bool:
    """Whether a converter may still be at work on it, which would label it for its old namespace:
    the call that brought it has not ended, or the batch side says so."""
    claim = inputs.facts.claim_of(name, inputs.config.instance_id)
    return (claim is not None and bool(claim.direction)) or any(
        not request.ended
        and (request.node_type, request.namespace) == (entry.node_type, entry.namespace)
        for request in registry.requests
    )


def _is_other(inputs: Inputs, name: str, entry: LentNode, pool: NodePool) -> bool:
    """Whether it is of the pool's type, another queue's, and carries nothing of the pool's: what is
    there already was put there by others, and would not tell how far a move is."""
    if entry.node_type != pool.node_type or entry.queue == pool.queue:
        return False
    change = change_labels(inputs.config, entry.node_type, entry.namespace, pool.namespace)
    return not change.is_begun((inputs.facts.nodes or {})[name])


def _allowed(
    look: Look, registry: Registry, pool: NodePool, sizing: QueueSizing, count: int
) -> int:
    """How many of the nodes the queue may have by moves: none for headroom alone, which is not
    worth another queue's node."""
    inputs = look.inputs
    is_due = sizing.for_pods or bool(sizing.below_min_nodes)
    is_judged = pool.queue in look.standing.limits and not inputs.unreadable_namespaces(pool.queue)
    if not (is_due and is_judged):
        return 0
    breaker = registry.breakers.get(pool.queue)
    if sizing.for_pods and judge_breaker(
        inputs.config, registry, pool.queue, sizing.fingerprint, inputs.now
    ):
        return 0
    return allowed_at_once(breaker, count)


def _begun(
    inputs: Inputs, before: Moves, pool: NodePool, names: tuple[str, ...], sizing: QueueSizing
) -> Moves:
    registry, nodes = before.registry, dict(before.registry.nodes)
    verdicts = dict(before.verdicts)
    for name in names:
        nodes[name] = enter_phase(
            nodes[name], Phase.MOVING, inputs.now,
            move=Move(to=pool.namespace), attempts=nodes[name].attempts,
        )  # fmt: skip
        verdicts[name] = node_verdict(name, Verdict.MOVE, MOVING, moving_detail(nodes[name]))
    breakers = dict(registry.breakers)
    if pool.queue in breakers and sizing.for_pods:  # it is open for pods alone
        breakers[pool.queue] = take_chance(inputs.config, breakers[pool.queue])
    registry = msgspec.structs.replace(registry, nodes=nodes, breakers=breakers)
    return Moves(registry=registry, verdicts=verdicts, begun=names, relabels=before.relabels)


def _move_budget(
    config: Config, registry: Registry, facts: Facts, at_hand: Mapping[str, int]
) -> ConversionBudget:
    """What is left for nodes that change their queue, of which so many are `at_hand`: they take
    nothing of Slurm, and no room but under the caps and budgets of their new namespace."""
    used = count_caps(config, counted_as_lent(config, registry, facts))
    asked = CountedFrom(config=config, registry=registry, facts=facts, is_move=True)
    there = {name: at_hand.get(name, 0) for name in config.node_types}
    of_namespaces = (count.bound for count in used if count.bound.namespaces)
    return budget_of((*list_bounds(asked), *of_namespaces, *bounds_at_hand(there)))


def _why_not_counted(
    inputs: Inputs, after: Registry, pool: NodePool, names: tuple[str, ...]
) -> Objection | None:
    """Why the new queue's limits could not contain these nodes."""
    if inputs.document is None or inputs.demand is None:
        return None
    wants = wants_of(inputs, after, inputs.demand)
    sizes = [after.nodes[name].counted for name in names]
    return why_no_growth(inputs.document, wants, pool.queue, sizes)


RULE = Rule(
    reasons=(MOVING, MOVED, STAYS),
    phases={Phase.MOVING: advance_moving},
    is_anothers=is_another_s,
    moves=plan_moves,
)
