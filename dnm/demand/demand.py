"""The requests of all pods, by queue, by node, and by group of equal pending pods.

The rule: a pod is counted as its queue system counts it, and a pending pod that cannot be counted
is reported with the reason. Bound pods are `used`, whatever their phase; unbound pods that the
scheduler would place are pending. `pod_request.py` has the request of one pod.

    gather_demand(pods, config, queues, DemandFacts(now=..., ...)) -> Demand
    pending_fingerprint(demand, queue) -> str       for the breaker: changes when the demand does"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from dnm.demand.pending import PendingGroup, Uncounted, with_siblings
from dnm.demand.pod_request import most_of, with_sidecars_twice
from dnm.demand.waiting import DemandFacts, Waiting, gather_waiting
from dnm.model.cluster import QueueLimits, RefusedPods, SchedulerView
from dnm.model.config import Config
from dnm.model.history import PodKind
from dnm.model.observed import StalledPods
from dnm.model.pod import Pod
from dnm.model.quantity import add_to
from dnm.model.queue_path import is_under, lineage, present_lineage
from dnm.model.value import Resources, Value


class QueueDemand(Value):
    """The demand of one configured queue, including all queues below it. `pending` and
    `pending_pods` omit pods that are too young to count. `largest_gang` is the largest total
    request of a gang, resource by resource, which the limit must admit as a whole."""

    queue: str
    used: Mapping[str, int] = {}
    pending: Mapping[str, int] = {}
    pending_pods: int = 0
    largest_gang: Mapping[str, int] = {}


class NodeUse(Value):
    """The resources that pods on a node request: `used` by all, `daemonsets` by DaemonSets' and
    mirror pods, `mirrors` by mirror pods. `work_pods` is the number of pods that make it busy."""

    used: Resources
    daemonsets: Resources
    work_pods: int
    mirrors: Resources = {}


class Demand(Value):
    """The demand of all pods of the cluster. A configured queue without pods is in `queues`, a node
    without pods is not in `nodes`. `stalled` has the entries of `DemandFacts.stalled` that still
    apply. `kinds` has the pods of each monitored queue, and of those below it, if they are recorded
    (`demand_days`). `mark` returns the lowest limit that admits a given amount of used and
    requested resources; if it is None, the limit equals that amount. `workloads` has the pending
    pods that are only admitted together."""

    queues: Mapping[str, QueueDemand]
    groups: tuple[PendingGroup, ...]
    nodes: Mapping[str, NodeUse]
    uncounted: tuple[Uncounted, ...] = ()
    stalled: Mapping[str, StalledPods] = {}
    kinds: Mapping[str, tuple[PodKind, ...]] = {}
    mark: Callable[[int], int] | None = None
    workloads: tuple[RefusedPods, ...] = ()


NO_USE = NodeUse(used={}, daemonsets={}, work_pods=0)


def gather_demand(
    pods: Sequence[Pod], config: Config, queues: Mapping[str, QueueLimits], facts: DemandFacts
) -> Demand:
    """Computes the demand of all unfinished pods, by queue, node and group.

    A first pass finds the queue of each application (from the scheduler, or else its first pod), a
    second counts pods. All else handles distinct shapes only, so the time is that of two passes."""
    if facts.scheduler is not None and facts.scheduler.counts_sidecars_twice:
        pods = with_sidecars_twice(pods)
    finder = _QueueFinder(pods, config, queues, facts.scheduler)
    resources = facts.resources
    sums = _sum_bound(pods, finder, resources)
    waiting = Waiting()
    groups: tuple[PendingGroup, ...] = ()
    if sums.unbound or sums.gang_members or facts.refused:
        waiting = gather_waiting(config, sums.unbound, sums.gang_members, finder.find, facts)
        groups = with_siblings(waiting.groups, pods)
    return Demand(
        queues=_by_queue(queues, sums.in_queue, groups, waiting.largest_gangs, resources),
        groups=groups,
        nodes=sums.nodes,
        uncounted=waiting.uncounted,
        stalled=waiting.stalled,
        kinds=_kinds(config, pods, waiting, finder, facts) if config.demand_keep else {},
    )


def pending_fingerprint(demand: Demand, queue: str) -> str:
    """Returns a hash that changes with the pending pods of the queue and of queues below it."""
    parts = sorted(
        (group.fingerprint, group.total, group.youngest)
        for group in demand.groups
        if is_under(group.queue, queue)
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16] if parts else ""


# --- which queue -----------------------------------------------------------------------------


class _QueueFinder:
    """A finder of the queue in which the queue system has put a pod, or will put it.

    The scheduler's answer decides. If it has none for a pod, the first pod of the application
    decides for all its pods. A queue that is not configured counts as its nearest configured
    ancestor, and a pod without a queue gets that of its namespace."""

    def __init__(
        self,
        pods: Sequence[Pod],
        config: Config,
        queues: Mapping[str, QueueLimits],
        scheduler: SchedulerView | None,
    ) -> None:
        self._policies = config.namespaces
        own = {name: config.namespaces[name].queue for name in config.namespace_queues}
        self._own = own  # namespaces with pods that no application or label assigns
        self._queues = queues
        self._deepest = 1 + max((path.count(".") for path in queues), default=0)
        self._reported = scheduler.queue_of_pod if scheduler else {}
        self._by_app: dict[str, str] = {}
        self._managed: dict[str, str] = {}
        self._first: dict[str, Pod] = {}
        first = self._first
        for pod in pods:
            if pod.is_managed and not (own and pod.namespace in own):
                app = pod.app_id
                oldest = first.get(app)
                if oldest is None or (pod.created <= oldest.created and _is_before(pod, oldest)):
                    first[app] = pod
        for pod in pods if self._reported else ():
            if pod.uid in self._reported and pod.namespace not in own:
                self._by_app[pod.app_id] = self._nearest(self._reported[pod.uid])

    def find(self, pod: Pod) -> str:
        """Returns the configured queue in which a pod counts, or an empty text if it is unknown."""
        if self._own and pod.namespace in self._own:
            return self._nearest(self._own[pod.namespace])
        if self._reported and pod.uid in self._reported:
            return self._nearest(self._reported[pod.uid])
        queue = self._by_app.get(pod.app_id)
        if queue is None:
            queue = self._requested(self._first.get(pod.app_id, pod))
            self._by_app[pod.app_id] = queue
        return queue

    def _requested(self, pod: Pod) -> str:
        if pod.queue:
            return self._nearest(pod.queue)
        policy = self._policies.get(pod.namespace)
        return self._nearest(policy.queue) if policy else ""

    def _nearest(self, path: str) -> str:
        """Returns the configured queue at a path or its nearest configured ancestor, never root."""
        nearest = self._managed.get(path)
        if nearest is None:
            prefix = ".".join(path.lower().split(".")[: self._deepest])
            nearest = next((queue for queue in lineage(prefix) if queue in self._queues), "")
            self._managed[path] = nearest
        return nearest


def _is_before(pod: Pod, other: Pod) -> bool:
    return (pod.created, pod.name) < (other.created, other.name)


# --- bound pods ------------------------------------------------------------------------------


class _Bound(Value):
    nodes: dict[str, NodeUse]
    in_queue: dict[str, dict[str, int]]  # configured queue -> used, without children
    unbound: list[Pod]
    gang_members: list[Pod]


def _sum_bound(
    pods: Sequence[Pod], finder: _QueueFinder, resources: frozenset[str] | None
) -> _Bound:
    """Sums up the requests of bound pods by node and queue, and lists the other pods. The sums are
    lists with a place for each resource, so that no object is created for a pod."""
    shapes = {id(shape): shape for shape in (pod.shape for pod in pods)}
    requests = {key: _without_unknown(shape.request, resources) for key, shape in shapes.items()}
    axes = list(dict.fromkeys(name for request in requests.values() for name in request))
    places = {name: place for place, name in enumerate(axes)}
    asked = {
        key: [(places[name], amount) for name, amount in request.items()]
        for key, request in requests.items()
    }
    on_node: dict[str, _OnNode] = {}
    in_queue: dict[str, dict[int, int]] = {}
    unbound: list[Pod] = []
    gang_members: list[Pod] = []
    find = finder.find
    for pod in pods:
        if pod.node:
            key = id(pod.shape)
            sums = on_node.get(pod.node)
            if sums is None:
                sums = on_node[pod.node] = _OnNode(len(axes))
            used = sums.used
            for axis, amount in asked[key]:
                used[axis] += amount
            if pod.is_daemonset or pod.is_mirror:
                for axis, amount in asked[key]:
                    sums.overhead[axis] += amount
                    if pod.is_mirror:
                        sums.mirrors[axis] = sums.mirrors.get(axis, 0) + amount
            else:
                sums.work_pods += 1
            if pod.is_managed:
                queue = find(pod)
                counts = in_queue.get(queue)
                if counts is None:
                    counts = in_queue[queue] = {}
                counts[key] = counts.get(key, 0) + 1
        elif not (pod.is_daemonset or pod.is_mirror):
            unbound.append(pod)
        if pod.is_placeholder or pod.task_group or pod.task_groups:
            gang_members.append(pod)
    return _Bound(
        nodes={name: sums.as_value(axes) for name, sums in on_node.items()},
        in_queue={queue: _total(requests, counts) for queue, counts in in_queue.items()},
        unbound=unbound,
        gang_members=gang_members,
    )


class _OnNode:
    """The running sum of the requests of the pods that are bound to one node."""

    __slots__ = ("mirrors", "overhead", "used", "work_pods")

    def __init__(self, axes: int) -> None:
        self.used = [0] * axes
        self.overhead = [0] * axes
        self.mirrors: dict[int, int] = {}
        self.work_pods = 0

    def as_value(self, axes: Sequence[str]) -> NodeUse:
        """Returns the sums as a `NodeUse`. Resources with the amount 0 are omitted."""
        return NodeUse(
            used={name: amount for name, amount in zip(axes, self.used, strict=True) if amount},
            daemonsets={
                name: amount for name, amount in zip(axes, self.overhead, strict=True) if amount
            },
            work_pods=self.work_pods,
            mirrors={axes[axis]: amount for axis, amount in self.mirrors.items()},
        )


def _without_unknown(request: Resources, resources: frozenset[str] | None) -> Resources:
    """Returns a pod's request without the resources that no node offers and no queue limits."""
    if resources is None or resources.issuperset(request):
        return request
    return {name: amount for name, amount in request.items() if name in resources}


def _total(requests: Mapping[int, Resources], counts: Mapping[int, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for key, count in counts.items():
        add_to(total, requests[key], count)
    return total


def _kinds(
    config: Config, pods: Sequence[Pod], waiting: Waiting, finder: _QueueFinder, facts: DemandFacts
) -> dict[str, tuple[PodKind, ...]]:
    """Returns the pods of each monitored queue by request and gang, for the file `demand.jsonl`."""
    from dnm.demand.kinds import count_kinds

    return count_kinds(
        config, pods, waiting.groups, waiting.gangs, finder.find, facts.now, facts.resources
    )


# --- up the tree -----------------------------------------------------------------------------


def _by_queue(
    queues: Mapping[str, QueueLimits],
    used: Mapping[str, Resources],
    groups: Iterable[PendingGroup],
    largest: Mapping[str, Resources],
    resources: frozenset[str] | None,
) -> dict[str, QueueDemand]:
    totals: dict[str, dict[str, int]] = {path: {} for path in queues}
    pending: dict[str, dict[str, int]] = {path: {} for path in queues}
    gangs: dict[str, dict[str, int]] = {path: {} for path in queues}
    counted: Counter[str] = Counter()
    for queue, request in used.items():
        for path in present_lineage(queue, queues):
            add_to(totals[path], request)
    for group in groups:
        counted_request = _without_unknown(group.request, resources)
        for path in present_lineage(group.queue, queues):
            add_to(pending[path], counted_request, group.count)
            counted[path] += group.count
    for queue, request in largest.items():
        for path in present_lineage(queue, queues):
            gangs[path] = most_of(gangs[path], _without_unknown(request, resources))
    return {
        path: QueueDemand(
            queue=path,
            used=totals[path],
            pending=pending[path],
            pending_pods=counted[path],
            largest_gang=gangs[path],
        )
        for path in queues
    }
