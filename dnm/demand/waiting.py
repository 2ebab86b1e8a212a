"""The pods that are not bound: in groups, with those that gangs will still create, and why some of
them ask for nothing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from dnm.demand.gangs import GangApp, gang_apps, gang_demand, largest_gangs, split_countable
from dnm.demand.pending import Collector, NotCounted, PendingGroup, Uncounted
from dnm.model.cluster import YunikornView
from dnm.model.config import Config
from dnm.model.observed import StalledPods
from dnm.model.pod import Claim, Pod
from dnm.model.value import Resources, Unreadable, Value


class DemandFacts(Value):
    """Holds what is known besides the pods. `stalled` is the registry's: pods already found out to
    wait for something else. Claims that could not be read leave their pods uncounted. `resources`:
    the names that are summed up, those that something offers or limits; None: all. Tenants invent
    others, and what their pods ask for of these is known of each group alone."""

    now: datetime
    yunikorn: YunikornView | None = None
    claims: tuple[Claim, ...] | Unreadable = ()
    stalled: Mapping[str, StalledPods] = {}
    resources: frozenset[str] | None = None


def _held_by_scheduler(yunikorn: YunikornView | None) -> Mapping[str, NotCounted]:
    """Pod UID -> what the scheduler says of it that no node changes."""
    if yunikorn is None:
        return {}
    held = dict.fromkeys(yunikorn.user_limited, NotCounted.USER_LIMIT)
    return {**held, **dict.fromkeys(yunikorn.not_started, NotCounted.APPLICATIONS)}


class Waiting(Value):
    """Returns the requests of unbound pods, with those that gangs will still create."""

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
    """Returns them in groups. `find` tells where a pod is booked."""
    apps: tuple[GangApp, ...] = ()
    beyond: Mapping[int, NotCounted] = {}
    if gang_members:
        apps, beyond = split_countable(gang_apps(gang_members))
    collector = Collector(config, facts.now, facts.claims, facts.stalled)
    held = _held_by_scheduler(facts.yunikorn)
    for pod, count, why in _asking(unbound, apps, beyond, facts.now):
        why = why or held.get(pod.uid)
        queue = find(pod) if pod.is_yunikorn else ""
        collector.add(pod, queue, why, count)
    groups, stalled = collector.groups()
    return Waiting(
        groups=groups,
        stalled=stalled,
        uncounted=collector.left_out(),
        largest_gangs=largest_gangs(apps, find) if apps else {},
        gangs=apps,
    )


def _asking(
    unbound: Sequence[Pod], apps: Iterable[GangApp], beyond: Mapping[int, NotCounted], now: datetime
) -> Iterable[tuple[Pod, int, NotCounted | None]]:
    """Yields the pending pods, those that a gang will still create among them: a pod, how many it
    stands for, and why they are left out. `beyond`: pods (by id) of gangs that are not counted,
    and why."""
    taken_over: set[int] = set()
    to_come: list[tuple[Pod, int]] = []
    for app in apps:
        gang = gang_demand(app, now)
        taken_over.update(id(pod) for pod in gang.taken_over)
        to_come += gang.to_come
    for pod in unbound:
        why = _why_not_counted(pod, id(pod) in taken_over)
        yield pod, 1, why or beyond.get(id(pod))
    for pod, count in to_come:
        yield pod, count, _why_not_counted(pod, False)


def _why_not_counted(pod: Pod, is_taken_over: bool) -> NotCounted | None:
    if not pod.is_yunikorn:
        return NotCounted.FOREIGN
    if pod.is_terminating:
        return NotCounted.TERMINATING
    if pod.is_rejected:
        return NotCounted.REJECTED
    if pod.is_gated:
        return NotCounted.GATED
    if pod.devices:
        return NotCounted.DEVICES
    if pod.shape.is_cut:
        return NotCounted.BEYOND
    return NotCounted.PLACEHOLDER if is_taken_over else None
