"""Reports about queues and nodes after all decisions: each queue's status, the numbers behind its
decision, and the pods on each lent node. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.history import Decision
from dnm.model.pod import Pod
from dnm.model.queue_edit import QueueNumbers
from dnm.model.queue_path import is_under, present_lineage
from dnm.model.registry import NodePods, QueueStatus
from dnm.model.value import Resources
from dnm.model.verdict import Verdict
from dnm.plan.conversions import Decided
from dnm.plan.inputs import Inputs
from dnm.queues import unlimited_namespaces
from dnm.sizing.queue_sizing import QueueSizing, count_by_type


def queue_statuses(decided: Decided) -> dict[str, QueueStatus]:
    """Returns each monitored queue's limits, use and decision after this run's actions."""
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


def current_statuses(inputs: Inputs) -> dict[str, QueueStatus]:
    """Returns the status of each monitored queue now: limits as set, lent amounts from the ledger,
    use and requests of the pods. The decisions are those of the last run."""
    queues = inputs.queues
    numbers = queues.numbers_of(inputs.config.instance_id) if queues else {}
    return {
        queue: _status(inputs, queue, inputs.limits.get(queue), numbers.get(queue))
        for queue in inputs.config.queues
    }


def _status(
    inputs: Inputs, queue: str, limits: QueueLimits | None, numbers: QueueNumbers | None
) -> QueueStatus:
    """Returns the status of a queue. If its limits could not be read, it keeps the numbers of the
    last run, from which a lost ledger is rebuilt."""
    demand = inputs.demand.queues.get(queue) if inputs.demand else None
    groups = inputs.demand.groups if inputs.demand else ()
    waiting = [group for group in groups if is_under(group.queue, queue)]
    recorded = inputs.registry.last_run.queues.get(queue)
    previous = recorded or _NOTHING
    is_current = numbers is not None or recorded is None
    return QueueStatus(
        limit=dict(limits.max if limits and is_current else previous.limit),
        baseline=dict(numbers.baseline if numbers else previous.baseline),
        lent=dict(numbers.lent if numbers else previous.lent),
        used=dict(demand.used) if demand else {},
        pending=dict(demand.pending) if demand else {},
        pending_pods=demand.pending_pods if demand else 0,
        verdict=previous.verdict,
        reason=previous.reason,
        code=previous.code,
        is_demand_read=inputs.demand is not None and not inputs.unreadable_namespaces(queue),
        is_judged=numbers is not None or (recorded is not None and recorded.is_judged),
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
    """Returns the pods on each of these nodes, as far as they could be read. Names, which tenants
    choose, are bounded in number and length."""
    by_node: dict[str, list[Pod]] = {}
    for pod in [pod for pod in pods if pod.node in nodes]:
        by_node.setdefault(pod.node, []).append(pod)
    return {name: _holders(pods_on_node) for name, pods_on_node in sorted(by_node.items())}


def _holders(pods: Sequence[Pod]) -> NodePods:
    work = [pod for pod in pods if pod.counts_as_work]
    work.sort(key=lambda pod: (pod.created, pod.namespace, pod.name))  # of any order
    counts = Counter(pod.namespace for pod in work)
    return NodePods(
        count=len(work),
        namespaces=dict(counts.most_common(_MOST_NAMESPACES)),
        names=tuple(f"{pod.namespace}/{pod.name}"[:_LONGEST_NAME] for pod in work[:3]),
        oldest=work[0].created if work else "",
        daemon_pods=sum(not pod.counts_as_work for pod in pods),
    )


MOST_PODS = 10  # named


def headroom(
    queues: Mapping[str, QueueLimits], used: Mapping[str, Resources], path: str
) -> dict[str, int]:
    """Returns a queue's unused quota by resource: the least that its own limit or an ancestor's
    leaves. Root does not count, since it has the size of the cluster."""
    unused: dict[str, int] = {}
    for above in present_lineage(path, queues):
        for resource, amount in queues[above].max.items():
            rest = max(amount - used.get(above, {}).get(resource, 0), 0)
            unused[resource] = min(rest, unused.get(resource, rest))
    return unused


def list_decisions(decided: Decided, statuses: Mapping[str, QueueStatus]) -> dict[str, Decision]:
    """Returns the figures behind the decision about each monitored queue, for the history."""
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
    is_limited = queue in inputs.limits and queue not in unlimited_namespaces(inputs.config)
    return Decision(
        pending_pods=status.pending_pods,
        pending=status.pending,
        used=status.used,
        limit=inputs.limits[queue].max if queue in inputs.limits else {},
        headroom=headroom(inputs.limits, used, queue) if is_limited and inputs.demand else {},
        wanted=count_by_type(sizing.wanted),
        # Nodes stopped by a brake, a pause or another host were not granted.
        granted=count_by_type(sizing.granted) if status.verdict == Verdict.CONVERT.value else {},
        without_capacity=sizing.without_capacity,
        no_quota=sizing.no_quota,
        pods=_lacking(inputs, sizing),
    )


def groups_lacking(inputs: Inputs, sizing: QueueSizing) -> list[PendingGroup]:
    """Returns a queue's groups of equal pods that lack capacity or quota, the largest first."""
    lacking = [
        group
        for group in (inputs.demand.groups if inputs.demand else ())
        if is_under(group.queue, sizing.queue)
        and group.count > sizing.fits.get(group.fingerprint, 0)
    ]
    return sorted(lacking, key=lambda group: (-group.count, group.fingerprint))


def _lacking(inputs: Inputs, sizing: QueueSizing) -> tuple[str, ...]:
    groups = groups_lacking(inputs, sizing)
    names = [f"{group.namespace}/{name}" for group in groups for name in group.names]
    return tuple(names[:MOST_PODS])
