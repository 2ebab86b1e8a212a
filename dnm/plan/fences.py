"""Which fences are lifted and which nodes are fenced next: the first of two runs that a return
takes at least. This one shrinks the queue and fences the node; demand that comes back before the
converter is asked takes the fence off again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dnm.model.plan import NodeVerdict, Reason, Verdict
from dnm.model.queue_path import may_edit
from dnm.model.registry import Half, LentNode, Phase, Registry
from dnm.model.value import Value
from dnm.plan.brakes import conversion_budget, is_paused, paused_detail
from dnm.plan.breaker import forgive
from dnm.plan.known import Known, leaving_out
from dnm.plan.leaving import leaving_verdict, plan_leaving
from dnm.plan.rule import Moves, Standing, rules_of
from dnm.plan.standing_limits import StandingLimits
from dnm.plan.supply import node_supply
from dnm.plan.transition import enter_phase, node_verdict
from dnm.sizing.releases import Candidates, choose_releases, recall


class Fenced(Value):
    """`known`: its demand is without the pods that were found to wait for something else. `dress`:
    nodes whose labels and taints are exchanged now."""

    standing: StandingLimits
    known: Known
    registry: Registry
    verdicts: Mapping[str, NodeVerdict]
    dress: tuple[str, ...] = ()


def plan_fences(standing: StandingLimits) -> Fenced:
    """Lifts the fences of nodes that are wanted again, lets those move that another queue wants,
    then chooses whom to fence next."""
    known, verdicts = standing.advanced.known, standing.advanced.verdicts
    unchanged = Fenced(
        standing=standing, known=known, registry=standing.registry, verdicts=verdicts
    )
    if known.demand is None or known.facts.nodes is None:
        return unchanged
    leaving = plan_leaving(known, standing.registry)
    lifted = _lift_fences(msgspec.structs.replace(unchanged, registry=leaving))
    moves = Moves(registry=lifted.registry)
    stands = Standing(
        known=known,
        limits=standing.limits,
        refusal=standing.refusal,
        may_dress=standing.advanced.may_dress,
    )
    for rule in rules_of(known.config, lifted.registry, known.facts):
        moves = rule.moves(stands, moves.registry) if rule.moves else moves
    lifted = msgspec.structs.replace(
        lifted,
        registry=moves.registry,
        verdicts={**lifted.verdicts, **moves.verdicts},
        dress=moves.dress,
    )
    obstacles = {
        name: _why_not_release(lifted, name)
        for name in standing.advanced.may_release
        if lifted.registry.nodes[name].phase is Phase.SERVING
        if verdicts[name].reason is not Reason.LEAVING or lifted.registry.nodes[name].leaves
    }
    kept = {name: verdict for name, verdict in obstacles.items() if verdict is not None}
    asked = msgspec.structs.replace(
        lifted, verdicts={**lifted.verdicts, **_of_leaving(lifted), **kept}
    )
    names = tuple(name for name, verdict in obstacles.items() if verdict is None)
    return _fence(asked, names, known.config.max_reversions_per_run - len(moves.begun))


def _of_leaving(lifted: Fenced) -> dict[str, NodeVerdict]:
    """What is said of nodes that serve their pods and take no more; an administrator's cordon is
    said as that."""
    known, stopped = lifted.known, lifted.standing.refusal
    is_stopped = is_paused(lifted.registry, known.now, Half.RETURNING)
    said = {}
    for name, entry in lifted.registry.nodes_of(known.config.instance_id, Phase.SERVING).items():
        before, node = lifted.verdicts[name], (known.facts.nodes or {}).get(name)
        is_another_s = before.verdict is Verdict.WAIT or before.reason is Reason.HELD_BY_ADMIN
        if entry.leaves is None or is_another_s:
            continue
        if is_stopped and not (node is not None and node.is_fenced):
            said[name] = paused(lifted.registry, name)
        else:
            why = Reason.PAUSED.value if is_stopped else stopped
            one = leaving_verdict(known, lifted.registry, name, why)
            more = before.detail if before.reason is Reason.IN_USE else ""  # of a dead node
            detail = f"{one.detail}, {more}" if more else one.detail
            said[name] = msgspec.structs.replace(one, detail=detail)
    return said


def _lift_fences(before: Fenced) -> Fenced:
    """Whatever has come to speak for a fenced node before the converter was asked, wins."""
    known, registry, standing = before.known, before.registry, before.standing
    fenced = registry.nodes_of(known.config.instance_id, Phase.RELEASING)
    if not fenced or known.demand is None:
        return before
    stays = {name: entry for name, entry in fenced.items() if not entry.leaves}
    wanted = recall(
        known.config,
        known.demand,
        standing.limits,
        node_supply(known, registry),
        stays,
        conversion_budget(known.config, registry, known.facts),
    )
    verdicts = {
        name: verdict
        for name, entry in fenced.items()
        if (verdict := _why_lift(before, name, entry, wanted.get(name))) is not None
    }
    again = {
        name: enter_phase(fenced[name], Phase.SERVING, known.now, idle_since=None)
        for name in verdicts
    }
    return msgspec.structs.replace(
        before,
        registry=msgspec.structs.replace(registry, nodes={**registry.nodes, **again}),
        verdicts={**before.verdicts, **verdicts},
    )


def _why_lift(
    before: Fenced, name: str, entry: LentNode, wanted: NodeVerdict | None
) -> NodeVerdict | None:
    """Why a fenced node serves on; None: it goes back. `wanted` None: whatever its queue wants."""
    config = before.known.config
    if name in before.registry.held:
        return node_verdict(name, Verdict.KEEP, Reason.HELD, f"dnm unhold {name}")
    if entry.stays_until is not None and entry.is_kept_at(before.known.now):
        detail = f"until {entry.stays_until:%Y-%m-%d %H:%M:%S} UTC"
        return node_verdict(name, Verdict.KEEP, Reason.ASKED_FOR, detail)
    if before.standing.refusal or not may_edit(entry.queue, config.allowed_queue_prefixes):
        detail = "its queue can't be shrunk, so it serves on"
        return node_verdict(name, Verdict.KEEP, Reason.QUEUE_UNREADABLE, detail)
    return None if wanted is None or wanted.verdict is Verdict.REVERT else wanted


def _why_not_release(before: Fenced, name: str) -> NodeVerdict | None:
    """Why a node that has been idle long enough is not even asked about; None: it is."""
    known, refusal = before.known, before.standing.refusal
    queue = before.registry.nodes[name].queue
    if name in before.registry.held:
        return node_verdict(name, Verdict.KEEP, Reason.HELD, f"dnm unhold {name}")
    if is_paused(before.registry, known.now, Half.RETURNING):
        return paused(before.registry, name)
    if refusal or known.document is None:
        return node_verdict(name, Verdict.WAIT, Reason.QUEUE_UNREADABLE, refusal)
    if not may_edit(queue, known.config.allowed_queue_prefixes):
        detail = f"{queue} is outside allowed_queue_prefixes, so it can't be shrunk"
        return node_verdict(name, Verdict.WAIT, Reason.QUEUE_UNREADABLE, detail)
    if known.unreadable_namespaces(queue):
        return node_verdict(name, Verdict.WAIT, Reason.DEMAND_UNREADABLE)
    return None


def _fence(before: Fenced, names: tuple[str, ...], most: int) -> Fenced:
    """Those of the idle nodes that their queues can spare are released."""
    known = before.known
    empty = [name for name in names if before.registry.nodes[name].leaves][:most]
    before = _released(before, empty)
    registry = before.registry
    names = tuple(name for name in names if not registry.nodes[name].leaves)
    if not names or known.demand is None:
        return before
    asked = Candidates(
        now=known.now,
        names=names,
        at_most=most - len(empty),
        budget=conversion_budget(known.config, registry, known.facts),
        early=frozenset(n for n in names if before.verdicts[n].reason is Reason.FOR_JOBS),
    )
    supply = node_supply(known, registry)
    chosen = choose_releases(known.config, known.demand, before.standing.limits, supply, asked)
    nodes = dict(registry.nodes)
    for name in chosen.go:
        nodes[name] = enter_phase(nodes[name], Phase.RELEASING, known.now)
    unused = {nodes[name].queue for name in chosen.go if not nodes[name].was_used}
    without = chosen.unbuffered | (unused if known.config.headroom_idle else set())
    unbuffered = {**dict.fromkeys(without, known.now), **registry.unbuffered}
    breakers = dict(registry.breakers)
    for name in chosen.go:
        is_forgiven = chosen.verdicts[name].reason in (Reason.UNUSED, Reason.FOR_JOBS)
        is_forgiven = is_forgiven or _is_excused(known, registry.nodes[name])
        if is_forgiven and not nodes[name].was_used:
            breakers = forgive(breakers, nodes[name].queue)
    stalled = registry.stalled
    if chosen.stalled:
        known = leaving_out(known, {**stalled, **chosen.stalled})
        stalled = dict(known.demand.stalled) if known.demand else stalled
    return Fenced(
        standing=before.standing,
        dress=before.dress,
        known=known,
        registry=msgspec.structs.replace(
            registry, nodes=nodes, stalled=stalled, unbuffered=unbuffered, breakers=breakers
        ),
        verdicts={**before.verdicts, **chosen.verdicts},
    )


def _is_excused(known: Known, entry: LentNode) -> bool:
    """Whether a rule wanted the node there although nobody came to use it."""
    rules = rules_of(known.config, known.registry, known.facts)
    return any(rule.excuses(known, entry) for rule in rules if rule.excuses)


def _released(before: Fenced, names: Iterable[str]) -> Fenced:
    """Nodes that leave and are empty: they are fenced already, and their queue shrinks now."""
    nodes = dict(before.registry.nodes)
    for name in names:
        nodes[name] = enter_phase(nodes[name], Phase.RELEASING, before.known.now)
    registry = msgspec.structs.replace(before.registry, nodes=nodes)
    return msgspec.structs.replace(before, registry=registry)


def paused(registry: Registry, name: str) -> NodeVerdict:
    """A node that would go back if dnm were not paused."""
    assert registry.pause is not None
    return node_verdict(name, Verdict.WAIT, Reason.PAUSED, paused_detail(registry.pause))
