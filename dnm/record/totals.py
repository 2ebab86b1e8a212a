"""The totals since the registry was created, for metrics and for later lines of history. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from dnm.model.history import BOUNDS, Durations, HistoryLine, Lent, Memory, RequestCause, Totals
from dnm.model.lent import LentNode
from dnm.model.registry import Registry
from dnm.record.transitions import request_of, why_requested

_HISTOGRAMS = ("conversion_seconds", "step_seconds")


def remember(
    before: Registry, after: Registry, lines: Iterable[HistoryLine], now: datetime
) -> Memory:
    """Returns the registry's memory (totals, causes of lends) after the change from `before`."""
    memory = before.memory
    requests = {request.id for request in after.requests}
    asked = {id_: request for id_, request in memory.asked.items() if id_ in requests}
    for request in after.requests:
        if request.id not in asked:
            reason, code = why_requested(after, request)
            asked[request.id] = RequestCause(since=now, code=code, reason=reason)
    lent = {name: lent for name, lent in memory.lent.items() if name in after.nodes}
    for name, entry in after.nodes.items():
        if name not in lent:
            origin = request_of(before, name, entry)
            value = memory.asked.get(origin.id) if origin else None
            lent[name] = Lent(
                since=entry.since if name in before.nodes else now,
                asked_at=value.since if value else None,
            )
    all_lent = replace(memory, lent={**memory.lent, **lent})
    return replace(
        memory, asked=asked, lent=lent, is_paused=after.paused(now) is not None,
        totals=_count(all_lent, before, after, lines, now),
    )  # fmt: skip


def serves_since(lent: Lent, entry: LentNode) -> datetime:
    """Returns since when a node has been lent to its queue: since its lend, or its last move."""
    return max(lent.since, entry.moved_at or lent.since)


def _count(
    memory: Memory, before: Registry, after: Registry, lines: Iterable[HistoryLine], now: datetime
) -> Totals:
    """Returns the totals after a change of the registry. `memory` has the nodes of both states."""
    totals = memory.totals
    for line in lines:
        totals = _counted(totals, memory, line)
    for name, entry in before.nodes.items():
        is_same = name in after.nodes and after.nodes[name].queue == entry.queue
        if not is_same and name in memory.lent:
            span = max((now - serves_since(memory.lent[name], entry)).total_seconds(), 0.0)
            totals = _plus(totals, "lent_seconds", (entry.queue, entry.node_type), span)
    return totals


def _counted(totals: Totals, memory: Memory, line: HistoryLine) -> Totals:
    node_type = line.node_type
    match (line.kind, line.event, line.before):
        case ("node", "joined", "joining"):
            lent = memory.lent.get(line.object)
            if lent is not None and lent.asked_at is not None:
                took = max((line.time - lent.asked_at).total_seconds(), 0.0)
                totals = _plus(totals, "conversion_seconds", (node_type,), took)
            for step, seconds in line.numbers.get("took", {}).items():
                totals = _plus(totals, "step_seconds", (node_type, step), seconds)
            return _plus(totals, "conversions", (node_type, "joined"), 1)
        case ("node", "failed" | "forgotten", "joining"):
            return _plus(totals, "conversions", (node_type, "failed"), 1)
        case ("request", "given-up" | "failed", _):
            missing = int(line.numbers.get("missing", 1))
            return _plus(totals, "conversions", (node_type, "failed"), missing)
        case ("node", "moved", _):
            return _plus(totals, "moves", (node_type,), 1)
        case ("node", "returned", _):
            return _plus(totals, "reversions", (node_type, "returned"), 1)
        case ("node", "return-failed", _) | ("node", "failed", "returning"):
            return _plus(totals, "reversions", (node_type, "failed"), 1)
    return totals


def _plus(totals: Totals, counts: str, keys: tuple[str, ...], amount: float) -> Totals:
    """Returns the totals with `amount` added to the count or the histogram under these keys."""
    empty = Durations(counts=(0,) * len(BOUNDS)) if counts in _HISTOGRAMS else 0
    return replace(totals, **{counts: _within(getattr(totals, counts), keys, amount, empty)})


def _within(asked: Any, keys: tuple[str, ...], amount: float, empty: Durations | int) -> Any:
    if keys:
        below = asked.get(keys[0], {} if keys[1:] else empty)
        return {**asked, keys[0]: _within(below, keys[1:], amount, empty)}
    if not isinstance(asked, Durations):
        return asked + amount
    bounded = zip(asked.counts, BOUNDS, strict=True)
    counts = tuple(count + (amount <= bound) for count, bound in bounded)
    return Durations(counts=counts, total=asked.total + amount, number=asked.number + 1)
