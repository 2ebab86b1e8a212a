"""Which conversions this run starts: what the queues need, within every cap and brake. Pure."""

from __future__ import annotations

import difflib
from collections import Counter

from dnm.model.cluster import BatchNode
from dnm.model.plan import QueueVerdict, Reason, Verdict
from dnm.model.registry import ConversionRequest
from dnm.model.value import Unreadable
from dnm.plan.brakes import (
    counted_as_lent,
    judge_breaker,
    next_chance,
    take_chance,
    why_not_convert,
)
from dnm.plan.draft import Draft
from dnm.sizing.budget import ConversionBudget, NodePool, count_left
from dnm.sizing.queue_sizing import QueueSizing
from dnm.sizing.sizing import size_queues


def plan_conversions(draft: Draft) -> None:
    """A verdict for every monitored queue, and the requests that follow."""
    if draft.demand is None or draft.facts.nodes is None or draft.source is None:
        reason = Reason.QUEUE_UNREADABLE if draft.demand else Reason.DEMAND_UNREADABLE
        for queue in draft.config.queues:
            _wait(draft, queue, reason, draft.refusal if draft.demand else "")
        return
    sizing = size_queues(
        draft.config, draft.demand, draft.limits, draft.node_supply(), conversion_budget(draft)
    )
    for queue in draft.config.queues:
        if queue in sizing.verdicts:
            draft.queue_verdicts[queue] = sizing.verdicts[queue]
        if queue not in draft.limits:
            _wait(draft, queue, Reason.QUEUE_UNREADABLE, _no_such_queue(draft, queue))
            draft.errors.append(draft.queue_verdicts[queue].detail)
        elif unread := draft.unreadable_namespaces(queue):
            _wait(draft, queue, Reason.DEMAND_UNREADABLE, f"namespace {', '.join(unread)}")
    left = draft.config.max_conversions_per_run
    may_start = {pool.node_type: _why_not(draft, pool.node_type) for pool in sizing.granted()}
    for pool, granted in sizing.granted().items():
        obstacle = _why_not_queue(draft, sizing.queues[pool.queue]) or may_start[pool.node_type]
        if not obstacle and left <= 0:
            per_run = draft.config.max_conversions_per_run
            obstacle = Reason.CAPPED, f"max_conversions_per_run = {per_run}"
        if not obstacle:
            left -= _request(draft, pool, granted, left)
        elif pool.queue not in {request.queue for request in draft.new_requests}:
            _wait(draft, pool.queue, *obstacle)


def conversion_budget(draft: Draft) -> ConversionBudget:
    """What caps and the batch side leave. A batch side that can't be read bounds nothing here:
    then no conversion is started at all (`_why_not`)."""
    lent = counted_as_lent(draft.config, draft.registry(), draft.facts.nodes or {})
    return count_left(draft.config, lent, _at_hand(draft))


def _at_hand(draft: Draft) -> dict[str, int]:
    """Node type -> batch nodes that could be lent now, by the converter's own judgement."""
    if draft.facts.batch is None:
        return {}
    counts: Counter[str] = Counter()
    for name, node in draft.facts.batch.items():
        if _can_be_lent(draft, node) and name not in draft.entries:
            counts[draft.config.type_of(name) or ""] += 1
    return {node_type: counts[node_type] for node_type in draft.config.node_types}


def _can_be_lent(draft: Draft, node: BatchNode) -> bool:
    return node.verdict == "OK" or (node.verdict == "PREEMPT" and draft.config.allow_preempt)


def _why_not(draft: Draft, node_type: str) -> tuple[Reason, str] | None:
    """What holds every conversion of this type back now."""
    if isinstance(draft.snapshot.batch, Unreadable):
        return Reason.NO_BATCH_NODE, draft.snapshot.batch.error
    if draft.snapshot.batch is None:
        return Reason.BATCH_NOT_ASKED, "the next run asks"
    return why_not_convert(draft.config, draft.registry(), node_type, draft.now)


def _why_not_queue(draft: Draft, sizing: QueueSizing) -> tuple[Reason, str] | None:
    queue = sizing.queue
    if queue not in draft.limits:
        return Reason.QUEUE_UNREADABLE, _no_such_queue(draft, queue)
    unread = draft.unreadable_namespaces(queue)
    if unread:
        return Reason.DEMAND_UNREADABLE, f"namespace {', '.join(unread)}"
    if draft.refusal:
        return Reason.QUEUE_UNREADABLE, draft.refusal
    if not sizing.for_pods:
        return None
    breaker = judge_breaker(draft.config, draft.registry(), queue, sizing.fingerprint, draft.now)
    if breaker is None:
        return None
    draft.breakers[queue] = breaker
    detail = f"{breaker.strikes} since {breaker.tripped_at:%Y-%m-%d %H:%M:%S} UTC"
    if breaker.demand != sizing.fingerprint:
        chance = next_chance(draft.config, breaker)
        detail += f"; changed demand is tried after {chance:%Y-%m-%d %H:%M:%S} UTC"
    return Reason.BREAKER, detail


def _no_such_queue(draft: Draft, queue: str) -> str:
    close = difflib.get_close_matches(queue, draft.limits, n=1)
    hint = f", did you mean {close[0]}?" if close else "; `dnm queues show` lists those there are"
    return f"the queue document has no queue {queue}{hint}"


def _wait(draft: Draft, queue: str, reason: Reason, detail: str = "") -> None:
    draft.queue_verdicts[queue] = QueueVerdict(
        queue=queue, verdict=Verdict.WAIT, reason=reason, detail=detail
    )


def _request(draft: Draft, pool: NodePool, granted: int, left: int) -> int:
    """Writes the request down; says how many nodes it asks for."""
    backoff = draft.backoffs.get(pool.node_type)
    ask_at_most = backoff.ask_at_most if backoff else granted
    count = min(granted, left, ask_at_most)
    if pool.queue in draft.breakers:
        breaker = take_chance(draft.config, draft.breakers[pool.queue])
        draft.breakers[pool.queue] = breaker
        count = 1 if breaker.trips else count
    number = len(draft.new_requests) + 1
    known = sorted(
        name
        for name in draft.facts.nodes or {}
        if draft.config.type_of(name) == pool.node_type and name not in draft.entries
    )
    draft.new_requests.append(
        ConversionRequest(
            id=f"{draft.now:%Y%m%dT%H%M%S%f}-{number}",
            node_type=pool.node_type,
            namespace=pool.namespace,
            queue=pool.queue,
            owner=draft.config.instance_id,
            count=count,
            since=draft.now,
            known_nodes=tuple(known),
        )
    )
    draft.last_conversion = draft.now
    return count
