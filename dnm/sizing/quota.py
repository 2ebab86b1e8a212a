"""The limits and the use of queues while nodes are allocated, which decide whether a pod has quota.

The rule: a pod needs quota at every level above it that limits one of its resources (root is the
cluster itself and does not count). A node that serves a queue raises that queue and all its limited
ancestors, nothing below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeAlias

from dnm.demand.demand import Demand, QueueDemand
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.quantity import add_to
from dnm.model.queue_path import is_under, present_lineage
from dnm.model.value import Resources, Value

Groups: TypeAlias = Sequence[tuple[PendingGroup, int]]
"""Groups of pending pods, the longest waiting first, and how many pods of each count."""


class Shortage(Value):
    """A limit of the queue `path` that is too low for a resource: its value, its use, the requests
    of pending pods, and what is missing. `is_early`: only `headroom` makes it too low."""

    path: str
    resource: str
    limit: int
    used: int
    asked: int
    missing: int
    is_early: bool


class Quota:
    """The limits of all queues and their use while nodes are allocated. `now` has the current
    limits. `limits` has these plus incoming and granted nodes."""

    def __init__(self, demand: Demand, queues: Mapping[str, QueueLimits]) -> None:
        self._mark = demand.mark
        self._queues = queues
        self._own = {path: demand.queues.get(path, QueueDemand(queue=path)).used for path in queues}
        self._used = {path: dict(used) for path, used in self._own.items()}
        self.now = {path: dict(queue.max) for path, queue in queues.items()}
        self.limits = {path: dict(limit) for path, limit in self.now.items()}

    def copy(self) -> Quota:
        """Returns a copy that can change without this one, to try out an allocation."""
        other = copy(self)
        other._used = {path: dict(used) for path, used in self._used.items()}
        other.limits = {path: dict(limit) for path, limit in self.limits.items()}
        return other

    def grow(self, queue: str, size: Resources) -> None:
        """Raises the limits of a queue and its ancestors by the size of a node that serves it."""
        for path in present_lineage(queue, self._queues):
            limit = self.limits[path]
            for resource in limit.keys() - self._queues[path].fixed:
                limit[resource] += size.get(resource, 0)

    def use(self, groups: Groups) -> None:
        """Adds the requests of these pods to the used quota of their queues."""
        for group, count in groups:
            for path in present_lineage(group.queue, self._queues):
                add_to(self._used[path], group.request, count)

    def admit(self, groups: Groups, limits: Mapping[str, Resources]) -> list[int]:
        """Returns how many pods of each group the limits (`now` or `limits`) admit."""
        return [count for count, _ in self._let_in(groups, limits, lambda *limit: True)]

    def admit_under_unraisable_limits(
        self, queue: str, groups: Groups, offered: Mapping[str, frozenset[str]]
    ) -> list[tuple[int, str]]:
        """Returns how many pods of each group new nodes can help, and the limit that stops the
        others. A node raises no limit below its queue, and none for a resource that it lacks.
        `offered` has the resources of the new nodes that each group (by fingerprint) can use."""

        def is_unraisable(group: PendingGroup, path: str, resource: str) -> bool:
            is_below = path != queue and is_under(path, queue)
            is_brought = resource in offered[group.fingerprint]
            return is_below or not is_brought or resource in self._queues[path].fixed

        return [
            (count, f"no new node raises the {full[1]} limit of {full[0]}, which is used up")
            if full
            else (count, "")
            for count, full in self._let_in(groups, self.limits, is_unraisable)
        ]

    def _let_in(
        self,
        groups: Groups,
        limits: Mapping[str, Resources],
        counts: Callable[[PendingGroup, str, str], bool],
    ) -> Iterator[tuple[int, tuple[str, str] | None]]:
        """Yields how many pods of each group the limits admit after the previous groups, and the
        limit that stops the others, or None. `counts` decides whether a limit applies."""
        taken: Counter[tuple[str, str]] = Counter()
        for group, count in groups:
            asking = [
                (path, resource)
                for path in present_lineage(group.queue, self._queues)
                for resource in limits[path]
                if group.request.get(resource) and counts(group, path, resource)
            ]
            full = None
            for path, resource in asking:
                left = limits[path][resource] - self._used[path].get(resource, 0)
                fitting = max(left - taken[path, resource], 0) // group.request[resource]
                if fitting < count:
                    count, full = fitting, (path, resource)
            for path, resource in asking:
                taken[path, resource] += count * group.request[resource]
            yield count, full

    def shortages(self, queue: str, groups: Groups) -> Iterable[Shortage]:
        """Yields every limit that is too low for the queue, from the queue upwards. Pending pods
        count at each level. The share `headroom` applies at the nearest level that limits the
        resource, if the queue itself has demand for it."""
        requested: dict[str, int] = {}
        for group, count in groups:
            add_to(requested, group.request, count)
        marked: set[str] = set()
        for path in present_lineage(queue, self._queues):
            for resource, limit in self.limits[path].items():
                if resource in self._queues[path].fixed:
                    marked.add(resource)
                    continue
                wants = requested.get(resource, 0)
                used = self._used[path].get(resource, 0)
                has_demand = wants > 0 or self._own[queue].get(resource, 0) > 0
                is_marked = resource not in marked and has_demand
                marked.add(resource)
                lack = used + wants - limit if wants else 0
                early = self._mark(used + wants) - limit if is_marked and self._mark else 0
                if max(lack, early) > 0:
                    yield Shortage(
                        path=path, resource=resource, limit=limit, used=used, asked=wants,
                        missing=max(lack, early), is_early=lack <= 0,
                    )  # fmt: skip
