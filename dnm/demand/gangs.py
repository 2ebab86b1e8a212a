"""Gang applications: pods, placeholders and the pods that are not created yet, each counted once.

While an application reserves, the shim creates one placeholder pod for every member; the real pods
take them over without any further quota. Before there are placeholders, the annotation of the first
pod says what will come (yunikorn-k8shim, docs of gang scheduling, 1.3 to 1.9).

A tenant writes the annotation, so amounts are multiplied and never spelled out, and a gang that
asks for more than `is_beyond_counting` allows is named instead of counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.demand.pending import NotCounted
from dnm.demand.pod_request import MOST_RESOURCES, MOST_TASK_GROUPS, most_of
from dnm.model.pod import Pod, TaskGroup
from dnm.model.quantity import INT64_MAX, add_to
from dnm.model.value import Resources, Value

_PLACEHOLDER_TIMEOUT = timedelta(minutes=15)  # the shim's default; afterwards it schedules normally

# Of all task groups of a gang, and of all gangs of a namespace: Kubernetes' own bound is 150,000
# pods.
MOST_MEMBERS = 100_000
_SHOWN = 63  # characters of a name that needs not be one of Kubernetes


class GangApp(Value):
    """Holds the pods of one application that has task groups, all of one namespace: who only names
    another's application is not of it."""

    app_id: str
    namespace: str
    groups: tuple[TaskGroup, ...]
    pods: tuple[Pod, ...]

    @property
    def first(self) -> Pod:
        """The oldest pod, whose annotation YuniKorn reads."""
        return min(self.pods, key=lambda pod: (pod.created, pod.name))


class GangDemand(Value):
    """Returns the effect of a gang on the listed pods. `taken_over`: pending pods that need
    nothing, a placeholder has it already. `to_come`: a pod as the annotation promises it, and how
    many such pods don't exist yet."""

    taken_over: tuple[Pod, ...]
    to_come: tuple[tuple[Pod, int], ...]


def gang_apps(pods: Iterable[Pod]) -> tuple[GangApp, ...]:
    """Returns the gang applications among pods that carry a task group or are placeholders."""
    members: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        if pod.is_yunikorn:
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
    """Returns the gangs that are counted, and why the pods (by id) of the others are not: one that
    asks for too much by itself, or those of a namespace, the youngest, that together do."""
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
    """Returns whether the annotation requests more than dnm counts: task groups, resources named,
    members, or an amount that YuniKorn's int64 can't hold."""
    return (
        len(app.groups) > MOST_TASK_GROUPS
        or any(len(group.min_resource) > MOST_RESOURCES + 1 for group in app.groups)
        or _members(app) > MOST_MEMBERS
        or any(abs(amount) > INT64_MAX for amount in gang_total(app).values())
    )


def gang_demand(app: GangApp, now: datetime) -> GangDemand:
    """Returns the part of an application that its placeholders count, and what its annotation adds.

    Per task group: with P placeholders and U pending pods only the U - P largest count besides
    them. Without placeholders, while no pod of the application runs, at least `min_member` count.
    """
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
    to_come: list[tuple[Pod, int]] = []
    if not (started or placeholders or _is_over(app, now)):
        for group in app.groups:
            missing = group.min_member - len(pending.get(group.name, ()))
            if missing > 0:
                to_come.append((_promised(app, group), missing))
    return GangDemand(taken_over=tuple(taken_over), to_come=tuple(to_come))


def gang_total(app: GangApp) -> dict[str, int]:
    """Returns the request that must fit the queue's limit at once, or YuniKorn rejects the
    application (yunikorn-core partition.go, AddApplication)."""
    total: dict[str, int] = {}
    for group in app.groups:
        add_to(total, group.min_resource, group.min_member)
    return total


def largest_gangs(
    apps: Iterable[GangApp], queue_of: Callable[[Pod], str]
) -> Mapping[str, Resources]:
    """Returns per queue the largest total of a gang application, resource by resource."""
    largest: dict[str, dict[str, int]] = {}
    for app in apps:
        if app.groups and app.groups[0].name != app.first.group:  # YuniKorn rejects no PodGroup
            queue = queue_of(app.first)
            largest[queue] = most_of(largest.get(queue, {}), gang_total(app))
    return largest


def _bulk(pod: Pod) -> tuple[int, ...]:
    request = pod.shape.request
    return (request.get("vcore", 0), request.get("memory", 0), sum(request.values()))


def _is_over(app: GangApp, now: datetime) -> bool:
    """Returns whether it was rejected, or reserves for so long that YuniKorn has given up on
    placeholders."""
    first = app.first
    given_up = (now - _PLACEHOLDER_TIMEOUT).strftime("%Y-%m-%dT%H:%M:%SZ")
    return first.created < given_up or any(pod.is_rejected or pod.is_gated for pod in app.pods)


def _promised(app: GangApp, group: TaskGroup) -> Pod:
    """Returns a pod as the group's annotation promises it, placed like the application's first."""
    first = app.first
    shape = msgspec.structs.replace(first.shape, request=group.min_resource)
    name = f"{group.name[:_SHOWN]} of {app.app_id[:_SHOWN]} (to come)"
    return msgspec.structs.replace(
        first, name=name, uid="", node="", shape=shape, claims=(), task_group=group.name
    )
