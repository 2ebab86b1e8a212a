"""`move_in_place`: idle lent nodes that change their queue without a reboot, and moves that have
begun. Pure. `moving.py` has the effect of each fact on a node that moves.

The rule: a node moves if its own queue can spare it (`choose_releases`). It moves to a queue with
waiting pods, or below its min_nodes, that would be lent a node of the type. A move takes no node
from Slurm. The caps and the budget of its new namespace, that queue's breaker, waiting jobs, holds,
exclusions, orders, floors and the pause apply. A move continues only while the new queue needs the
node and the old one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.lent_state import Moving, Releasing, Serving
from dnm.model.plan import RelabelNode
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict, Objection, Verdict
from dnm.plan.breaker import allowed_at_once, judge_breaker, take_chance
from dnm.plan.cap_shares import resolve_shares
from dnm.plan.facts import Facts, changed, node_verdict
from dnm.plan.hooks import CountedFrom, Look, Moves, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.lendable import conversion_budget, counted_as_lent, node_supply
from dnm.plan.limits import limits_objection_to, wants_of
from dnm.plan.rule import excluded_nodes, list_bounds
from dnm.plan.rules.moving import (
    MOVED,
    MOVING,
    STAYS,
    advance_moving,
    belongs_to_other_namespace,
    change_for,
    change_labels,
    move_of,
    moving_detail,
    stay,
    stay_for_now,
)
from dnm.sizing.caps import (
    ConversionBudget,
    NodePool,
    bounds_of_lendable,
    budget_of,
    count_caps,
    pool_of,
)
from dnm.sizing.node_supply import is_sound
from dnm.sizing.queue_sizing import QueueSizing
from dnm.sizing.releases import Candidates, choose_releases, judge_fenced
from dnm.sizing.sizing import size_queues

LEAST_IDLE = timedelta(minutes=1)
"""How long a node must be without pods before another queue may get it, or its idle time."""


def plan_moves(look: Look, registry: Registry) -> Moves:
    """Continues the moves of nodes to other queues, then chooses nodes for new moves."""
    inputs = look.inputs
    if inputs.demand is None or inputs.facts.nodes is None:
        return Moves(registry=registry)
    moves = _continue(look, registry)
    is_allowed = inputs.config.move_in_place and not inputs.paused()
    return _begin(look, moves) if is_allowed else moves


def relabel_action(inputs: Inputs, name: str, entry: LentNode) -> RelabelNode:
    """Returns the action that exchanges a moving node's labels and taints, or undoes that."""
    move = move_of(entry)
    change = change_for(inputs.config, entry, move.to)
    policy = inputs.config.namespaces.get(move.to)
    if not move.is_back and policy is not None:
        mark = msgspec.structs.replace(entry.mark, namespace=policy.name, queue=policy.queue)
        return RelabelNode(node=name, mark=mark, labels=change.labels, off=change.off, on=change.on)
    back = change_labels(inputs.config, entry.node_type, move.to, entry.namespace)
    return RelabelNode(
        node=name, mark=entry.mark, labels=back.labels, off=back.off, on=back.on, is_back=True
    )


# --- moves under way ---------------------------------------------------------------------------


def _continue(look: Look, registry: Registry) -> Moves:
    """Exchanges the labels of nodes that may still move to another queue, and stops other moves."""
    inputs = look.inputs
    moving = registry.nodes_of(inputs.config.instance_id, Phase.MOVING)
    if not moving:
        return Moves(registry=registry)
    nodes, verdicts, relabels = dict(registry.nodes), {}, []
    before = {name: node for name, node in moving.items() if _is_not_relabelled(inputs, name, node)}
    unwanted = _find_unwanted(look, registry, before)
    for name, entry in moving.items():
        if name in before and (why := _reason_to_stop(inputs, registry, name)):
            nodes[name] = stay(entry, inputs.facts)
            verdicts[name] = node_verdict(name, Verdict.KEEP, STAYS, why)
        elif name in unwanted:
            nodes[name] = stay_for_now(inputs.config, entry, inputs.facts)
            verdicts[name] = node_verdict(name, Verdict.KEEP, STAYS, unwanted[name])
        elif name in before and (pause := inputs.paused()):
            verdicts[name] = node_verdict(name, Verdict.WAIT, pause.reason, pause.detail)
        elif _is_moving_on(look, name) and (unread := _unread_queue(inputs, entry)):
            verdicts[name] = node_verdict(name, Verdict.WAIT, unread.reason, unread.detail)
        elif look.nodes[name].wants_relabel and _is_uncounted(look, name, entry):
            relabels.append(relabel_action(inputs, name, entry))
    return Moves(
        registry=msgspec.structs.replace(registry, nodes=nodes),
        verdicts=verdicts,
        relabels=tuple(relabels),
    )


def _is_not_relabelled(inputs: Inputs, name: str, entry: LentNode) -> bool:
    """Returns whether a moving Node is readable and still has its old namespace's labels."""
    node = inputs.facts.node(name)
    move = move_of(entry)
    change = change_for(inputs.config, entry, move.to)
    if node is None or node.unreadable or move.to not in inputs.config.namespaces:
        return False
    return not move.is_back and not change.is_done(node)


def _reason_to_stop(inputs: Inputs, registry: Registry, name: str) -> str | None:
    """Returns why a node's move must stop, whatever the two queues need, or None."""
    if name in registry.held:
        return f"{Reason.HELD.text}: dnm unhold {name}"
    if registry.nodes[name].is_kept_at(inputs.now):
        return Reason.ASKED_FOR.text
    if _is_converting(inputs, registry, name, registry.nodes[name]):
        return "a converter may be at work on it"
    return None if inputs.config.move_in_place else "move_in_place is off"


def _find_unwanted(
    look: Look, registry: Registry, moving: Mapping[str, LentNode]
) -> dict[str, str]:
    """Returns why nodes must not move, by node: the old queue needs it, or the new one does not."""
    inputs, limits = look.inputs, look.current.limits
    if not moving or inputs.demand is None:
        return {}
    leaving = {
        name: changed(lent, state=Releasing(since=lent.since)) for name, lent in moving.items()
    }
    without = msgspec.structs.replace(registry, nodes={**registry.nodes, **leaving})
    supply = node_supply(inputs, without)
    budget = conversion_budget(inputs.config, registry, inputs.facts)
    by_old = judge_fenced(inputs.config, inputs.demand, limits, supply, moving, budget)
    queues = {name: policy.queue for name, policy in inputs.config.namespaces.items()}
    as_new = {
        name: msgspec.structs.replace(lent, namespace=lent.heads_for, queue=queues[lent.heads_for])
        for name, lent in moving.items()
    }
    # As when they were chosen: the types available by moves.
    movable = Counter(lent.node_type for lent in moving.values())
    of_moves = _move_budget(inputs.config, without, inputs.facts, movable)
    if inputs.demand.workloads:  # judge_fenced adds the nodes, which are in this budget already
        of_moves = of_moves.changed(map(pool_of, as_new.values()), -1)
    by_new = judge_fenced(inputs.config, inputs.demand, limits, supply, as_new, of_moves)
    kept = {name: by_old[name].detail for name in moving if _keeps(by_old[name])}
    dropped = {
        name: f"{lent.queue} needs no more nodes"
        for name, lent in as_new.items()
        if not (_keeps(by_new[name]) or _unread_objection(inputs, lent.queue))
    }
    return {**dropped, **kept}


def _keeps(verdict: NodeVerdict) -> bool:
    return verdict.verdict is Verdict.KEEP


def _is_moving_on(look: Look, name: str) -> bool:
    return look.nodes[name].verdict.verdict is Verdict.MOVE


def _unread_objection(inputs: Inputs, queue: str) -> Objection | None:
    """Returns which facts about a queue could not be read, or None."""
    if objection := inputs.objection_to(queue):
        return objection
    unread = inputs.unreadable_namespaces(queue)
    detail = f"namespace {', '.join(unread)}"
    return Objection(reason=Reason.DEMAND_UNREADABLE, detail=detail) if unread else None


def _unread_queue(inputs: Inputs, entry: LentNode) -> Objection | None:
    """Returns which facts about the two queues of a move could not be read, or None."""
    new = inputs.config.namespaces.get(entry.heads_for)
    objection = _unread_objection(inputs, entry.queue)
    return objection or (_unread_objection(inputs, new.queue) if new else None)


def _is_uncounted(look: Look, name: str, entry: LentNode) -> bool:
    """Returns whether the limits of both queues are known and do not count the moving node."""
    inputs, queues = look.inputs, look.inputs.queues
    if queues is None or _unread_queue(inputs, entry):
        return False
    return not queues.is_counted(name, entry.queue, inputs.config.instance_id)


# --- new moves ---------------------------------------------------------------------------------


def _begin(look: Look, before: Moves) -> Moves:
    """Begins moves to the first queue that can get nodes. Moves to other queues wait for the next
    run, since these moves change how many nodes those queues can get."""
    inputs, registry = look.inputs, before.registry
    excluded = excluded_nodes(inputs.config, registry, inputs.facts.batch, inputs.now)
    idle = {
        name: entry
        for name, entry in registry.nodes_of(inputs.config.instance_id, Phase.SERVING).items()
        if name not in excluded
        and _may_move(inputs, registry, name, entry)
        and not limits_objection_to(inputs, look.current, entry.queue)
    }
    if not idle or inputs.demand is None:
        return before
    supply = node_supply(inputs, registry)
    movable = Counter(entry.node_type for entry in idle.values())
    # A percentage of an unknown number allows no node; a move that has begun continues.
    config = resolve_shares(inputs.config, inputs.facts.batch or {})
    budget = _move_budget(config, registry, inputs.facts, movable)
    sizing = size_queues(inputs.config, inputs.demand, look.current.limits, supply, budget)
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
        chosen = choose_releases(inputs.config, inputs.demand, look.current.limits, supply, asked)
        after = _begin_moves(inputs, before, pool, chosen.go, sizing.queues[pool.queue])
        if chosen.go and not _growth_objection(inputs, after.registry, pool, chosen.go):
            return after
    return before


def _may_move(inputs: Inputs, registry: Registry, name: str, entry: LentNode) -> bool:
    """Returns whether an idle node may move to another queue, apart from what its own queue needs:
    `choose_releases` decides whether that queue can spare it."""
    node = inputs.facts.node(name)
    least = min(LEAST_IDLE, inputs.facts.idle_times.get(name, LEAST_IDLE))
    is_idle = entry.idle_since is not None and inputs.now - entry.idle_since >= least
    if node is None or not is_idle or node.is_cordoned:
        return False
    if not is_sound(inputs.config, node, entry.node_type):
        return False
    if entry.since >= inputs.now:  # it has returned to its queue in this run
        return False
    is_kept = inputs.is_kept(name, entry) or entry.leaves is not None
    pause = entry.state.move_pause if isinstance(entry.state, Serving) else None
    is_resting = pause is not None and inputs.now < pause.until
    return not (
        is_kept
        or is_resting
        or _is_converting(inputs, registry, name, entry)
        or inputs.unreadable_namespaces(entry.queue)
    )


def _is_converting(inputs: Inputs, registry: Registry, name: str, entry: LentNode) -> bool:
    """Returns whether a converter may still work on the node and label it for its old namespace:
    the call that brought the node has not ended, or its list shows a conversion of the node."""
    claim = inputs.facts.claim_of(name, inputs.config.instance_id)
    return (claim is not None and bool(claim.direction)) or any(
        not request.end
        and (request.node_type, request.namespace) == (entry.node_type, entry.namespace)
        for request in registry.requests
    )


def _is_other(inputs: Inputs, name: str, entry: LentNode, pool: NodePool) -> bool:
    """Returns whether the node can move to this pool: it has the pool's type, but another queue. It
    must not have labels or taints of the pool yet, because these show later how far the move is."""
    if entry.node_type != pool.node_type or entry.queue == pool.queue:
        return False
    change = change_labels(inputs.config, entry.node_type, entry.namespace, pool.namespace)
    return not change.is_begun((inputs.facts.nodes or {})[name])


def _allowed(
    look: Look, registry: Registry, pool: NodePool, sizing: QueueSizing, count: int
) -> int:
    """Returns how many of `count` nodes a queue may get by moves. It gets none if it needs them
    only for `headroom`, or if its circuit breaker is tripped."""
    inputs = look.inputs
    is_due = sizing.for_pods or bool(sizing.below_min_nodes)
    is_judged = pool.queue in look.current.limits and not inputs.unreadable_namespaces(pool.queue)
    is_judged = is_judged and not limits_objection_to(inputs, look.current, pool.queue)
    if not (is_due and is_judged):
        return 0
    breaker = registry.breakers.get(pool.queue)
    if sizing.for_pods and judge_breaker(
        inputs.config, registry, pool.queue, sizing.fingerprint, inputs.now
    ):
        return 0
    return allowed_at_once(breaker, count)


def _begin_moves(
    inputs: Inputs, before: Moves, pool: NodePool, names: tuple[str, ...], sizing: QueueSizing
) -> Moves:
    registry, nodes = before.registry, dict(before.registry.nodes)
    verdicts = dict(before.verdicts)
    for name in names:
        before_move = nodes[name].state
        pause = before_move.move_pause if isinstance(before_move, Serving) else None
        attempts = pause.attempts if pause else 0
        state = Moving(since=inputs.now, to=pool.namespace, attempts=attempts)
        nodes[name] = changed(nodes[name], state=state)
        verdicts[name] = node_verdict(name, Verdict.MOVE, MOVING, moving_detail(nodes[name]))
    breakers = dict(registry.breakers)
    if pool.queue in breakers and sizing.for_pods:  # it concerns pods only
        breakers[pool.queue] = take_chance(inputs.config, breakers[pool.queue])
    registry = msgspec.structs.replace(registry, nodes=nodes, breakers=breakers)
    return Moves(registry=registry, verdicts=verdicts, begun=names, relabels=before.relabels)


def _move_budget(
    config: Config, registry: Registry, facts: Facts, movable: Mapping[str, int]
) -> ConversionBudget:
    """Returns how many nodes may move, at most `movable` of each type. Moves take no node from
    Slurm, and count only under the caps and budgets of the nodes' new namespace."""
    used = count_caps(config, counted_as_lent(config, registry, facts))
    asked = CountedFrom(config=config, registry=registry, facts=facts, is_move=True)
    counts = {name: movable.get(name, 0) for name in config.node_types}
    of_namespaces = (count.bound for count in used if count.bound.namespaces)
    return budget_of((*list_bounds(asked), *of_namespaces, *bounds_of_lendable(counts)))


def _growth_objection(
    inputs: Inputs, after: Registry, pool: NodePool, names: tuple[str, ...]
) -> Objection | None:
    """Returns why the limits of the new queue cannot grow by these nodes, or None."""
    if inputs.queues is None or inputs.demand is None:
        return None
    wants = wants_of(inputs, after, inputs.demand)
    sizes = [after.nodes[name].counted for name in names]
    return inputs.queues.growth_objection(wants, pool.queue, sizes)


RULE = Rule(
    reasons=(MOVING, MOVED, STAYS),
    phases={Phase.MOVING: advance_moving},
    is_foreign=belongs_to_other_namespace,
    moves=plan_moves,
)
