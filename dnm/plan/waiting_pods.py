"""Reports about pods that wait for capacity or quota while their queue gets no node. Pure."""

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
    """Returns a report for each group of equal pods that waits. Namespaces take turns in the list,
    each with its largest group first."""
    sizing = decided.conversions.sizing
    groups = [
        (group, verdict)
        for verdict in decided.conversions.verdicts.values()
        if verdict.reason.has_pod_event
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
            sentence=_describe_group(decided, group, verdict),
        )
        for group, verdict in groups
        if _first_pod(group) in uids
    )


def _first_pod(group: PendingGroup) -> tuple[str, str]:
    return group.namespace, group.names[0]


def _in_turn(
    groups: Iterable[tuple[PendingGroup, QueueVerdict]],
) -> list[tuple[PendingGroup, QueueVerdict]]:
    """Returns a few groups of each namespace, in turns, so that no tenant can displace others'."""
    ranks: Counter[str] = Counter()
    ranked = []
    for group, verdict in groups:
        ranks[group.namespace] += 1
        if ranks[group.namespace] <= MOST_KINDS:
            ranked.append((ranks[group.namespace], group, verdict))
    return [(group, verdict) for _, group, verdict in sorted(ranked, key=itemgetter(0))]


def _describe_group(decided: Decided, group: PendingGroup, verdict: QueueVerdict) -> str:
    """Returns why these pods wait. It names no other pod, since the pods' tenants read it."""
    for unschedulable in decided.conversions.sizing.of(verdict.queue).unschedulable:
        if unschedulable.group.fingerprint == group.fingerprint:
            return f"no new node would help it: {unschedulable.why}"
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
