"""What persons have asked for by `dnm lend`: requests for what of it is missing, before those of
queues. Pure.

An order is a level, not an event: until its time is over it asks for as many nodes as it names less
those that serve it and those that are on their way. It keeps to every cap, to the floors and the
budgets, to the pause and to `max_conversions_per_run`. `--force` passes what only says "later" or
"rather not": the cooldown, the back-off that stood when it was given, the breaker, and jobs that
wait. What fails since backs off as everything does, be it by the breaker.
"""

from __future__ import annotations

import msgspec

from dnm.model.orders import LendOrder
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import Objection
from dnm.plan.breaker import next_chance, take_chance
from dnm.plan.counting import count_missing
from dnm.plan.facts import show_time
from dnm.plan.found import resumable_nodes
from dnm.plan.lendable import conversion_budget, lendable_names, why_not_counted, why_not_now
from dnm.plan.limits import why_unjudged
from dnm.plan.new_requests import Conversions, resumed, with_breaker, with_fresh, with_request
from dnm.plan.rule import nodes_kept_out
from dnm.sizing.caps import Bound, NodePool


def ask_for_orders(start: Conversions) -> Conversions:
    """Writes a request for what of each order is missing and can be had, the oldest order first; of
    the others the record says what they wait for."""
    before, orders = start.registry, []
    for order in before.orders:
        start, why = _ask(start, order, before)
        orders.append(msgspec.structs.replace(order, why=why or ""))
    registry = msgspec.structs.replace(start.registry, orders=tuple(orders))
    return msgspec.structs.replace(start, registry=registry)


def _ask(so_far: Conversions, order: LendOrder, before: Registry) -> tuple[Conversions, str | None]:
    """With requests for it, and what keeps it from being met; `before`: the record before any
    conversion of this run."""
    missing, config = count_missing(order, so_far.registry), so_far.inputs.config
    policy = config.namespaces.get(order.namespace)
    if not missing:
        return so_far, None
    if policy is None or order.node_type not in config.node_types:
        what = f"type {order.node_type}" if policy else f"namespace {order.namespace}"
        return so_far, f"the configuration has no {what}"
    pool = NodePool(policy.queue, order.namespace, order.node_type)
    if why := _why_none(so_far, order, pool, before):
        return so_far, why.sentence
    tightest = _tightest(so_far, pool)
    # What is claimed already needs no more room under the caps.
    stopped = min(len(_stopped(so_far, order, pool)), missing, so_far.left)
    fresh = min(missing - stopped, tightest.left, so_far.left - stopped)
    count = stopped + max(fresh, 0)
    if why := why_not_counted(so_far.inputs, so_far.limits, so_far.registry, pool, count):
        return so_far, why.sentence
    after = _written(so_far, order, pool, count) if count else so_far
    breaker = after.registry.breakers.get(pool.queue)
    if breaker is not None and not breaker.demand and after.requests != so_far.requests:
        after = with_breaker(after, pool.queue, take_chance(config, breaker))
    if count < missing:
        return after, tightest.text
    return after, None if after.requests != so_far.requests else _none_at_hand(so_far, order)


def _why_none(
    so_far: Conversions, order: LendOrder, pool: NodePool, before: Registry
) -> Objection | None:
    inputs, limits = so_far.inputs, so_far.limits
    if why := why_unjudged(inputs, limits, pool.queue) or limits.objection:
        return why
    if why := why_not_now(inputs, before, pool.node_type, order):
        return why
    breaker = before.breakers.get(pool.queue)
    if breaker is None or breaker.tripped_at is None:
        return None
    chance = next_chance(inputs.config, breaker)
    if not breaker.demand and inputs.now >= chance:  # an image has opened it
        return None
    has_failed_since = not breaker.demand and breaker.tripped_at > order.since
    if order.is_forced and not has_failed_since:
        return None
    when = f"it is tried after {show_time(chance)}"
    how = when if has_failed_since else "`dnm lend --force` passes it"
    return Objection(reason=Reason.BREAKER, detail=how)


def _tightest(so_far: Conversions, pool: NodePool) -> Bound:
    inputs = so_far.inputs
    budget = conversion_budget(inputs.config, so_far.registry, inputs.facts, anew=True)
    of_run = Bound(name="max_conversions_per_run", left=so_far.left)
    return min((*budget.bounds_of(pool), of_run), key=lambda bound: bound.left)


def _written(before: Conversions, order: LendOrder, pool: NodePool, count: int) -> Conversions:
    """Interrupted conversions of the kind first, each by its name."""
    inputs, wanted = before.inputs, _free_names(before, order)
    stopped = _stopped(before, order, pool)[:count]
    for name in stopped:
        before = resumed(with_request(before, pool, 1, name, order=order), name)
    count -= len(stopped)
    lendable = lendable_names(inputs.config, before.registry, inputs.facts)
    if order.nodes:
        for name in [name for name in wanted if name in lendable][:count]:
            before = with_request(before, pool, 1, name, order=order)
        return before
    lendable = [name for name in lendable if inputs.config.type_of(name) == pool.node_type]
    return with_fresh(before, pool, min(count, len(lendable)), order)


def _stopped(before: Conversions, order: LendOrder, pool: NodePool) -> list[str]:
    """Interrupted conversions that it could go on with."""
    config, registry = before.inputs.config, before.registry
    stopped = resumable_nodes(config, registry).get(pool, []) if registry.claimed else []
    if not order.nodes or not stopped:
        return stopped
    wanted = _free_names(before, order)
    return [name for name in stopped if name in wanted]


def _free_names(before: Conversions, order: LendOrder) -> list[str]:
    """Those of the named nodes that are nobody's yet and may be lent."""
    inputs = before.inputs
    out = nodes_kept_out(inputs.config, before.registry, inputs.facts.batch, inputs.now)
    return [name for name in _wanted_names(before, order) if name not in out]


def _wanted_names(before: Conversions, order: LendOrder) -> list[str]:
    """Those of the named nodes that are nobody's yet."""
    asked = {request.node for request in before.registry.requests}
    return [n for n in order.nodes if n not in before.registry.nodes and n not in asked]


def _none_at_hand(before: Conversions, order: LendOrder) -> str:
    """Why none of the nodes that it could have can be lent."""
    inputs, names = before.inputs, _wanted_names(before, order)
    if not order.nodes:
        return f"{Reason.NO_BATCH_NODE.text}: `dnm nodes` says why not"
    out = nodes_kept_out(inputs.config, before.registry, inputs.facts.batch, inputs.now)
    rows = inputs.facts.batch or {}
    whys = [
        f"{name}: kept out: {out[name]}" if name in out
        else f"{name}: {rows[name].reason}" if name in rows
        else f"{name}: Slurm does not know it"
        for name in names
    ]  # fmt: skip
    return "; ".join(whys) or Reason.NO_BATCH_NODE.text
