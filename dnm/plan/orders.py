"""The requests for nodes that `dnm lend` orders lack, made before those of queues. Pure.

An order is a level, not an event: until its end it requests as many nodes as it names, less those
that serve it or are incoming. Every cap, the floors, the budgets, the pause and
`max_conversions_per_run` apply. `--force` ignores the cooldown, the back-off at the time of the
order, the breaker, and jobs that wait. After a failure since then, the usual back-off applies, also
that of the breaker."""

from __future__ import annotations

import msgspec

from dnm.model.orders import LendOrder
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import Objection
from dnm.plan.breaker import next_chance, take_chance
from dnm.plan.counting import count_missing
from dnm.plan.facts import show_time
from dnm.plan.findings import resumable_nodes
from dnm.plan.lendable import conversion_budget, lendable_names, limit_objection, start_objection
from dnm.plan.limits import lending_objection
from dnm.plan.new_requests import Conversions, with_breaker, with_fresh, with_request, with_resumed
from dnm.plan.rule import excluded_nodes
from dnm.sizing.caps import Bound, NodePool


def request_for_orders(start: Conversions) -> Conversions:
    """Requests the nodes that each `dnm lend` order lacks and that can be lent, the oldest order
    first. Records why an order waits for the rest."""
    before, orders = start.registry, []
    for order in before.orders:
        start, why = _fulfil(start, order, before)
        orders.append(msgspec.structs.replace(order, waiting_reason=why or ""))
    registry = msgspec.structs.replace(start.registry, orders=tuple(orders))
    return msgspec.structs.replace(start, registry=registry)


def _fulfil(
    so_far: Conversions, order: LendOrder, before: Registry
) -> tuple[Conversions, str | None]:
    """Adds requests for a `dnm lend` order, and returns why it stays unfulfilled, or None. `before`
    is the registry before any request of this run."""
    missing, config = count_missing(order, so_far.registry), so_far.inputs.config
    policy = config.namespaces.get(order.namespace)
    if not missing:
        return so_far, None
    if policy is None or order.node_type not in config.node_types:
        section = f"type {order.node_type}" if policy else f"namespace {order.namespace}"
        return so_far, f"the configuration has no {section}"
    pool = NodePool(policy.queue, order.namespace, order.node_type)
    if objection := _order_objection(so_far, order, pool, before):
        return so_far, objection.sentence
    tightest = _tightest_bound(so_far, pool)
    # A claimed node counts under the caps already.
    interrupted = min(len(_interrupted(so_far, order, pool)), missing, so_far.left)
    new_nodes = min(missing - interrupted, tightest.left, so_far.left - interrupted)
    count = interrupted + max(new_nodes, 0)
    if objection := limit_objection(so_far.inputs, so_far.limits, so_far.registry, pool, count):
        return so_far, objection.sentence
    after = _add_requests(so_far, order, pool, count) if count else so_far
    breaker = after.registry.breakers.get(pool.queue)
    if breaker is not None and not breaker.demand and after.requests != so_far.requests:
        after = with_breaker(after, pool.queue, take_chance(config, breaker))
    if count < missing:
        return after, tightest.text
    return after, None if after.requests != so_far.requests else _explain_no_node(so_far, order)


def _order_objection(
    so_far: Conversions, order: LendOrder, pool: NodePool, before: Registry
) -> Objection | None:
    inputs, limits = so_far.inputs, so_far.limits
    if objection := lending_objection(inputs, limits, pool.queue):
        return objection
    if objection := start_objection(inputs, before, pool.node_type, order):
        return objection
    breaker = before.breakers.get(pool.queue)
    if breaker is None or breaker.tripped_at is None:
        return None
    chance = next_chance(inputs.config, breaker)
    if not breaker.demand and inputs.now >= chance:  # opened by an image
        return None
    has_failed_since = not breaker.demand and breaker.tripped_at > order.since
    if order.is_forced and not has_failed_since:
        return None
    when = f"it is tried after {show_time(chance)}"
    remedy = when if has_failed_since else "`dnm lend --force` ignores it"
    return Objection(reason=Reason.BREAKER, detail=remedy)


def _tightest_bound(so_far: Conversions, pool: NodePool) -> Bound:
    inputs = so_far.inputs
    budget = conversion_budget(inputs.config, so_far.registry, inputs.facts, unclaimed=True)
    of_run = Bound(name="max_conversions_per_run", left=so_far.left)
    return min((*budget.bounds_of(pool), of_run), key=lambda bound: bound.left)


def _add_requests(before: Conversions, order: LendOrder, pool: NodePool, count: int) -> Conversions:
    """Requests `count` nodes for an order. Interrupted lends come first, by their nodes' names."""
    inputs, wanted = before.inputs, _free_names(before, order)
    claimed = _interrupted(before, order, pool)[:count]
    for name in claimed:
        before = with_resumed(with_request(before, pool, 1, name, order=order), name)
    count -= len(claimed)
    lendable = lendable_names(inputs.config, before.registry, inputs.facts)
    if order.nodes:
        for name in [name for name in wanted if name in lendable][:count]:
            before = with_request(before, pool, 1, name, order=order)
        return before
    lendable = [name for name in lendable if inputs.config.type_of(name) == pool.node_type]
    return with_fresh(before, pool, min(count, len(lendable)), order)


def _interrupted(before: Conversions, order: LendOrder, pool: NodePool) -> list[str]:
    """Returns the nodes of interrupted lends that the order could resume."""
    config, registry = before.inputs.config, before.registry
    interrupted = resumable_nodes(config, registry).get(pool, []) if registry.claimed else []
    if not order.nodes or not interrupted:
        return interrupted
    wanted = _free_names(before, order)
    return [name for name in interrupted if name in wanted]


def _free_names(before: Conversions, order: LendOrder) -> list[str]:
    """Returns the nodes that the order names and that are not lent, requested or excluded."""
    inputs = before.inputs
    excluded = excluded_nodes(inputs.config, before.registry, inputs.facts.batch, inputs.now)
    return [name for name in _wanted_names(before, order) if name not in excluded]


def _wanted_names(before: Conversions, order: LendOrder) -> list[str]:
    """Returns the nodes that the order names and that are not lent or requested."""
    requested = {request.node for request in before.registry.requests}
    return [n for n in order.nodes if n not in before.registry.nodes and n not in requested]


def _explain_no_node(before: Conversions, order: LendOrder) -> str:
    """Returns the reason why no node can be lent for the order."""
    inputs, names = before.inputs, _wanted_names(before, order)
    if not order.nodes:
        return f"{Reason.NO_BATCH_NODE.text}: `dnm nodes` shows why"
    excluded = excluded_nodes(inputs.config, before.registry, inputs.facts.batch, inputs.now)
    rows = inputs.facts.batch or {}
    reasons = [
        f"{name}: excluded: {excluded[name]}" if name in excluded
        else f"{name}: {rows[name].reason}" if name in rows
        else f"{name}: Slurm does not know it"
        for name in names
    ]  # fmt: skip
    return "; ".join(reasons) or Reason.NO_BATCH_NODE.text
