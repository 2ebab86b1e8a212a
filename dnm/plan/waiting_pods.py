"""Pods that wait in vain: they lack room or quota, and their queue gets no node. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter

from dnm.demand.pending import PendingGroup
from dnm.model.plan import WaitingPods
from dnm.model.value import Unreadable
from dnm.model.verdict import QueueVerdict
from dnm.plan.conversions import Decided
from dnm.plan.queue_reports import groups_lacking

MOST_KINDS = 20  # of a namespace: each is an Event


def list_waiting(decided: Decided) -> tuple[WaitingPods, ...]:
    """Returns one for each group of equal pods that waits in vain, of each namespace the largest
    first, and of all namespaces their first ones first."""
    sizing = decided.conversions.sizing
    groups = [
        (group, verdict)
        for verdict in decided.conversions.verdicts.values()
        if verdict.reason.pods_are_told
        for group in groups_lacking(decided.inputs, sizing.of(verdict.queue))
    ]
    groups.sort(key=lambda pair: (-pair[0].count, pair[0].fingerprint))
    groups = _in_turn(groups)
    uids = _uids(decided, {_first_pod(group) for group, _ in groups})
    return tuple(
        WaitingPods(
            kind=group.fingerprint,
            queue=verdict.queue,
            namespace=group.namespace,
            name=group.names[0],
            uid=uids[_first_pod(group)],
            count=group.count,
            sentence=_why_own(decided, group, verdict),
        )
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
    for found in decided.conversions.sizing.of(verdict.queue).unschedulable:
        if found.group.fingerprint == group.fingerprint:
            return f"no new node would help it: {found.why}"
    return verdict.without_pods


def _uids(decided: Decided, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    pods = decided.inputs.snapshot.pods
    if not wanted or isinstance(pods, Unreadable):
        return {}
    return {
        (pod.namespace, pod.name): pod.uid
        for pod in pods.pods
        if (pod.namespace, pod.name) in wanted
    }
