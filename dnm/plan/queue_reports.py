"""What is said of queues and nodes after all is decided: the state of each queue, the numbers of
the decision, and who holds each lent node. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.history import Decision
from dnm.model.pod import Pod
from dnm.model.queue_edit import QueueNumbers
from dnm.model.queue_path import is_under, known_lineage
from dnm.model.registry import NodePods, QueueStatus
from dnm.model.value import Resources
from dnm.model.verdict import Verdict
from dnm.plan.conversions import Decided
from dnm.plan.inputs import Inputs
from dnm.queues.edit_report import numbers_now
from dnm.sizing.queue_sizing import QueueSizing, count_by_type


def queue_statuses(decided: Decided) -> dict[str, QueueStatus]:
    """By monitored queue, as the run leaves them."""
    planned, inputs = decided.limits, decided.inputs
    edit = planned.edit
    statuses = {}
    for queue in inputs.config.queues:
        numbers = edit.numbers.get(queue) if edit else None
        status = _status(inputs, queue, planned.limits.get(queue), numbers)
        verdict = decided.conversions.verdicts.get(queue)
        held = edit.held.get(queue) if edit else None
        statuses[queue] = msgspec.structs.replace(
            status,
            verdict=verdict.verdict.value if verdict else "",
            code=verdict.reason.name if verdict else "",
            reason="; ".join(filter(None, [verdict.sentence if verdict else "", held or ""])),
        )
    return statuses


def seen_statuses(inputs: Inputs) -> dict[str, QueueStatus]:
    """By monitored queue, as they are: the limits in the document, what the ledger says of them,
    and what the pods use and want now. Verdicts are those of the last run."""
    document, instance = inputs.document, inputs.config.instance_id
    is_told = document is not None and not document.ledger_problem
    numbers = numbers_now(document, instance) if document and is_told else {}
    return {
        queue: _status(inputs, queue, inputs.limits.get(queue), numbers.get(queue))
        for queue in inputs.config.queues
    }


def _status(
    inputs: Inputs, queue: str, limits: QueueLimits | None, numbers: QueueNumbers | None
) -> QueueStatus:
    """Where the document could not be judged, the numbers of the last run stand: the ledger is
    rebuilt from them if it is lost."""
    demand = inputs.demand.queues.get(queue) if inputs.demand else None
    groups = inputs.demand.groups if inputs.demand else ()
    waiting = [group for group in groups if is_under(group.queue, queue)]
    last = inputs.registry.last_run.queues.get(queue)
    known = last or _NOTHING
    is_known = numbers is not None or last is None
    return QueueStatus(
        limit=dict(limits.max if limits and is_known else known.limit),
        baseline=dict(numbers.baseline if numbers else known.baseline),
        lent=dict(numbers.lent if numbers else known.lent),
        used=dict(demand.used) if demand else {},
        pending=dict(demand.pending) if demand else {},
        pending_pods=demand.pending_pods if demand else 0,
        verdict=known.verdict,
        reason=known.reason,
        code=known.code,
        is_demand_known=inputs.demand is not None and not inputs.unreadable_namespaces(queue),
        is_judged=numbers is not None or (last is not None and last.is_judged),
        waits_since=min((group.oldest for group in waiting), default=""),
        young_pods=sum(group.young for group in waiting),
        floor=sum(
            namespace.min_nodes
            for namespace in inputs.config.namespaces.values()
            if namespace.queue == queue
        ),
    )


_NOTHING = QueueStatus(
    limit={}, baseline={}, lent={}, used={}, pending={}, pending_pods=0, verdict="", reason=""
)
_MOST_NAMESPACES, _LONGEST_NAME = 20, 100  # of one node, and characters


def holders_of(pods: Iterable[Pod], nodes: Container[str]) -> dict[str, NodePods]:
    """Returns who holds each of these nodes, as far as the pods could be read; a tenant's names
    take bounded room."""
    found: dict[str, list[Pod]] = {}
    for pod in [pod for pod in pods if pod.node in nodes]:
        found.setdefault(pod.node, []).append(pod)
    return {name: _holders(on_it) for name, on_it in sorted(found.items())}


def _holders(pods: Sequence[Pod]) -> NodePods:
    work = [pod for pod in pods if pod.counts_as_work]
    work.sort(key=lambda pod: (pod.created, pod.namespace, pod.name))  # of any order
    counts = Counter(pod.namespace for pod in work)
    return NodePods(
        count=len(work),
        namespaces=dict(counts.most_common(_MOST_NAMESPACES)),
        names=tuple(f"{pod.namespace}/{pod.name}"[:_LONGEST_NAME] for pod in work[:3]),
        oldest=work[0].created if work else "",
        apart=sum(not pod.counts_as_work for pod in pods),
    )


MOST_PODS = 10  # named


def headroom(
    queues: Mapping[str, QueueLimits], used: Mapping[str, Resources], path: str
) -> dict[str, int]:
    """What a queue may still use of each resource that it or a queue above it limits; root's size
    is the cluster's and not among them."""
    room: dict[str, int] = {}
    for above in known_lineage(path, queues):
        for resource, amount in queues[above].max.items():
            rest = max(amount - used.get(above, {}).get(resource, 0), 0)
            room[resource] = min(rest, room.get(resource, rest))
    return room


def list_decisions(decided: Decided, statuses: Mapping[str, QueueStatus]) -> dict[str, Decision]:
    """Returns the numbers of every monitored queue, as the run found and decided them."""
    inputs, demand = decided.inputs, decided.inputs.demand
    used = {path: queue.used for path, queue in demand.queues.items()} if demand else {}
    return {
        queue: _decision(inputs, status, decided.conversions.sizing.of(queue), used)
        for queue, status in statuses.items()
    }


def _decision(
    inputs: Inputs, status: QueueStatus, sizing: QueueSizing, used: Mapping[str, Resources]
) -> Decision:
    queue = sizing.queue
    is_limited = inputs.demand is not None and queue in inputs.limits
    return Decision(
        pending_pods=status.pending_pods,
        pending=status.pending,
        used=status.used,
        limit=inputs.limits[queue].max if queue in inputs.limits else {},
        headroom=headroom(inputs.limits, used, queue) if is_limited else {},
        wanted=count_by_type(sizing.wanted),
        # What a brake, a pause or another host kept from being lent was not granted.
        granted=count_by_type(sizing.granted) if status.verdict == Verdict.CONVERT.value else {},
        no_room=sizing.no_room,
        no_quota=sizing.no_quota,
        pods=_lacking(inputs, sizing),
    )


def groups_lacking(inputs: Inputs, sizing: QueueSizing) -> list[PendingGroup]:
    """Returns the groups of a queue that do not all have room and quota, the largest first."""
    lacking = [
        group
        for group in (inputs.demand.groups if inputs.demand else ())
        if is_under(group.queue, sizing.queue)
        and group.count > sizing.fits.get(group.fingerprint, 0)
    ]
    return sorted(lacking, key=lambda group: (-group.count, group.fingerprint))


def _lacking(inputs: Inputs, sizing: QueueSizing) -> tuple[str, ...]:
    lacking = groups_lacking(inputs, sizing)
    names = [f"{group.namespace}/{name}" for group in lacking for name in group.names]
    return tuple(names[:MOST_PODS])
