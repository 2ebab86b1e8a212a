"""What is counted from one registry to the next, for metrics and for the lines to come. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from dnm.model.history import BOUNDS, Asked, Durations, HistoryLine, Lent, Memory, Totals
from dnm.model.lent import LentNode
from dnm.model.registry import Registry
from dnm.record.transitions import is_in_force, request_of, why_requested

_CONVERSIONS = {("node", "joined"): "joined", ("node", "failed"): "failed"}


def remember(
    before: Registry, after: Registry, lines: Iterable[HistoryLine], now: datetime
) -> Memory:
    """Returns the memory of `before` with what has come about since."""
    memory = before.memory
    requests = {request.id for request in after.requests}
    asked = {id_: one for id_, one in memory.asked.items() if id_ in requests}
    for request in after.requests:
        if request.id not in asked:
            reason, code = why_requested(after, request)
            asked[request.id] = Asked(since=now, code=code, reason=reason)
    lent = {name: one for name, one in memory.lent.items() if name in after.nodes}
    for name, entry in after.nodes.items():
        if name not in lent:
            came_of = request_of(before, name, entry)
            known = memory.asked.get(came_of.id) if came_of else None
            lent[name] = Lent(
                since=entry.since if name in before.nodes else now,
                asked_at=known.since if known else None,
            )
    return msgspec.structs.replace(
        memory,
        asked=asked,
        lent=lent,
        is_paused=is_in_force(after.pause, now),
        totals=_count(
            msgspec.structs.replace(memory, lent={**memory.lent, **lent}),
            before,
            after,
            lines,
            now,
        ),
    )


def serves_since(lent: Lent, entry: LentNode) -> datetime:
    """Returns since when a lent node is its queue's."""
    return max(lent.since, entry.moved_at or lent.since)


def _count(
    memory: Memory, before: Registry, after: Registry, lines: Iterable[HistoryLine], now: datetime
) -> Totals:
    """`memory` knows the nodes that have come and those that have gone."""
    totals = memory.totals
    for line in lines:
        totals = _counted(totals, memory, line)
    seconds = totals.lent_seconds
    for name, entry in before.nodes.items():
        is_same = name in after.nodes and after.nodes[name].queue == entry.queue
        if not is_same and name in memory.lent:
            span = max((now - serves_since(memory.lent[name], entry)).total_seconds(), 0.0)
            of_queue = seconds.get(entry.queue, {})
            so_far = of_queue.get(entry.node_type, 0.0)
            seconds = {**seconds, entry.queue: {**of_queue, entry.node_type: so_far + span}}
    return msgspec.structs.replace(totals, lent_seconds=seconds)


def _counted(totals: Totals, memory: Memory, line: HistoryLine) -> Totals:
    node_type = line.node_type
    match (line.kind, line.event, line.before):
        case ("node", "joined", "joining"):
            lent = memory.lent.get(line.object)
            if lent is not None and lent.asked_at is not None:
                took = max((line.time - lent.asked_at).total_seconds(), 0.0)
                totals = msgspec.structs.replace(
                    totals, conversion_seconds=_measured(totals.conversion_seconds, node_type, took)
                )
            totals = _with_steps(totals, node_type, line.numbers.get("took", {}))
            return _conversion(totals, node_type, "joined", 1)
        case ("node", "failed" | "forgotten", "joining"):
            return _conversion(totals, node_type, "failed", 1)
        case ("request", "given-up" | "failed", _):
            return _conversion(totals, node_type, "failed", int(line.numbers.get("missing", 1)))
        case ("node", "moved", _):
            return msgspec.structs.replace(totals, moves=_one_more(totals.moves, node_type))
        case ("node", "returned", _):
            return _reversion(totals, node_type, "returned")
        case ("node", "return-failed", _) | ("node", "failed", "returning"):
            return _reversion(totals, node_type, "failed")
    return totals


def _with_steps(totals: Totals, node_type: str, took: Mapping[str, int]) -> Totals:
    steps: Mapping[str, Durations] = totals.step_seconds.get(node_type, {})
    for step, seconds in took.items():
        steps = _measured(steps, step, seconds)
    if not took:
        return totals
    all_steps = {**totals.step_seconds, node_type: dict(steps)}
    return msgspec.structs.replace(totals, step_seconds=all_steps)


def _conversion(totals: Totals, node_type: str, result: str, count: int) -> Totals:
    conversions = _added(totals.conversions, node_type, result, count)
    return msgspec.structs.replace(totals, conversions=conversions)


def _reversion(totals: Totals, node_type: str, result: str) -> Totals:
    reversions = _added(totals.reversions, node_type, result, 1)
    return msgspec.structs.replace(totals, reversions=reversions)


def _one_more(counts: Mapping[str, int], node_type: str) -> dict[str, int]:
    return {**counts, node_type: counts.get(node_type, 0) + 1}


def _added(
    counts: Mapping[str, dict[str, int]], node_type: str, result: str, count: int
) -> dict[str, dict[str, int]]:
    of_type = counts.get(node_type, {})
    return {**counts, node_type: {**of_type, result: of_type.get(result, 0) + count}}


def _measured(
    known: Mapping[str, Durations], node_type: str, seconds: float
) -> dict[str, Durations]:
    before = known.get(node_type, Durations(counts=(0,) * len(BOUNDS)))
    return {
        **known,
        node_type: Durations(
            counts=tuple(
                count + (seconds <= bound)
                for count, bound in zip(before.counts, BOUNDS, strict=True)
            ),
            total=before.total + seconds,
            number=before.number + 1,
        ),
    }
