"""What is said of queues after all is decided: their state, the numbers of the decision, and pods
that wait in vain, which lack room or quota while their queue gets no node. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec

from dnm.demand.pending import PendingGroup
from dnm.model.cluster import Pod, QueueLimits
from dnm.model.event import WaitingPods
from dnm.model.history import Decision
from dnm.model.queue_edit import QueueNumbers
from dnm.model.queue_path import is_under, known_lineage
from dnm.model.registry import NodePods, QueueStatus
from dnm.model.value import Resources, Unreadable
from dnm.model.verdict import QueueVerdict, Reason, Verdict
from dnm.plan.conversions import Decided
from dnm.plan.inputs import Inputs
from dnm.queues.edit_report import numbers_now
from dnm.sizing.budget import NodePool
from dnm.sizing.queue_sizing import QueueSizing


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
    last = inputs.registry.last_run.queues.get(queue)
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
        is_demand_known=inputs.demand is not None and not inputs.unreadable_namespaces(queue),
        is_judged=numbers is not None or (last is not None and last.is_judged),
        waits_since=min((g.oldest for g in groups if is_under(g.queue, queue)), default=""),
        floor=sum(one.min_nodes for one in inputs.config.namespaces.values() if one.queue == queue),
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
    work = sorted((one for one in pods if one.counts_as_work), key=lambda one: one.created)
    counts = Counter(one.namespace for one in work)
    return NodePods(
        count=len(work),
        namespaces=dict(counts.most_common(_MOST_NAMESPACES)),
        names=tuple(f"{one.namespace}/{one.name}"[:_LONGEST_NAME] for one in work[:3]),
        oldest=work[0].created if work else "",
        apart=sum(not one.counts_as_work for one in pods),
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
    inputs, sizing = decided.inputs, decided.conversions.sizing
    sizings = sizing.queues if sizing else {}
    demand = inputs.demand
    used = {path: one.used for path, one in demand.queues.items()} if demand else {}
    return {
        queue: _decision(inputs, status, sizings.get(queue, QueueSizing(queue=queue)), used)
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
        wanted=_by_type(sizing.wanted),
        # What a brake, a pause or another host kept from being lent was not granted.
        granted=_by_type(sizing.granted) if status.verdict == Verdict.CONVERT.value else {},
        no_room=sizing.no_room,
        no_quota=sizing.no_quota,
        pods=_lacking(inputs, sizing),
    )


def _by_type(nodes: Mapping[NodePool, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for pool, count in nodes.items():
        counts[pool.node_type] += count
    return dict(sorted(counts.items()))


def _lacking(inputs: Inputs, sizing: QueueSizing) -> tuple[str, ...]:
    """Pods of the groups that do not all have room and quota, the largest groups first."""
    if inputs.demand is None:
        return ()
    lacking = [
        group
        for group in inputs.demand.groups
        if is_under(group.queue, sizing.queue)
        and group.count > sizing.fits.get(group.fingerprint, 0)
    ]
    lacking.sort(key=lambda group: (-group.count, group.fingerprint))
    names = [f"{group.namespace}/{name}" for group in lacking for name in group.names]
    return tuple(names[:MOST_PODS])


# What time alone does not end soon. The others are over in a run or two, or nothing is wanted.
IN_VAIN = frozenset({
    Reason.NOTHING_HELPS, Reason.CAPPED, Reason.NO_BATCH_NODE, Reason.KUBELET_SETTINGS,
    Reason.BACKOFF, Reason.BREAKER, Reason.PAUSED, Reason.QUEUE_UNREADABLE, Reason.OTHERS_FIRST,
    Reason.BATCH_FLOOR, Reason.BATCH_WAITS, Reason.BRIDGE_EVICTS,
    Reason.HOURS_SPENT,
})  # fmt: skip

MOST_KINDS = 20  # of a namespace: each is an Event


def list_waiting(decided: Decided) -> tuple[WaitingPods, ...]:
    """Returns one for each group of equal pods that waits in vain, of each namespace the largest
    first, and of all namespaces their first ones first."""
    groups = [
        (group, verdict)
        for verdict in decided.conversions.verdicts.values()
        if verdict.reason in IN_VAIN
        for group in _groups_lacking(decided, verdict.queue)
    ]
    groups.sort(key=lambda one: (-one[0].count, one[0].fingerprint))
    groups = _in_turn(groups)
    uids = _uids(decided, {_first_pod(group) for group, _ in groups})
    return tuple(
        _waiting(group, verdict, _why_own(decided, group, verdict), uids[_first_pod(group)])
        for group, verdict in groups
        if _first_pod(group) in uids
    )


def _first_pod(group: PendingGroup) -> tuple[str, str]:
    return group.namespace, group.names[0]


def _in_turn(
    groups: Iterable[tuple[PendingGroup, QueueVerdict]],
) -> list[tuple[PendingGroup, QueueVerdict]]:
    """A few of each namespace, one after the other: no tenant's kinds keep others from theirs."""
    ranks: Counter[str] = Counter()
    ranked = []
    for group, verdict in groups:
        ranks[group.namespace] += 1
        if ranks[group.namespace] <= MOST_KINDS:
            ranked.append((ranks[group.namespace], group, verdict))
    return [(group, verdict) for _, group, verdict in sorted(ranked, key=itemgetter(0))]


def _why_own(decided: Decided, group: PendingGroup, verdict: QueueVerdict) -> str:
    """Why these pods wait: whoever may see one of them reads it, and finds no other's pod named."""
    one = (
        decided.conversions.sizing.queues.get(verdict.queue) if decided.conversions.sizing else None
    )
    for found in one.unschedulable if one else ():
        if found.group.fingerprint == group.fingerprint:
            return f"no new node would help it: {found.why}"
    return verdict.without_pods


def _groups_lacking(decided: Decided, queue: str) -> Iterator[PendingGroup]:
    inputs, sizing = decided.inputs, decided.conversions.sizing
    one = sizing.queues.get(queue) if sizing else None
    fits = one.fits if one else {}
    for group in inputs.demand.groups if inputs.demand else ():
        is_lacking = group.count > fits.get(group.fingerprint, 0)
        if is_lacking and is_under(group.queue, queue) and group.names:
            yield group


def _uids(decided: Decided, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    pods = decided.inputs.snapshot.pods
    if not wanted or isinstance(pods, Unreadable):
        return {}
    return {
        (pod.namespace, pod.name): pod.uid
        for pod in pods.pods
        if (pod.namespace, pod.name) in wanted
    }


def _waiting(group: PendingGroup, verdict: QueueVerdict, why: str, uid: str) -> WaitingPods:
    return WaitingPods(
        kind=group.fingerprint,
        queue=verdict.queue,
        namespace=group.namespace,
        name=group.names[0],
        uid=uid,
        count=group.count,
        sentence=why,
    )
