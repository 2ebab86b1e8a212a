"""What all pods ask for, by queue, by node, and by group of equal pending pods.

The rule: a pod is counted as YuniKorn counts it, and a pending pod that can't be counted is named
with the reason, never dropped in silence. Bound pods are `used`, whatever their phase; unbound pods
that the scheduler would place are pending. What one pod asks for is in `request.py`.

    gather_demand(pods, config, queues, DemandFacts(now=..., ...)) -> Demand
    pending_fingerprint(demand, queue) -> str       for the breaker: changes when the demand does
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum

import msgspec

from dnm.constraints import keeps_apart
from dnm.gang import GangApp, gang_apps, gang_demand, largest_gangs
from dnm.model import (
    Claim,
    Config,
    NodeSelectorTerm,
    Pod,
    PodShape,
    QueueLimits,
    Resources,
    Unreadable,
    Value,
    Waiting,
    YunikornView,
)
from dnm.request import (
    APP_ID_KEY,
    QUEUE_KEY,
    ContainerRequest,
    ContainerState,
    PodRequest,
    application_id,
    effective_request,
    requested_queue,
    task_groups,
)

__all__ = [
    "APP_ID_KEY",
    "NO_USE",
    "QUEUE_KEY",
    "ContainerRequest",
    "ContainerState",
    "Demand",
    "DemandFacts",
    "NodeUse",
    "NotCounted",
    "PendingGroup",
    "PodRequest",
    "QueueDemand",
    "Uncounted",
    "application_id",
    "effective_request",
    "gather_demand",
    "pending_fingerprint",
    "requested_queue",
    "task_groups",
]

_SAMPLE = 3  # names kept of a group


def text_time(instant: datetime) -> str:
    """As the API prints creation times, so that instants compare as text."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


class DemandFacts(Value):
    """What is known besides the pods. `waiting` is the registry's: pods already found out to wait
    for something else. Claims that could not be read leave their pods uncounted."""

    now: datetime
    yunikorn: YunikornView | None = None
    claims: tuple[Claim, ...] | Unreadable = ()
    waiting: Mapping[str, Waiting] = {}


class NotCounted(Enum):
    """Why a pending pod asks for nothing; the value is the sentence for people."""

    GATED = "held back by a scheduling gate"
    REJECTED = "of an application that YuniKorn rejected"
    FOREIGN = "not scheduled by YuniKorn"
    NO_QUEUE = "of a queue that is not known"
    TERMINATING = "being deleted"
    CLAIM = "waiting for a volume claim that is missing, lost or unreadable"
    PLACEHOLDER = "about to take over a gang placeholder"
    WAITING = "pending beside an idle node with room and quota: waiting for something else"


class Uncounted(Value):
    """Pending pods that ask for nothing; `queue` is empty where it is not known."""

    queue: str
    namespace: str
    why: NotCounted
    count: int
    names: tuple[str, ...]  # a few of them


class PendingGroup(Value):
    """Equal pending pods of one queue and namespace.

    `queue` is the managed queue they are booked on (of a dynamic queue: its nearest configured
    ancestor). `request` has the default request filled in. `created` is sorted and has one entry a
    pod; the first `count` of them have been pending for the grace time, the others are young: they
    keep nodes, but ask for none. `volumes` are the node affinities of bound volumes, all of which
    must hold. `fingerprint` is the same in every run. `siblings` are the nodes that already have
    a pod which this one can't stand beside.
    """

    queue: str
    namespace: str
    shape: PodShape
    request: Resources
    count: int
    created: tuple[str, ...]
    names: tuple[str, ...]
    fingerprint: str
    priority: int = 0
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    siblings: frozenset[str] = frozenset()

    @property
    def young(self) -> int:
        return len(self.created) - self.count

    @property
    def oldest(self) -> str:
        return self.created[0]

    def count_until(self, instant: datetime) -> int:
        """How many were created then or before."""
        return bisect_right(self.created, text_time(instant))


class QueueDemand(Value):
    """Of one configured queue, everything below it included. `pending` and `pending_pods` count the
    pods that are old enough, `young_pods` the others. `largest_gang`: a limit below it makes
    YuniKorn reject a gang application; resource by resource the largest."""

    queue: str
    used: Mapping[str, int] = {}
    pending: Mapping[str, int] = {}
    pending_pods: int = 0
    young_pods: int = 0
    oldest: str = ""
    largest_gang: Mapping[str, int] = {}


class NodeUse(Value):
    """Of one node: all its pods, those of DaemonSets (and mirror pods) among them, and how many
    pods keep it from being idle."""

    used: Resources
    daemonsets: Resources
    work_pods: int


class Demand(Value):
    """All pods of the cluster, summed up. A configured queue without pods is in `queues`, a node
    without pods is not in `nodes`. `waiting`: the entries of `DemandFacts.waiting` that still
    hold; the others have seen their pods change and are forgotten."""

    queues: Mapping[str, QueueDemand]
    groups: tuple[PendingGroup, ...]
    nodes: Mapping[str, NodeUse]
    uncounted: tuple[Uncounted, ...] = ()
    waiting: Mapping[str, Waiting] = {}


NO_USE = NodeUse(used={}, daemonsets={}, work_pods=0)


def gather_demand(
    pods: Sequence[Pod],
    config: Config,
    queues: Mapping[str, QueueLimits],
    facts: DemandFacts,
) -> Demand:
    """Sum up all unfinished pods.

    One pass learns where each application is (its first pod decides, or the scheduler says), one
    counts; the rest is over distinct shapes, so the time is that of two passes.
    """
    finder = _QueueFinder(pods, config, queues, facts.yunikorn)
    sums = _sum_bound(pods, finder)
    apps = gang_apps(sums.gang_members)
    collector = _Collector(config, facts)
    for pod, why in _asking(sums.unbound, apps, facts.now):
        queue = finder.find(pod) if pod.is_yunikorn else ""
        collector.add(pod, queue, why)
    groups, waiting = collector.groups(pods)
    return Demand(
        queues=_by_queue(queues, sums.in_queue, groups, largest_gangs(apps, finder.find)),
        groups=groups,
        nodes=sums.nodes,
        uncounted=collector.left_out(),
        waiting=waiting,
    )


def pending_fingerprint(demand: Demand, queue: str) -> str:
    """Changes when a pod of the queue, or below it, starts or stops to be pending; else the same."""
    inside = f"{queue}."
    parts = sorted(
        (group.fingerprint, len(group.created), group.created[-1])
        for group in demand.groups
        if group.queue == queue or group.queue.startswith(inside)
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16] if parts else ""


# --- which queue -----------------------------------------------------------------------------


class _QueueFinder:
    """Where YuniKorn has, or will put, a pod.

    The scheduler's own answer comes first. Else the first pod of the application decides for all
    (k8shim context.go, ensureAppAndTaskCreated); a queue that is not configured is booked on its
    nearest configured ancestor; a pod that asks for none goes by the namespace map.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        config: Config,
        queues: Mapping[str, QueueLimits],
        yunikorn: YunikornView | None,
    ) -> None:
        self._policies = config.namespaces
        self._queues = queues
        self._told = yunikorn.queue_of_pod if yunikorn else {}
        self._by_app: dict[str, str] = {}
        self._managed: dict[str, str] = {}
        self._first: dict[str, Pod] = {}
        first = self._first
        for pod in pods:
            if pod.is_yunikorn:
                app = pod.app_id
                known = first.get(app)
                if known is None or pod.created <= known.created and _is_before(pod, known):
                    first[app] = pod
        for pod in pods if self._told else ():
            if pod.uid in self._told:
                self._by_app[pod.app_id] = self._booked(self._told[pod.uid])

    def find(self, pod: Pod) -> str:
        """The configured queue that a pod of YuniKorn is booked on; empty: not known."""
        if self._told and pod.uid in self._told:
            return self._booked(self._told[pod.uid])
        queue = self._by_app.get(pod.app_id)
        if queue is None:
            queue = self._asked(self._first.get(pod.app_id, pod))
            self._by_app[pod.app_id] = queue
        return queue

    def _asked(self, pod: Pod) -> str:
        if pod.queue:
            path = pod.queue.lower()
            if path != "root" and not path.startswith("root."):
                path = "root." + path.replace(".", "_dot_")
            return self._booked(path)
        policy = self._policies.get(pod.namespace)
        return self._booked(policy.queue) if policy else ""

    def _booked(self, path: str) -> str:
        """The nearest configured queue at or above a path, root excepted: it has no limit."""
        booked = self._managed.get(path)
        if booked is None:
            booked = path.lower()
            while booked and booked not in self._queues:
                booked = booked.rpartition(".")[0]
            booked = "" if booked == "root" else booked
            self._managed[path] = booked
        return booked


def _is_before(pod: Pod, other: Pod) -> bool:
    return (pod.created, pod.name) < (other.created, other.name)


# --- bound pods ------------------------------------------------------------------------------


class _Bound(Value):
    nodes: dict[str, NodeUse]
    in_queue: dict[str, dict[str, int]]  # booked queue -> used, children not included
    unbound: list[Pod]
    gang_members: list[Pod]


def _sum_bound(pods: Sequence[Pod], finder: _QueueFinder) -> _Bound:
    shapes: dict[int, PodShape] = {}
    on_node: dict[tuple[str, int, bool], int] = {}
    in_app: dict[tuple[str, int], int] = {}
    unbound: list[Pod] = []
    gang_members: list[Pod] = []
    find = finder.find
    for pod in pods:
        node = pod.node
        if node:
            shape = pod.shape
            key = id(shape)
            shapes[key] = shape
            place = (node, key, pod.is_daemonset or pod.is_mirror)
            on_node[place] = on_node.get(place, 0) + 1
            if pod.is_yunikorn:
                asker = (find(pod), key)
                in_app[asker] = in_app.get(asker, 0) + 1
        elif not (pod.is_daemonset or pod.is_mirror):
            unbound.append(pod)
        if pod.is_placeholder or pod.task_group or pod.task_groups:
            gang_members.append(pod)
    in_queue: dict[str, dict[str, int]] = {}
    for (queue, key), count in in_app.items():
        _add(in_queue.setdefault(queue, {}), shapes[key].request, count)
    return _Bound(
        nodes=_use_of_nodes(on_node, shapes),
        in_queue=in_queue,
        unbound=unbound,
        gang_members=gang_members,
    )


def _use_of_nodes(
    on_node: Mapping[tuple[str, int, bool], int], shapes: Mapping[int, PodShape]
) -> dict[str, NodeUse]:
    sums: dict[str, tuple[dict[str, int], dict[str, int], list[int]]] = {}
    for (node, key, is_overhead), count in on_node.items():
        entry = sums.get(node)
        if entry is None:
            entry = sums[node] = ({}, {}, [0])
        used, daemonsets, work = entry
        request = shapes[key].request
        _add(used, request, count)
        if is_overhead:
            _add(daemonsets, request, count)
        else:
            work[0] += count
    return {
        node: NodeUse(used=used, daemonsets=daemonsets, work_pods=work[0])
        for node, (used, daemonsets, work) in sums.items()
    }


def _add(total: dict[str, int], request: Resources, count: int) -> None:
    for name, amount in request.items():
        total[name] = total.get(name, 0) + amount * count


# --- pending pods ----------------------------------------------------------------------------


def _asking(
    unbound: Sequence[Pod], apps: Iterable[GangApp], now: datetime
) -> Iterable[tuple[Pod, NotCounted | None]]:
    """The pending pods, those that a gang will still create among them, and why one is left out."""
    taken_over: set[int] = set()
    to_come: list[Pod] = []
    for app in apps:
        gang = gang_demand(app, now)
        taken_over.update(id(pod) for pod in gang.taken_over)
        to_come += gang.to_come
    for pod in unbound:
        yield pod, _why_not_counted(pod, id(pod) in taken_over)
    for pod in to_come:
        yield pod, _why_not_counted(pod, False)


def _why_not_counted(pod: Pod, is_taken_over: bool) -> NotCounted | None:
    if not pod.is_yunikorn:
        return NotCounted.FOREIGN
    if pod.is_terminating:
        return NotCounted.TERMINATING
    if pod.is_rejected:
        return NotCounted.REJECTED
    if pod.is_gated:
        return NotCounted.GATED
    return NotCounted.PLACEHOLDER if is_taken_over else None


class _Collector:
    """Groups pending pods by queue, namespace, shape and volumes."""

    def __init__(self, config: Config, facts: DemandFacts) -> None:
        self._config = config
        self._facts = facts
        self._claims: Mapping[tuple[str, str], Claim] | None = None
        if not isinstance(facts.claims, Unreadable):
            self._claims = {(claim.namespace, claim.name): claim for claim in facts.claims}
        self._members: dict[tuple[object, ...], list[Pod]] = {}
        self._volumes: dict[tuple[object, ...], tuple[tuple[NodeSelectorTerm, ...], ...]] = {}
        self._left_out: dict[tuple[str, str, NotCounted], list[Pod]] = {}

    def add(self, pod: Pod, queue: str, why: NotCounted | None) -> None:
        """Count a pod in its group, or note why it asks for nothing."""
        volumes: tuple[tuple[NodeSelectorTerm, ...], ...] | None = ()
        if why is None and not queue:
            why = NotCounted.NO_QUEUE
        elif why is None and pod.claims:
            volumes = self._volume_terms(pod)
            why = NotCounted.CLAIM if volumes is None else None
        if why is not None or volumes is None:
            self._leave_out(pod, queue, why or NotCounted.CLAIM)
            return
        key = (queue, pod.namespace, id(pod.shape), volumes)
        members = self._members.get(key)
        if members is None:
            self._members[key] = [pod]
            self._volumes[key] = volumes
        else:
            members.append(pod)

    def _leave_out(self, pod: Pod, queue: str, why: NotCounted) -> None:
        if why is not NotCounted.FOREIGN or pod.namespace in self._config.namespaces:
            self._left_out.setdefault((queue, pod.namespace, why), []).append(pod)

    def _volume_terms(self, pod: Pod) -> tuple[tuple[NodeSelectorTerm, ...], ...] | None:
        """Node affinities of the pod's bound volumes; None where a claim keeps it from starting.

        A claim that is still Pending pins nothing: most wait for the first consumer. That errs
        towards one conversion, after which the pod is found to wait for something else.
        """
        if self._claims is None:
            return None
        terms = []
        for name in pod.claims:
            claim = self._claims.get((pod.namespace, name))
            if claim is None or claim.phase == "Lost":
                return None
            if claim.node_affinity:
                terms.append(claim.node_affinity)
        return tuple(terms)

    def groups(self, pods: Sequence[Pod]) -> tuple[tuple[PendingGroup, ...], Mapping[str, Waiting]]:
        """The groups, largest wait first, and the entries of `waiting` that still hold."""
        merged: dict[str, tuple[tuple[object, ...], list[Pod]]] = {}
        for key, members in self._members.items():
            fingerprint = _fingerprint(str(key[0]), members[0], self._volumes[key])
            if fingerprint in merged:
                merged[fingerprint][1].extend(members)
            else:
                merged[fingerprint] = (key, list(members))
        still: dict[str, Waiting] = {}
        found: list[PendingGroup] = []
        for fingerprint, (key, members) in merged.items():
            queue = str(key[0])
            members.sort(key=lambda pod: (pod.created, pod.name))
            waiting = self._facts.waiting.get(fingerprint)
            if waiting is not None and _still_waits(members, waiting):
                still[fingerprint] = waiting
                for pod in members[: waiting.count]:
                    self._leave_out(pod, queue, NotCounted.WAITING)
                members = members[waiting.count :]
            if members:
                found.append(self._group(queue, fingerprint, members, self._volumes[key]))
        found.sort(key=lambda group: (group.oldest, group.fingerprint))
        return _with_siblings(found, pods), still

    def _group(
        self,
        queue: str,
        fingerprint: str,
        members: Sequence[Pod],
        volumes: tuple[tuple[NodeSelectorTerm, ...], ...],
    ) -> PendingGroup:
        config = self._config
        grace = config.check_interval if config.pending_grace is None else config.pending_grace
        created = tuple(pod.created for pod in members)
        shape = members[0].shape
        return PendingGroup(
            queue=queue,
            namespace=members[0].namespace,
            shape=shape,
            request=_with_default(shape.request, config.default_request),
            count=bisect_right(created, text_time(self._facts.now - grace)),
            created=created,
            names=tuple(pod.name for pod in members[:_SAMPLE]),
            fingerprint=fingerprint,
            priority=max(pod.priority for pod in members),
            volumes=volumes,
        )

    def left_out(self) -> tuple[Uncounted, ...]:
        return tuple(
            Uncounted(
                queue=queue,
                namespace=namespace,
                why=why,
                count=len(pods),
                names=tuple(pod.name for pod in pods[:_SAMPLE]),
            )
            for (queue, namespace, why), pods in self._left_out.items()
        )


def _fingerprint(queue: str, pod: Pod, volumes: tuple[tuple[NodeSelectorTerm, ...], ...]) -> str:
    shape = pod.shape
    parts = (
        queue,
        pod.namespace,
        sorted(shape.request.items()),
        shape.node_selector,
        shape.tolerations,
        shape.node_affinity,
        shape.pod_affinity,
        shape.spread_keys,
        shape.host_ports,
        shape.labels,
        volumes,
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _still_waits(members: Sequence[Pod], waiting: Waiting) -> bool:
    """Whether exactly the pods that were found out are still there; one that started or went is a
    change, and all count again."""
    return sum(pod.created <= waiting.until for pod in members) == waiting.count


def _with_default(request: Resources, default: Resources) -> Resources:
    missing = {name: amount for name, amount in default.items() if not request.get(name)}
    return {**request, **missing} if missing else request


def _with_siblings(groups: Sequence[PendingGroup], pods: Sequence[Pod]) -> tuple[PendingGroup, ...]:
    """Fill in, for groups whose pods can't share a node, the nodes that already have one.

    Bound pods come without labels and ports, so a bound pod of the same namespace with the same
    request is taken for one of them. That errs towards a node too many, never towards none.
    """
    apart = [group for group in groups if keeps_apart(group.shape, group.namespace)]
    if not apart:
        return tuple(groups)
    wanted = {(group.namespace, _sorted(group.shape.request)) for group in apart}
    namespaces = {namespace for namespace, _ in wanted}
    nodes: dict[tuple[str, tuple[tuple[str, int], ...]], set[str]] = {}
    for pod in pods:
        if pod.node and pod.namespace in namespaces:
            key = (pod.namespace, _sorted(pod.shape.request))
            if key in wanted:
                nodes.setdefault(key, set()).add(pod.node)
    ids = {group.fingerprint for group in apart}
    return tuple(
        msgspec.structs.replace(
            group,
            siblings=frozenset(nodes.get((group.namespace, _sorted(group.shape.request)), ())),
        )
        if group.fingerprint in ids
        else group
        for group in groups
    )


def _sorted(request: Resources) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(request.items()))


# --- up the tree -----------------------------------------------------------------------------


def ancestors(queue: str, queues: Mapping[str, QueueLimits]) -> Iterable[str]:
    """A queue and all above it, root excepted."""
    path: str | None = queue
    while path and path != "root" and path in queues:
        yield path
        path = queues[path].parent


def _by_queue(
    queues: Mapping[str, QueueLimits],
    used: Mapping[str, Resources],
    groups: Iterable[PendingGroup],
    largest: Mapping[str, Resources],
) -> dict[str, QueueDemand]:
    totals: dict[str, dict[str, int]] = {path: {} for path in queues}
    pending: dict[str, dict[str, int]] = {path: {} for path in queues}
    gangs: dict[str, dict[str, int]] = {path: {} for path in queues}
    counted: Counter[str] = Counter()
    young: Counter[str] = Counter()
    oldest: dict[str, str] = {}
    for queue, request in used.items():
        for path in ancestors(queue, queues):
            _add(totals[path], request, 1)
    for group in groups:
        for path in ancestors(group.queue, queues):
            _add(pending[path], group.request, group.count)
            counted[path] += group.count
            young[path] += group.young
            oldest[path] = min(oldest.get(path, group.oldest), group.oldest)
    for queue, request in largest.items():
        for path in ancestors(queue, queues):
            for name, amount in request.items():
                gangs[path][name] = max(gangs[path].get(name, 0), amount)
    return {
        path: QueueDemand(
            queue=path,
            used=totals[path],
            pending=pending[path],
            pending_pods=counted[path],
            young_pods=young[path],
            oldest=oldest.get(path, ""),
            largest_gang=gangs[path],
        )
        for path in queues
    }
