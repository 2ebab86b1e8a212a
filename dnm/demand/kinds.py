"""Numbers of equal pods that are pending and running, and the free capacity of permanent nodes. The
file of demand keeps only these, so that a simulation can apply another configuration. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from dnm.demand.gangs import GangApp
from dnm.demand.pending import PendingGroup, text_time
from dnm.model.config import Config
from dnm.model.history import NodeRoom, PodKind
from dnm.model.node import Node
from dnm.model.pod import Pod
from dnm.model.queue_path import is_under
from dnm.model.value import Resources

MOST_KINDS = 100  # of one queue: those with the most pods
MOST_CREATED = 100  # of one kind in a minute; the number of all is recorded
MOST_CAPACITIES = 200  # of nodes with equal free capacity: the largest groups

Request = tuple[tuple[str, int], ...]
Kind = tuple[Request, int]  # the request of a pod, and the size of its gang


def count_kinds(
    config: Config,
    pods: Iterable[Pod],
    groups: Iterable[PendingGroup],
    gangs: Iterable[GangApp],
    queue_of: Callable[[Pod], str],
    now: datetime,
    resources: frozenset[str] | None = None,
) -> dict[str, tuple[PodKind, ...]]:
    """Counts the equal pods of each monitored queue, including those of all queues below it."""
    since = text_time(now - config.check_interval)
    sizes = {id(pod): _size(app) for app in gangs for pod in app.pods}
    seen: dict[str, dict[Kind, Seen]] = {}

    def add(queue: str, kind: Kind, is_bound: bool, created: str, count: int = 1) -> None:
        of_kind = seen.setdefault(queue, {}).setdefault(kind, Seen())
        of_kind.add(is_bound, _seconds(created), count, created > since)

    in_gangs: dict[tuple[str, Request], list[Pod]] = {}
    for pod in pods:
        if pod.is_managed and (pod.node or id(pod) in sizes):
            queue, request = queue_of(pod), _plain(pod.shape.request, resources)
            if pod.node:
                add(queue, (request, sizes.get(id(pod), 0)), True, pod.created)
            else:
                in_gangs.setdefault((queue, request), []).append(pod)
    for group in groups:
        request = _plain(group.shape.request, resources)
        of_gangs = in_gangs.pop((group.queue, request), [])[: group.total]
        for pod in of_gangs:
            add(group.queue, (request, sizes[id(pod)]), False, pod.created)
        rest = group.total - len(of_gangs)
        alone = Counter(dict(group.created)) - Counter(pod.created for pod in of_gangs)
        for created, count in alone.items():
            add(group.queue, (request, 0), False, created, min(count, rest))
            rest -= min(count, rest)
    return {
        queue: list_kinds(entry for path, entry in seen.items() if is_under(path, queue))
        for queue in config.queues
    }


class Seen:
    """A counter of equal pods, from which a `PodKind` for the record of demand is made."""

    def __init__(self) -> None:
        self.waiting = self.running = self.came = 0
        self.sums = [0, 0]
        self.came_at: list[int] = []

    def add(self, is_bound: bool, at: int, count: int, is_new: bool) -> None:
        """Adds `count` pods that were created at the time `at`, in seconds since 1970."""
        self.running += count * is_bound
        self.waiting += count * (not is_bound)
        self.sums[is_bound] += at * count
        self.came += count * is_new
        self.came_at += [at] * min(count * is_new, MOST_CREATED - len(self.came_at))

    def merge(self, other: Seen) -> None:
        """Adds the counts of equal pods in another queue."""
        self.running += other.running
        self.waiting += other.waiting
        self.sums = [own + more for own, more in zip(self.sums, other.sums, strict=True)]
        self.came += other.came
        self.came_at = [*self.came_at, *other.came_at][:MOST_CREATED]


def list_kinds(queues: Iterable[Mapping[Kind, Seen]]) -> tuple[PodKind, ...]:
    """Returns the groups of equal pods in these queues together, sorted: the MOST_KINDS largest."""
    every: dict[Kind, Seen] = {}
    for kinds in queues:
        for kind, seen in kinds.items():
            every.setdefault(kind, Seen()).merge(seen)
    counted = {kind: seen for kind, seen in every.items() if seen.waiting + seen.running}
    largest = sorted(counted, key=lambda kind: (-every[kind].waiting - every[kind].running, kind))
    return tuple(_to_kind(kind, every[kind]) for kind in sorted(largest[:MOST_KINDS]))


def _to_kind(kind: Kind, seen: Seen) -> PodKind:
    return PodKind(
        request=dict(kind[0]), pending=seen.waiting, bound=seen.running, came=seen.came,
        gang=kind[1], came_at=tuple(sorted(seen.came_at)), sums=tuple(seen.sums),
    )  # fmt: skip


def _seconds(created: str) -> int:
    """Returns a creation time in seconds since 1970; 0 if the text is not a time."""
    try:
        return int(datetime.fromisoformat(created).timestamp())
    except (ValueError, OverflowError):
        return 0


def _size(app: GangApp) -> int:
    """Returns how many pods of a gang start together: the announced or else the existing number."""
    return sum(max(group.min_member, 0) for group in app.groups) or len(app.pods)


def _plain(request: Resources, resources: frozenset[str] | None) -> Request:
    counted = (
        (name, amount)
        for name, amount in request.items()
        if name != "pods" and (resources is None or name in resources)
    )
    return tuple(sorted(counted))


def list_free_capacity(
    config: Config, nodes: Iterable[Node], lent: Iterable[str], pods: Iterable[Pod]
) -> tuple[NodeRoom, ...]:
    """Returns the permanent nodes that monitored pods can use, equal ones grouped. Their free
    capacity is what unmonitored pods leave free."""
    lent = frozenset(lent)
    permanent = {
        node.name: node
        for node in nodes
        if not (node.name in lent or node.mark or node.is_cordoned or node.unreadable)
        and node.is_ready
    }
    taken: dict[str, Counter[str]] = {name: Counter() for name in permanent}
    used_by_monitored: set[str] = set()
    for pod in pods:
        if pod.node in permanent:
            if pod.is_managed and pod.namespace in config.namespaces:
                used_by_monitored.add(pod.node)
            else:
                taken[pod.node].update(pod.shape.request)
    capacities = Counter(
        tuple(sorted((key, amount - taken[name][key]) for key, amount in node.allocatable.items()))
        for name, node in permanent.items()
        if name in used_by_monitored
        or not any(taint.effect != "PreferNoSchedule" for taint in node.taints)
    )
    largest = sorted(capacities, key=lambda free: (-capacities[free], free))[:MOST_CAPACITIES]
    return tuple(NodeRoom(free=dict(free), count=capacities[free]) for free in sorted(largest))
