"""Gang applications: pods, placeholders and the pods that are not created yet, each counted once.

While an application reserves, the shim creates one placeholder pod for every member; the real pods
take them over without any further quota. Before there are placeholders, the annotation of the first
pod says what will come (yunikorn-k8shim, docs of gang scheduling, 1.3 to 1.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.model.cluster import Pod, TaskGroup
from dnm.model.value import Resources, Value

_PLACEHOLDER_TIMEOUT = timedelta(minutes=15)  # the shim's default; afterwards it schedules normally


class GangApp(Value):
    """The pods of one application that has task groups."""

    app_id: str
    groups: tuple[TaskGroup, ...]
    pods: tuple[Pod, ...]

    @property
    def first(self) -> Pod:
        return min(self.pods, key=lambda pod: (pod.created, pod.name))


class GangDemand(Value):
    """`taken_over`: pending pods that need nothing, a placeholder has it already. `to_come`: pods
    that don't exist yet, made up after the annotation."""

    taken_over: tuple[Pod, ...]
    to_come: tuple[Pod, ...]


def gang_apps(pods: Iterable[Pod]) -> tuple[GangApp, ...]:
    """The gang applications among pods that carry a task group or are placeholders."""
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.is_yunikorn:
            members.setdefault(pod.app_id, []).append(pod)
    apps = []
    for app_id, of_app in members.items():
        groups = next((pod.task_groups for pod in of_app if pod.task_groups), ())
        apps.append(GangApp(app_id=app_id, groups=groups, pods=tuple(of_app)))
    return tuple(apps)


def gang_demand(app: GangApp, now: datetime) -> GangDemand:
    """What of an application is counted by its placeholders, and what its annotation adds.

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
    for group, waiting in pending.items():
        waiting.sort(key=_bulk, reverse=True)
        taken_over += waiting[max(0, len(waiting) - placeholders.get(group, 0)) :]
    to_come: list[Pod] = []
    if not (started or placeholders or _is_over(app, now)):
        for task_group in app.groups:
            missing = task_group.min_member - len(pending.get(task_group.name, ()))
            to_come += _made_up(app, task_group, missing)
    return GangDemand(taken_over=tuple(taken_over), to_come=tuple(to_come))


def gang_total(app: GangApp) -> dict[str, int]:
    """The request that must fit the queue's limit at once, or YuniKorn rejects the application."""
    total: dict[str, int] = {}
    for group in app.groups:
        for name, amount in group.min_resource.items():
            total[name] = total.get(name, 0) + amount * group.min_member
    return total


def largest_gangs(
    apps: Iterable[GangApp], queue_of: Callable[[Pod], str]
) -> Mapping[str, Resources]:
    """Per queue the largest total of a gang application, resource by resource."""
    largest: dict[str, dict[str, int]] = {}
    for app in apps:
        if app.groups:
            most = largest.setdefault(queue_of(app.first), {})
            for name, amount in gang_total(app).items():
                most[name] = max(most.get(name, 0), amount)
    return largest


def _bulk(pod: Pod) -> tuple[int, ...]:
    request = pod.shape.request
    return (request.get("vcore", 0), request.get("memory", 0), sum(request.values()))


def _is_over(app: GangApp, now: datetime) -> bool:
    """Rejected, or reserving for so long that YuniKorn has given up on placeholders."""
    first = app.first
    given_up = (now - _PLACEHOLDER_TIMEOUT).strftime("%Y-%m-%dT%H:%M:%SZ")
    return first.created < given_up or any(pod.is_rejected or pod.is_gated for pod in app.pods)


def _made_up(app: GangApp, group: TaskGroup, count: int) -> list[Pod]:
    """Pods as the group's annotation promises them, placed like the application's first pod."""
    if count <= 0:
        return []
    first = app.first
    shape = msgspec.structs.replace(first.shape, request=group.min_resource)
    name = f"{group.name} of {app.app_id} (to come)"
    pod = msgspec.structs.replace(
        first, name=name, uid="", node="", shape=shape, claims=(), task_group=group.name
    )
    return [pod] * count
