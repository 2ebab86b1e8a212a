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

from dnm.model.plan import Reason
from dnm.model.registry import Backoff, LendOrder, Registry
from dnm.model.value import Unreadable
from dnm.plan.asking import (
    Converted,
    resumed,
    why_not_counted,
    why_not_judge,
    with_fresh,
    with_request,
)
from dnm.plan.brakes import fresh_budget, lendable_names, why_wait
from dnm.plan.counting import count_missing
from dnm.plan.known import Known
from dnm.plan.resumption import resumable_nodes
from dnm.plan.rule import nodes_kept_out
from dnm.sizing.budget import BATCH_NODES, NodePool


def ask_for_orders(start: Converted) -> Converted:
    """Writes a request for what of each order is missing and can be had, the oldest order first; of
    the others the record says what they wait for."""
    brakes = start.registry
    for order in start.registry.orders:
        start = _ask(start, order, brakes)
    return start


def _ask(before: Converted, order: LendOrder, brakes: Registry) -> Converted:
    missing, known = count_missing(order, before.registry), before.known
    policy = known.config.namespaces.get(order.namespace)
    if not missing:
        return _saying(before, order, "")
    if policy is None or order.node_type not in known.config.node_types:
        what = f"type {order.node_type}" if policy else f"namespace {order.namespace}"
        return _saying(before, order, f"the configuration has no {what}")
    pool = NodePool(policy.queue, order.namespace, order.node_type)
    count, why = _allowed(before, order, pool, missing, brakes)
    after = _written(before, order, pool, count) if count else before
    if after.requests == before.requests:
        return _saying(before, order, why or _none_at_hand(before, order))
    return _saying(after, order, why if count < missing else "")


def _saying(after: Converted, order: LendOrder, why: str) -> Converted:
    orders = tuple(
        msgspec.structs.replace(one, why=why) if one.id == order.id else one
        for one in after.registry.orders
    )
    registry = msgspec.structs.replace(after.registry, orders=orders)
    return msgspec.structs.replace(after, registry=registry)


def _allowed(
    before: Converted, order: LendOrder, pool: NodePool, missing: int, brakes: Registry
) -> tuple[int, str]:
    """How many nodes may be asked for now, and what stops the others."""
    known, limits = before.known, before.limits
    if (verdict := why_not_judge(limits, pool.queue)) is not None:
        return 0, verdict.sentence
    if limits.refusal:
        return 0, f"{Reason.QUEUE_UNREADABLE.value}: {limits.refusal}"
    if brake := _brake(known, order, pool, brakes):
        return 0, brake
    budget = fresh_budget(known.config, before.registry, known.facts, is_forced=order.is_forced)
    most = known.config.max_conversions_per_run
    room = {name: budget.left[name] for name in budget.bounds_of(pool)}
    room["max_conversions_per_run"] = most - sum(request.count for request in before.requests)
    name, left = min(room.items(), key=lambda one: one[1])
    count = max(min(missing, left), 0)
    if count and (why := why_not_counted(before, pool, count)):
        return 0, f"{Reason.QUEUE_UNREADABLE.value}: {why}"
    why = f"{name} is used up"
    if name.startswith(BATCH_NODES):
        why = f"no more {name} can be lent"
    return count, why if count < missing else ""


def _brake(known: Known, order: LendOrder, pool: NodePool, brakes: Registry) -> str:
    batch = known.snapshot.batch
    if isinstance(batch, Unreadable):
        return f"{Reason.NO_BATCH_NODE.value}: {batch.error}"
    if batch is None:
        return Reason.BATCH_NOT_ASKED.value
    found = why_wait(known.config, brakes, pool.node_type, known.now, order.is_forced)
    if found is not None and not _passes(order, found[0], brakes.backoffs.get(pool.node_type)):
        reason, detail = found
        return f"{reason.value}: {detail}" if detail else reason.value
    breaker = brakes.breakers.get(pool.queue)
    if breaker is not None and breaker.tripped_at is not None and not order.is_forced:
        return f"{Reason.BREAKER.value}: `dnm lend --force` passes it"
    return ""


def _passes(order: LendOrder, reason: Reason, backoff: Backoff | None) -> bool:
    """Whether force passes a back-off: one that the order itself has made it does not."""
    if not order.is_forced or reason is not Reason.BACKOFF:
        return False
    return backoff is None or backoff.since is None or backoff.since <= order.since


def _written(before: Converted, order: LendOrder, pool: NodePool, count: int) -> Converted:
    """Interrupted conversions of the kind first, each by its name."""
    known = before.known
    out = nodes_kept_out(known.config, before.registry, known.facts)
    stopped = resumable_nodes(known.config, before.registry).get(pool, [])
    wanted = [name for name in _wanted_names(before, order) if name not in out]
    stopped = [name for name in stopped if not order.nodes or name in wanted][:count]
    for name in stopped:
        before = resumed(with_request(before, pool, 1, name, order=order), name)
    count -= len(stopped)
    lendable = lendable_names(known.config, before.registry, known.facts)
    if order.nodes:
        for name in [name for name in wanted if name in lendable][:count]:
            before = with_request(before, pool, 1, name, order=order)
        return before
    lendable = [name for name in lendable if known.config.type_of(name) == pool.node_type]
    return with_fresh(before, pool, min(count, len(lendable)), order)


def _wanted_names(before: Converted, order: LendOrder) -> list[str]:
    """Those of the named nodes that are nobody's yet."""
    asked = {request.node for request in before.registry.requests}
    return [n for n in order.nodes if n not in before.registry.nodes and n not in asked]


def _none_at_hand(before: Converted, order: LendOrder) -> str:
    """Why none of the nodes that it could have can be lent."""
    known, names = before.known, _wanted_names(before, order)
    if not order.nodes:
        return f"{Reason.NO_BATCH_NODE.value}: `dnm nodes` says why not"
    out = nodes_kept_out(known.config, before.registry, known.facts)
    rows = known.facts.batch or {}
    whys = [
        f"{name}: kept out: {out[name]}" if name in out
        else f"{name}: {rows[name].reason}" if name in rows
        else f"{name}: Slurm does not know it"
        for name in names
    ]  # fmt: skip
    return "; ".join(whys) or Reason.NO_BATCH_NODE.value
