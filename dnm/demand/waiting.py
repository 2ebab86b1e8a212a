"""The demand of unbound pods: their groups, missing pods of gangs, and pods that do not count.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from dnm.demand.gangs import GangApp, gang_apps, gang_demand, largest_gangs, split_countable
from dnm.demand.pending import Collector, NotCounted, PendingGroup, Uncounted
from dnm.model.cluster import RefusedPods, SchedulerView
from dnm.model.config import Config
from dnm.model.observed import StalledPods
from dnm.model.pod import Claim, Pod
from dnm.model.value import Resources, Unreadable, Value


class DemandFacts(Value):
    """The facts besides the pods that decide demand. `stalled` is from the registry: pods that are
    known to wait for something else than a node. If `claims` could not be read, pods with claims do
    not count. `resources` are the names to sum up, since a node offers or a queue limits them
    (None: all). Tenants can invent other names, which are only in the requests of groups."""

    now: datetime
    scheduler: SchedulerView | None = None
    claims: tuple[Claim, ...] | Unreadable = ()
    stalled: Mapping[str, StalledPods] = {}
    resources: frozenset[str] | None = None
    refused: tuple[RefusedPods, ...] = ()  # they do not exist


def _list_held(scheduler: SchedulerView | None) -> Mapping[str, NotCounted]:
    """Returns the pods, by UID, that the scheduler holds back for a reason that no node ends."""
    if scheduler is None:
        return {}
    held = dict.fromkeys(scheduler.user_limited, NotCounted.USER_LIMIT)
    return {**held, **dict.fromkeys(scheduler.not_started, NotCounted.APPLICATIONS)}


class Waiting(Value):
    """The demand of unbound pods, including announced pods of gangs that do not exist yet."""

    groups: tuple[PendingGroup, ...] = ()
    stalled: Mapping[str, StalledPods] = {}
    uncounted: tuple[Uncounted, ...] = ()
    largest_gangs: Mapping[str, Resources] = {}  # by queue
    gangs: tuple[GangApp, ...] = ()


def gather_waiting(
    config: Config,
    unbound: Sequence[Pod],
    gang_members: Sequence[Pod],
    find: Callable[[Pod], str],
    facts: DemandFacts,
) -> Waiting:
    """Computes the demand of unbound pods. `find` returns the queue of a pod."""
    apps: tuple[GangApp, ...] = ()
    beyond: Mapping[int, NotCounted] = {}
    if gang_members:
        apps, beyond = split_countable(gang_apps(gang_members))
    collector = Collector(config, facts.now, facts.claims, facts.stalled)
    held = _list_held(facts.scheduler)
    pending = _list_pending(unbound, apps, beyond, facts.now)
    if facts.refused:
        from dnm.demand.refused import list_refused

        pending = (*pending, *list_refused(facts.refused, facts.now))
    for pod, count, why in pending:
        why = why or held.get(pod.uid)
        queue = find(pod) if pod.is_managed else ""
        collector.add(pod, queue, why, count)
    groups, stalled = collector.groups()
    return Waiting(
        groups=groups,
        stalled=stalled,
        uncounted=collector.left_out(),
        largest_gangs=largest_gangs(apps, find) if apps else {},
        gangs=apps,
    )


def _list_pending(
    unbound: Sequence[Pod], apps: Iterable[GangApp], beyond: Mapping[int, NotCounted], now: datetime
) -> Iterable[tuple[Pod, int, NotCounted | None]]:
    """Yields each pending pod, a number of them, and why they do not count. This includes missing
    pods of gangs. `beyond` has the reason why a gang does not count, by the id of its pods."""
    taken_over: set[int] = set()
    missing_pods: list[tuple[Pod, int]] = []
    for app in apps:
        gang = gang_demand(app, now)
        taken_over.update(id(pod) for pod in gang.taken_over)
        missing_pods += gang.missing_pods
    for pod in unbound:
        why = _uncounted_reason(pod, id(pod) in taken_over)
        yield pod, 1, why or beyond.get(id(pod))
    for pod, count in missing_pods:
        yield pod, count, _uncounted_reason(pod, False)


def _uncounted_reason(pod: Pod, is_taken_over: bool) -> NotCounted | None:
    if not pod.is_managed:
        return NotCounted.FOREIGN
    if pod.is_terminating:
        return NotCounted.TERMINATING
    if pod.is_rejected:
        return NotCounted.REJECTED
    if pod.is_gated:
        return NotCounted.GATED
    if pod.is_undecided:
        return NotCounted.NOMINATED if pod.is_nominated else NotCounted.UNDECIDED
    if pod.devices:
        return NotCounted.DEVICES
    if pod.shape.is_cut:
        return NotCounted.BEYOND
    return NotCounted.PLACEHOLDER if is_taken_over else None
