"""Which conversions this run starts: what the queues need, within every cap and brake. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.plan import QueueVerdict, Reason
from dnm.model.registry import Breaker, Registry
from dnm.model.value import Unreadable
from dnm.plan.asking import (
    Converted as Converted,
)
from dnm.plan.asking import (
    resumed,
    waiting,
    why_not_counted,
    why_not_judge,
    with_fresh,
    with_request,
)
from dnm.plan.brakes import conversion_budget, why_wait
from dnm.plan.breaker import allowed_at_once, judge_breaker, next_chance, take_chance
from dnm.plan.known import Known
from dnm.plan.orders import ask_for_orders
from dnm.plan.resumption import (
    give_back_unwanted,
    resumable_nodes,
    room_for_fresh,
)
from dnm.plan.returns import Returned
from dnm.plan.supply import node_supply
from dnm.sizing.budget import NodePool
from dnm.sizing.queue_sizing import QueueSizing, Sizing
from dnm.sizing.sizing import size_queues

_CLAIMED_FIRST = "nodes that are claimed and not lent count; `dnm plan` names them"


def plan_conversions(returned: Returned) -> Converted:
    """A verdict for every monitored queue, and the requests that follow."""
    limits, known = returned.limits, returned.known
    if known.demand is None or known.facts.nodes is None or known.document is None:
        return _blind(returned)
    # What a person has asked for comes first: pods that wait find it on its way.
    ordered = Converted(returned=returned, registry=returned.registry, verdicts={})
    ordered = ask_for_orders(ordered) if returned.registry.orders else ordered
    sizing = size_queues(
        known.config,
        known.demand,
        limits.limits,
        node_supply(known, ordered.registry),
        conversion_budget(known.config, ordered.registry, known.facts),
    )
    obstacles = {queue: why_not_judge(limits, queue) for queue in known.config.queues}
    start = msgspec.structs.replace(
        ordered,
        registry=_buffered_again(ordered.registry, sizing),
        verdicts={
            **sizing.verdicts,
            **{queue: one for queue, one in obstacles.items() if one is not None},
        },
        errors=tuple(
            one.detail
            for queue, one in obstacles.items()
            if one is not None and queue not in limits.limits
        ),
        sizing=sizing,
    )
    return _start_all(start, sizing)


def _buffered_again(registry: Registry, sizing: Sizing) -> Registry:
    """A queue whose pods wait for a node may have a warm one again."""
    waiting = {queue for queue, one in sizing.queues.items() if one.for_pods}
    unbuffered = {
        queue: since
        for queue, since in registry.unbuffered.items()
        if queue in sizing.queues and queue not in waiting
    }
    return msgspec.structs.replace(registry, unbuffered=unbuffered)


def _blind(returned: Returned) -> Converted:
    """Nothing is known of any queue, so all of them wait."""
    limits, known = returned.limits, returned.known
    if known.demand is None:
        reason, detail = Reason.DEMAND_UNREADABLE, ""
    else:
        reason, detail = Reason.QUEUE_UNREADABLE, limits.refusal
    verdicts = {queue: waiting(queue, reason, detail) for queue in known.config.queues}
    return Converted(returned=returned, registry=returned.registry, verdicts=verdicts)


def _start_all(start: Converted, sizing: Sizing) -> Converted:
    """One need after the other, in the order in which nodes are handed out; what is started for
    one is no longer left to the next."""
    known = start.known
    granted = sizing.granted()
    brakes = {
        pool.node_type: _why_not_convert(known, start.returned.registry, pool.node_type)
        for pool in granted
    }
    so_far = start
    wanted: dict[NodePool, int] = {}
    for pool, count in granted.items():
        so_far, obstacle = _judge_queue(so_far, sizing.queues[pool.queue])
        is_wanted = obstacle is None or obstacle.reason is not Reason.BREAKER
        obstacle = obstacle or _wait_for(pool.queue, brakes[pool.node_type])
        if obstacle is None and (why := why_not_counted(so_far, pool, count)):
            obstacle = waiting(pool.queue, Reason.QUEUE_UNREADABLE, why)
            so_far = _asking(so_far, f"{pool.queue} gets no node: {why}")
        before = so_far
        so_far = _wait_or_request(so_far, pool, count, obstacle)
        asked = sum(one.count for one in so_far.requests[len(before.requests) :])
        wanted[pool] = count - asked if is_wanted else 0
    return _give_back(so_far, wanted)


def _give_back(before: Converted, wanted: Mapping[NodePool, int]) -> Converted:
    """What was being lent when its converter died, and is wanted no more."""
    limits, known = before.limits, before.known
    if not before.registry.claimed:
        return before
    undecided = [q for q in known.config.queues if limits.refusal or why_not_judge(limits, q)]
    registry, nodes = give_back_unwanted(known, before.registry, wanted, undecided)
    return msgspec.structs.replace(before, registry=registry, nodes={**before.nodes, **nodes})


def _why_not_convert(known: Known, registry: Registry, node_type: str) -> tuple[Reason, str] | None:
    """What holds every conversion of this type back now; None: nothing does."""
    batch = known.snapshot.batch
    if isinstance(batch, Unreadable):
        return Reason.NO_BATCH_NODE, batch.error
    if batch is None:
        return Reason.BATCH_NOT_ASKED, "the next run asks"
    return why_wait(known.config, registry, node_type, known.now)


def _wait_or_request(
    before: Converted, pool: NodePool, granted: int, obstacle: QueueVerdict | None
) -> Converted:
    """Writes one request down, or says why its queue waits."""
    most = before.known.config.max_conversions_per_run
    left = most - sum(request.count for request in before.requests)
    if obstacle is None and left <= 0:
        obstacle = waiting(pool.queue, Reason.CAPPED, f"max_conversions_per_run = {most}")
    if obstacle is None:
        after = _request(before, pool, min(granted, left))
        if after.requests != before.requests:
            return after
        obstacle = waiting(pool.queue, Reason.CAPPED, _CLAIMED_FIRST)
    if pool.queue in {request.queue for request in before.requests}:
        return before
    return msgspec.structs.replace(before, verdicts={**before.verdicts, pool.queue: obstacle})


def _judge_queue(before: Converted, sizing: QueueSizing) -> tuple[Converted, QueueVerdict | None]:
    """Why the queue gets no node now, if so; a breaker that trips is written down."""
    limits, queue = before.limits, sizing.queue
    known = limits.known
    obstacle = why_not_judge(limits, queue)
    if obstacle is None and limits.refusal:
        obstacle = waiting(queue, Reason.QUEUE_UNREADABLE, limits.refusal)
    if obstacle is not None or not sizing.for_pods:
        return before, obstacle
    demand = sizing.fingerprint
    breaker = judge_breaker(known.config, before.registry, queue, demand, known.now)
    if breaker is None:
        return before, None
    is_new = breaker != before.registry.breakers.get(queue)
    if is_new and queue in known.facts.unscheduled:  # said, but not held against its pods
        return before, waiting(queue, Reason.BREAKER, "for as long as YuniKorn does not answer")
    detail = f"{breaker.strikes} since {breaker.tripped_at:%Y-%m-%d %H:%M:%S} UTC"
    if breaker.demand != demand:
        chance = next_chance(known.config, breaker)
        detail += f"; changed demand is tried after {chance:%Y-%m-%d %H:%M:%S} UTC"
    return _with_breaker(before, queue, breaker), waiting(queue, Reason.BREAKER, detail)


def _asking(before: Converted, question: str) -> Converted:
    """Asks a person, unless the edit of the document asks already."""
    edit = before.limits.edit
    if edit is not None and edit.refusal:
        return before
    return msgspec.structs.replace(before, questions=(*before.questions, question))


def _with_breaker(before: Converted, queue: str, breaker: Breaker) -> Converted:
    breakers = {**before.registry.breakers, queue: breaker}
    registry = msgspec.structs.replace(before.registry, breakers=breakers)
    return msgspec.structs.replace(before, registry=registry)


def _request(before: Converted, pool: NodePool, count: int) -> Converted:
    """Writes the requests down: for so many nodes, as far as the back-off of the type and the
    breaker of the queue allow it. Those whose conversion was interrupted come first, each by its
    name; they are claimed already, so only the others need room under the caps."""
    known, registry = before.known, before.registry
    backoff, breaker = registry.backoffs.get(pool.node_type), registry.breakers.get(pool.queue)
    if backoff is not None:
        count = min(count, backoff.ask_at_most)
    count = allowed_at_once(breaker, count)
    names = resumable_nodes(known.config, registry).get(pool, [])[:count]
    fresh = min(count - len(names), room_for_fresh(known, registry, pool))
    if not names and fresh <= 0:
        return before
    if breaker is not None:
        before = _with_breaker(before, pool.queue, take_chance(known.config, breaker))
    for name in names:
        before = resumed(with_request(before, pool, 1, name), name)
    return with_fresh(before, pool, fresh)


def _wait_for(queue: str, brake: tuple[Reason, str] | None) -> QueueVerdict | None:
    return waiting(queue, *brake) if brake else None
