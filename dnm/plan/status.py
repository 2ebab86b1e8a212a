"""One queue as a run saw and left it: what `dnm status` shows, and what a lost ledger is rebuilt
from. Pure."""

from __future__ import annotations

from dnm.model.registry import QueueStatus
from dnm.plan.conversions import Converted


def queue_statuses(converted: Converted) -> dict[str, QueueStatus]:
    """By monitored queue."""
    queues = converted.known.config.queues
    return {queue: _status(converted, queue) for queue in queues}


def _status(converted: Converted, queue: str) -> QueueStatus:
    planned = converted.limits
    known, edit = planned.known, planned.edit
    demand = known.demand.queues.get(queue) if known.demand else None
    numbers = edit.numbers.get(queue) if edit else None
    limits = planned.limits.get(queue)
    verdict = converted.verdicts.get(queue)
    held = edit.held.get(queue) if edit else None
    sentences = [verdict.sentence if verdict else "", held or ""]
    # Where the document could not be judged, the numbers of the last run stand: the ledger is
    # rebuilt from them if it is lost.
    last = known.registry.last_run.queues.get(queue)
    is_known = numbers is not None or last is None
    return QueueStatus(
        limit=dict(limits.max) if limits and is_known else dict(last.limit) if last else {},
        baseline=dict(numbers.baseline) if numbers else dict(last.baseline) if last else {},
        lent=dict(numbers.lent) if numbers else dict(last.lent) if last else {},
        used=dict(demand.used) if demand else {},
        pending=dict(demand.pending) if demand else {},
        pending_pods=demand.pending_pods if demand else 0,
        verdict=verdict.verdict.value if verdict else "",
        reason="; ".join(filter(None, sentences)),
        is_judged=numbers is not None or (last is not None and last.is_judged),
    )
