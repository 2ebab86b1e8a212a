"""Gangs: applications with pods that start together. Their pods, placeholder pods and pods that are
not created yet are counted once each.

A gang's scheduler creates a placeholder pod for every member to reserve capacity; the real pods
replace them without further quota. Before that, the first pod's annotation announces the members.

A tenant writes the annotation, so amounts are multiplied instead of repeated, and a gang beyond
`is_beyond_counting` is reported instead of counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.demand.pending import NotCounted
from dnm.demand.pod_request import most_of
from dnm.model.pod import MOST_RESOURCES, MOST_TASK_GROUPS, Pod, TaskGroup
from dnm.model.quantity import INT64_MAX, add_to
from dnm.model.value import Resources, Value

_PLACEHOLDER_TIMEOUT = timedelta(minutes=15)  # the shim's default; afterwards it schedules normally

# Over all task groups of a gang, and all gangs of a namespace: Kubernetes supports 150,000 pods.
MOST_MEMBERS = 100_000
_SHOWN = 63  # characters of a name that Kubernetes has not checked


class GangApp(Value):
    """The pods of one gang application, all in one namespace. A pod that names an application of
    another namespace does not belong to it."""

    app_id: str
    namespace: str
    groups: tuple[TaskGroup, ...]
    pods: tuple[Pod, ...]

    @property
    def first(self) -> Pod:
        """Returns the oldest pod of the gang, the one with the annotation that announces it."""
        return min(self.pods, key=lambda pod: (pod.created, pod.name))


class GangDemand(Value):
    """The pods of a gang that count differently. `taken_over` are pending pods that request
    nothing, since a placeholder pod counts for each. `missing_pods` are pods that the annotation
    announces and that do not exist yet, each with a number."""

    taken_over: tuple[Pod, ...]
    missing_pods: tuple[tuple[Pod, int], ...]


def gang_apps(pods: Iterable[Pod]) -> tuple[GangApp, ...]:
    """Groups pods of gangs (with a task group, or placeholders) by their application."""
    members: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        if pod.is_managed:
            is_grouped = pod.group and pod.task_group == pod.group  # by its PodGroup
            app = pod.group if is_grouped else pod.app_id
            members.setdefault((pod.namespace, app), []).append(pod)
    apps = []
    for (namespace, app_id), of_app in members.items():
        groups = next((pod.task_groups for pod in of_app if pod.task_groups), ())
        apps.append(GangApp(app_id=app_id, namespace=namespace, groups=groups, pods=tuple(of_app)))
    return tuple(apps)


def split_countable(
    apps: Iterable[GangApp],
) -> tuple[tuple[GangApp, ...], Mapping[int, NotCounted]]:
    """Returns the gangs that dnm counts, and why it does not count other gangs' pods, by pod id.
    Does not count a gang that exceeds a bound alone, or with the older gangs of its namespace."""
    counted: list[GangApp] = []
    left_out: dict[int, NotCounted] = {}
    members: dict[str, int] = {}
    for app in sorted(apps, key=lambda app: (app.first.created, app.namespace, app.app_id)):
        total = members.get(app.namespace, 0) + _members(app)
        if (is_beyond := is_beyond_counting(app)) or total > MOST_MEMBERS:
            why = NotCounted.GANG if is_beyond else NotCounted.GANGS
            left_out.update((id(pod), why) for pod in app.pods)
        else:
            members[app.namespace] = total
            counted.append(app)
    return tuple(counted), left_out


def _members(app: GangApp) -> int:
    return sum(max(0, group.min_member) for group in app.groups)


def is_beyond_counting(app: GangApp) -> bool:
    """Returns whether a gang's annotation exceeds what dnm counts: too many task groups, resource
    names or members, or an amount beyond an int64."""
    return (
        len(app.groups) > MOST_TASK_GROUPS
        or any(len(group.min_resource) > MOST_RESOURCES + 1 for group in app.groups)
        or _members(app) > MOST_MEMBERS
        or any(abs(amount) > INT64_MAX for amount in gang_total(app).values())
    )


def gang_demand(app: GangApp, now: datetime) -> GangDemand:
    """Returns the gang's pending pods that do not count since a placeholder does, and its announced
    pods that do not exist yet.

    In each task group, a placeholder counts instead of one of the smallest pending pods. Without
    placeholders, while no pod of the application runs, at least `min_member` pods count."""
    placeholders: dict[str, int] = {}
    pending: dict[str, list[Pod]] = {}
    started = False
    for pod in app.pods:
        if pod.is_placeholder:
            placeholders[pod.task_group] = placeholders.get(pod.task_group, 0) + 1
        elif pod.node:
            started = True
        else:
            pending.setdefault(pod.task_group, []).append(pod)
    taken_over: list[Pod] = []
    for name, of_group in pending.items():
        of_group.sort(key=_bulk, reverse=True)
        taken_over += of_group[max(0, len(of_group) - placeholders.get(name, 0)) :]
    missing_pods: list[tuple[Pod, int]] = []
    if not (started or placeholders or _is_over(app, now)):
        for group in app.groups:
            lacking = group.min_member - len(pending.get(group.name, ()))
            if lacking > 0:
                missing_pods.append((_promised(app, group), lacking))
    return GangDemand(taken_over=tuple(taken_over), missing_pods=tuple(missing_pods))


def gang_total(app: GangApp) -> dict[str, int]:
    """Returns the total request of a gang. If the limit of its queue is lower, its scheduler
    rejects the application."""
    total: dict[str, int] = {}
    for group in app.groups:
        add_to(total, group.min_resource, group.min_member)
    return total


def largest_gangs(
    apps: Iterable[GangApp], queue_of: Callable[[Pod], str]
) -> Mapping[str, Resources]:
    """Returns for each queue and resource the largest amount that any gang requests in total."""
    largest: dict[str, dict[str, int]] = {}
    for app in apps:
        if app.groups and app.groups[0].name != app.first.group:  # no PodGroup is rejected
            queue = queue_of(app.first)
            largest[queue] = most_of(largest.get(queue, {}), gang_total(app))
    return largest


def _bulk(pod: Pod) -> tuple[int, ...]:
    request = pod.shape.request
    return (request.get("cpu", 0), request.get("memory", 0), sum(request.values()))


def _is_over(app: GangApp, now: datetime) -> bool:
    """Returns whether a gang will get no more placeholders: it was rejected, is gated, or has
    waited so long that its scheduler places its pods normally."""
    first = app.first
    expired_before = (now - _PLACEHOLDER_TIMEOUT).strftime("%Y-%m-%dT%H:%M:%SZ")
    return first.created < expired_before or any(
        pod.is_rejected or pod.is_gated for pod in app.pods
    )


def _promised(app: GangApp, group: TaskGroup) -> Pod:
    """Returns an announced but missing pod, like the gang's first pod except for the request."""
    first = app.first
    shape = msgspec.structs.replace(first.shape, request=group.min_resource)
    name = f"{group.name[:_SHOWN]} of {app.app_id[:_SHOWN]} (not created)"
    return msgspec.structs.replace(
        first, name=name, uid="", node="", shape=shape, claims=(), task_group=group.name
    )
