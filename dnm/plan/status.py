"""One queue as a run saw and left it: what `dnm status` shows, and what a lost ledger is rebuilt
from. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

import msgspec

from dnm.model.cluster import Pod, QueueLimits
from dnm.model.queue_edit import QueueNumbers
from dnm.model.registry import NodePods, QueueStatus
from dnm.plan.conversions import Converted
from dnm.plan.known import Known
from dnm.queues.edit_report import numbers_now


def queue_statuses(converted: Converted) -> dict[str, QueueStatus]:
    """By monitored queue, as the run leaves them."""
    planned = converted.limits
    edit, known = planned.edit, planned.known
    statuses = {}
    for queue in known.config.queues:
        numbers = edit.numbers.get(queue) if edit else None
        status = _status(known, queue, planned.limits.get(queue), numbers)
        verdict = converted.verdicts.get(queue)
        held = edit.held.get(queue) if edit else None
        statuses[queue] = msgspec.structs.replace(
            status,
            verdict=verdict.verdict.value if verdict else "",
            code=verdict.reason.name if verdict else "",
            reason="; ".join(filter(None, [verdict.sentence if verdict else "", held or ""])),
        )
    return statuses


def seen_statuses(known: Known) -> dict[str, QueueStatus]:
    """By monitored queue, as they are: the limits in the document, what the ledger says of them,
    and what the pods use and want now. Verdicts are those of the last run."""
    document, instance = known.document, known.config.instance_id
    is_told = document is not None and not document.ledger_problem
    numbers = numbers_now(document, instance) if document and is_told else {}
    return {
        queue: _status(known, queue, known.limits.get(queue), numbers.get(queue))
        for queue in known.config.queues
    }


def _status(
    known: Known, queue: str, limits: QueueLimits | None, numbers: QueueNumbers | None
) -> QueueStatus:
    """Where the document could not be judged, the numbers of the last run stand: the ledger is
    rebuilt from them if it is lost."""
    demand = known.demand.queues.get(queue) if known.demand else None
    last = known.registry.last_run.queues.get(queue)
    is_known = numbers is not None or last is None
    return QueueStatus(
        limit=dict(limits.max) if limits and is_known else dict(last.limit) if last else {},
        baseline=dict(numbers.baseline) if numbers else dict(last.baseline) if last else {},
        lent=dict(numbers.lent) if numbers else dict(last.lent) if last else {},
        used=dict(demand.used) if demand else {},
        pending=dict(demand.pending) if demand else {},
        pending_pods=demand.pending_pods if demand else 0,
        verdict=last.verdict if last else "",
        reason=last.reason if last else "",
        code=last.code if last else "",
        is_demand_known=known.demand is not None and not known.unreadable_namespaces(queue),
        is_judged=numbers is not None or (last is not None and last.is_judged),
    )


_MOST_NAMESPACES, _LONGEST_NAME = 20, 100  # of one node, and characters


def holders_of(pods: Iterable[Pod], nodes: Container[str]) -> dict[str, NodePods]:
    """Returns who holds each of these nodes, as far as the pods could be read; a tenant's names
    take bounded room."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node in nodes:
            found.setdefault(pod.node, []).append(pod)
    return {name: _holders(on_it) for name, on_it in sorted(found.items())}


def _holders(pods: Sequence[Pod]) -> NodePods:
    work = sorted((one for one in pods if one.counts_as_work), key=lambda one: one.created)
    counts = Counter(one.namespace for one in work)
    return NodePods(
        count=len(work),
        namespaces=dict(counts.most_common(_MOST_NAMESPACES)),
        names=tuple(f"{one.namespace}/{one.name}"[:_LONGEST_NAME] for one in work[:3]),
        oldest=work[0].created if work else "",
        apart=sum(not one.counts_as_work for one in pods),
    )
