"""Pods that wait in vain: those that lack room or quota while their queue gets no node. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dnm.demand.pending import PendingGroup
from dnm.model.event import WaitingPods
from dnm.model.plan import QueueVerdict, Reason
from dnm.model.queue_path import is_under
from dnm.model.value import Unreadable
from dnm.plan.conversions import Converted

# What time alone does not end soon. The others are over in a run or two, or nothing is wanted.
IN_VAIN = frozenset({
    Reason.NOTHING_HELPS, Reason.CAPPED, Reason.NO_BATCH_NODE, Reason.KUBELET_SETTINGS,
    Reason.BACKOFF, Reason.BREAKER, Reason.PAUSED, Reason.QUEUE_UNREADABLE, Reason.OTHERS_FIRST,
    Reason.BATCH_FLOOR, Reason.BATCH_WAITS, Reason.BRIDGE_EVICTS,
    Reason.HOURS_SPENT,
})  # fmt: skip


def list_waiting(converted: Converted) -> tuple[WaitingPods, ...]:
    """Returns one for each group of equal pods that waits in vain, the largest groups first."""
    groups = [
        (group, verdict)
        for verdict in converted.verdicts.values()
        if verdict.reason in IN_VAIN
        for group in _lacking(converted, verdict.queue)
    ]
    groups.sort(key=lambda one: (-one[0].count, one[0].fingerprint))
    uids = _uids(converted, {(group.namespace, group.names[0]) for group, _ in groups})
    return tuple(
        _waiting(group, verdict, uids[group.namespace, group.names[0]])
        for group, verdict in groups
        if (group.namespace, group.names[0]) in uids
    )


def _lacking(converted: Converted, queue: str) -> Iterator[PendingGroup]:
    known, sizing = converted.known, converted.sizing
    one = sizing.queues.get(queue) if sizing else None
    fits = one.fits if one else {}
    for group in known.demand.groups if known.demand else ():
        is_lacking = group.count > fits.get(group.fingerprint, 0)
        if is_lacking and is_under(group.queue, queue) and group.names:
            yield group


def _uids(converted: Converted, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    pods = converted.known.snapshot.pods
    if not wanted or isinstance(pods, Unreadable):
        return {}
    return {
        (pod.namespace, pod.name): pod.uid
        for pod in pods.pods
        if (pod.namespace, pod.name) in wanted
    }


def _waiting(group: PendingGroup, verdict: QueueVerdict, uid: str) -> WaitingPods:
    return WaitingPods(
        kind=group.fingerprint,
        queue=verdict.queue,
        namespace=group.namespace,
        name=group.names[0],
        uid=uid,
        count=group.count,
        sentence=verdict.sentence,
    )
