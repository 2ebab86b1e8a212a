"""What persons have asked for by `dnm lend`: requests for what of it is missing, before those of
queues. Pure.

An order is a level, not an event: until its time is over it asks for as many nodes as it names less
those that serve it and those that are on their way. It keeps to every cap, to the floors and the
budgets, to the pause and to `max_conversions_per_run`. `--force` passes what only says "later" or
"rather not": the cooldown, the back-off that stood when it was given, the breaker, and jobs that
wait. What fails since backs off as everything does.
"""

from __future__ import annotations

import msgspec

from dnm.model.orders import LendOrder
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import Objection
from dnm.plan.brakes import OF_THE_MOMENT, OF_THE_QUEUE, OF_THE_SIZE, Wish, first_objection
from dnm.plan.counting import count_missing
from dnm.plan.found import resumable_nodes
from dnm.plan.lendable import fresh_budget, lendable_names
from dnm.plan.new_requests import Conversions, resumed, with_fresh, with_request
from dnm.plan.rule import nodes_kept_out
from dnm.sizing.caps import Bound, NodePool


def ask_for_orders(start: Conversions) -> Conversions:
    """Writes a request for what of each order is missing and can be had, the oldest order first; of
    the others the record says what they wait for."""
    brakes = start.registry
    for order in start.registry.orders:
        start = _ask(start, order, brakes)
    return start


def _ask(before: Conversions, order: LendOrder, brakes: Registry) -> Conversions:
    missing, inputs = count_missing(order, before.registry), before.inputs
    policy = inputs.config.namespaces.get(order.namespace)
    if not missing:
        return _saying(before, order, "")
    if policy is None or order.node_type not in inputs.config.node_types:
        what = f"type {order.node_type}" if policy else f"namespace {order.namespace}"
        return _saying(before, order, f"the configuration has no {what}")
    pool = NodePool(policy.queue, order.namespace, order.node_type)
    count, why = _allowed(before, order, pool, missing, brakes)
    after = _written(before, order, pool, count) if count else before
    if after.requests == before.requests:
        return _saying(before, order, why or _none_at_hand(before, order))
    return _saying(after, order, why if count < missing else "")


def _saying(after: Conversions, order: LendOrder, why: str) -> Conversions:
    orders = tuple(
        msgspec.structs.replace(one, why=why) if one.id == order.id else one
        for one in after.registry.orders
    )
    registry = msgspec.structs.replace(after.registry, orders=orders)
    return msgspec.structs.replace(after, registry=registry)


def _allowed(
    before: Conversions, order: LendOrder, pool: NodePool, missing: int, brakes: Registry
) -> tuple[int, str]:
    """How many nodes may be asked for now, and what stops the others."""
    inputs = before.inputs
    wish = Wish(
        inputs=inputs,
        limits=before.limits,
        pool=pool,
        registry=before.registry,
        before=brakes,
        count=missing,
        order=order,
    )
    if (found := first_objection((*OF_THE_QUEUE, *OF_THE_MOMENT, _breaker), wish)) is not None:
        return 0, found.sentence
    budget = fresh_budget(inputs.config, before.registry, inputs.facts)
    of_run = Bound(name="max_conversions_per_run", left=before.left)
    tightest = min((*budget.bounds_of(pool), of_run), key=lambda one: one.left)
    count = max(min(missing, tightest.left), 0)
    wish = msgspec.structs.replace(wish, count=count)
    if (found := first_objection(OF_THE_SIZE, wish)) is not None:
        return 0, found.sentence
    return count, tightest.text if count < missing else ""


def _breaker(wish: Wish) -> Objection | None:
    breaker = wish.before.breakers.get(wish.pool.queue)
    is_open = breaker is not None and breaker.tripped_at is not None
    if not is_open or (wish.order is not None and wish.order.is_forced):
        return None
    return Objection(reason=Reason.BREAKER, detail="`dnm lend --force` passes it")


def _written(before: Conversions, order: LendOrder, pool: NodePool, count: int) -> Conversions:
    """Interrupted conversions of the kind first, each by its name."""
    inputs = before.inputs
    out = nodes_kept_out(inputs.config, before.registry, inputs.facts.batch, inputs.now)
    claimed = before.registry.claimed
    stopped = resumable_nodes(inputs.config, before.registry).get(pool, []) if claimed else []
    wanted = [name for name in _wanted_names(before, order) if name not in out]
    stopped = [name for name in stopped if not order.nodes or name in wanted][:count]
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
