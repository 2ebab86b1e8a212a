"""Pending pods in groups of equal ones, and pods for which no node is lent, with the reason.

The rule: pods are one group if they have one queue and namespace, request the same and fit the same
nodes. Every decision is made for a group, so that 150,000 pods cost a few hundred decisions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import msgspec

from dnm.demand.constraints import has_anti_affinity
from dnm.demand.pod_request import count_rules
from dnm.model.config import Config
from dnm.model.observed import StalledPods
from dnm.model.pod import Claim, NodeSelectorTerm, Pod, PodShape
from dnm.model.value import Resources, Unreadable, Value

Volumes: TypeAlias = tuple[tuple[NodeSelectorTerm, ...], ...]
"""Node affinities of bound volumes, all of which must hold."""

_SAMPLE = 10  # names kept of a group
MOST_KINDS = 1_000
"""The most kinds of pending pods of a namespace: each is compared with each kind of node. A kind
with many rules counts as several."""
_RULES_OF_A_KIND = 10


def text_time(instant: datetime) -> str:
    """Returns a time in the API's format for creation times, which sort as text."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


class NotCounted(Enum):
    """The reasons why dnm lends no node for a pending pod, each with its text."""

    GATED = "held back by a scheduling gate"
    DEVICES = "requesting devices by resourceClaims, which dnm does not understand"
    REJECTED = "of an application that its scheduler rejected"
    FOREIGN = "of another scheduler than that of its queue system"
    UNDECIDED = "not reported as unschedulable by the scheduler"
    NOMINATED = "waiting for a node from which the scheduler evicts other pods"
    RETRY = "refused before the quota grew"
    INVALID = "refused whatever the quota allows"
    NO_QUEUE = "of an unknown queue"
    TERMINATING = "being deleted"
    CLAIM = "waiting for a volume claim that is missing, lost or unreadable"
    PLACEHOLDER = "about to take over a gang placeholder"
    GANG = "of a gang that requests more than dnm counts"
    GANGS = "of gangs that together request more than dnm counts in a namespace"
    APPLICATIONS = "of an application that waits because its queue runs maxapplications"
    USER_LIMIT = "held back by a user or group limit, which no node raises"
    BEYOND = "with more resources, rules or containers than dnm counts of a pod"
    KINDS = "of a namespace with more kinds of pending pods than dnm counts, and not of the oldest"
    UNHELPED = "of a workload that lent nodes do not help"
    INCOMPLETE = "of a Workload for which too few nodes can be lent"
    STALLED = "pending while a node was idle for its whole time: waiting for something else"


class Uncounted(Value):
    """Equal pending pods for which no node is lent, for one reason. `queue` is empty if unknown."""

    queue: str
    namespace: str
    why: NotCounted
    count: int
    names: tuple[str, ...]  # a few of them
    youngest: str = ""  # when the youngest was created


Created: TypeAlias = tuple[tuple[str, int], ...]
"""Creation times, the oldest first, each with the number of pods."""


def count_created(created: Created, until: str) -> int:
    """Returns the number of pods that were created at the time `until` or earlier."""
    return sum(count for instant, count in created if instant <= until)


class PendingGroup(Value):
    """Equal pending pods of one queue and namespace.

    `queue` is the configured queue in which they count (for a dynamic queue: its nearest configured
    ancestor). `request` includes the default request. `created` has their creation times, the
    oldest first, each with the number of pods; `total` is the number of all. Once the oldest pod
    has been pending for the grace time, all `count`, since the others belong to the same burst.
    Until then none counts: young pods keep idle nodes, but no node is lent for them. `volumes` are
    the node affinities of bound volumes, which must all hold. `fingerprint` identifies the group in
    every run. `siblings` are the nodes with a pod that excludes this one."""

    queue: str
    namespace: str
    shape: PodShape
    request: Resources
    count: int
    created: Created
    total: int
    names: tuple[str, ...]
    fingerprint: str
    volumes: Volumes = ()
    siblings: frozenset[str] = frozenset()

    @property
    def young(self) -> int:
        """Returns how many pods do not count yet, as even the oldest is within the grace time."""
        return self.total - self.count

    @property
    def oldest(self) -> str:
        """Returns the creation time of the oldest pod of the group."""
        return self.created[0][0]

    @property
    def youngest(self) -> str:
        """Returns the creation time of the youngest pod of the group."""
        return self.created[-1][0]


class _GroupKey(NamedTuple):
    queue: str
    namespace: str
    shape_id: int
    volumes: Volumes


class Collector:
    """A collector of pending pods that groups equal ones."""

    def __init__(
        self,
        config: Config,
        now: datetime,
        claims: tuple[Claim, ...] | Unreadable,
        stalled: Mapping[str, StalledPods],
    ) -> None:
        self._config = config
        self._old_enough = text_time(now - config.pending_grace)
        self._stalled = stalled
        self._claims: Mapping[tuple[str, str], Claim] | None = None
        if not isinstance(claims, Unreadable):
            self._claims = {(claim.namespace, claim.name): claim for claim in claims}
        self._members: dict[_GroupKey, list[tuple[Pod, int]]] = {}
        self._left_out: dict[tuple[str, str, NotCounted], list[tuple[Pod, int]]] = {}

    def add(self, pod: Pod, queue: str, why: NotCounted | None, count: int = 1) -> None:
        """Adds `count` pods like this one to their group, or records why they do not count."""
        if why is None and not queue:
            why = NotCounted.NO_QUEUE
        if why is NotCounted.UNDECIDED and pod.created > self._old_enough:
            why = None  # it is young: its scheduler decides in a moment
        volumes: Volumes | None = ()
        if why is None and pod.claims:
            volumes = self._volume_terms(pod)
        if why is not None:
            self._leave_out(pod, count, queue, why)
        elif volumes is None:
            self._leave_out(pod, count, queue, NotCounted.CLAIM)
        else:
            kind = _GroupKey(queue, pod.namespace, id(pod.shape), volumes)
            self._members.setdefault(kind, []).append((pod, count))

    def _leave_out(self, pod: Pod, count: int, queue: str, why: NotCounted) -> None:
        if why is not NotCounted.FOREIGN or pod.namespace in self._config.namespaces:
            self._left_out.setdefault((queue, pod.namespace, why), []).append((pod, count))

    def _volume_terms(self, pod: Pod) -> Volumes | None:
        """Returns the node affinities of the pod's bound volumes, or None if a volume claim keeps
        the pod from starting.

        A claim that is still Pending restricts nothing, since most wait for their first pod. At
        worst dnm lends one node, and then finds that the pod waits for something else."""
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

    def groups(self) -> tuple[tuple[PendingGroup, ...], Mapping[str, StalledPods]]:
        """Returns the groups of equal pending pods, the longest waiting first. The second result
        has the entries of `stalled` (pods that no node helps) with pods that are still pending."""
        merged: dict[str, tuple[_GroupKey, list[tuple[Pod, int]]]] = {}
        for kind, members in self._members.items():
            fingerprint = _fingerprint(kind, members[0][0])
            merged.setdefault(fingerprint, (kind, []))[1].extend(members)
        confirmed: dict[str, StalledPods] = {}
        ordered: list[tuple[str, str, _GroupKey, list[tuple[Pod, int]]]] = []
        for fingerprint, (kind, members) in merged.items():
            members.sort(key=lambda entry: (entry[0].created, entry[0].name))
            stalled = self._stalled.get(fingerprint)
            if stalled is not None and _still_stalled(members, stalled):
                confirmed[fingerprint] = stalled
                for pod, count in members:
                    if pod.created <= stalled.until:
                        self._leave_out(pod, count, kind.queue, NotCounted.STALLED)
                members = [entry for entry in members if entry[0].created > stalled.until]
            if members:
                ordered.append((members[0][0].created, fingerprint, kind, members))
        ordered.sort(key=itemgetter(0, 1))
        groups = []
        counted: Counter[str] = Counter()
        for _, fingerprint, kind, members in ordered:
            counted[kind.namespace] += _weight(kind, members[0][0].shape)
            if counted[kind.namespace] <= MOST_KINDS:
                groups.append(self._group(kind, fingerprint, members))
            else:
                for pod, count in members:
                    self._leave_out(pod, count, kind.queue, NotCounted.KINDS)
        return tuple(groups), confirmed

    def _group(
        self, kind: _GroupKey, fingerprint: str, members: Sequence[tuple[Pod, int]]
    ) -> PendingGroup:
        counts: dict[str, int] = {}
        for pod, count in members:
            counts[pod.created] = counts.get(pod.created, 0) + count
        created, total = tuple(counts.items()), sum(counts.values())
        shape = members[0][0].shape
        return PendingGroup(
            queue=kind.queue,
            namespace=kind.namespace,
            shape=shape,
            request=_with_default(shape.request, self._config.default_request),
            count=total if count_created(created, self._old_enough) else 0,
            created=created,
            total=total,
            names=tuple(pod.name for pod, _ in members[:_SAMPLE]),
            fingerprint=fingerprint,
            volumes=kind.volumes,
        )

    def left_out(self) -> tuple[Uncounted, ...]:
        """Returns the pods for which no node is lent, by queue, namespace and reason."""
        return tuple(
            Uncounted(
                queue=queue,
                namespace=namespace,
                why=why,
                count=sum(count for _, count in pods),
                names=tuple(pod.name for pod, _ in pods[:_SAMPLE]),
                youngest=max(pod.created for pod, _ in pods),
            )
            for (queue, namespace, why), pods in self._left_out.items()
        )


def _weight(kind: _GroupKey, shape: PodShape) -> int:
    """Returns how much a group counts towards MOST_KINDS: 1, or more if it has many rules."""
    return 1 + (count_rules(shape) + sum(map(len, kind.volumes))) // _RULES_OF_A_KIND


def _fingerprint(kind: _GroupKey, pod: Pod) -> str:
    """Returns a hash that identifies the group in every run, whatever pods it has."""
    shape = pod.shape
    parts = (
        kind.queue,
        kind.namespace,
        kind.volumes,
        sorted(shape.request.items()),
        shape.node_selector,
        shape.tolerations,
        shape.node_affinity,
        shape.pod_affinity,
        shape.spread_keys,
        shape.host_ports,
        shape.labels,
        *([shape.aligned] if shape.aligned else []),
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _still_stalled(members: Sequence[tuple[Pod, int]], stalled: StalledPods) -> bool:
    """Returns whether all pods that were found stalled are still pending, and only these. Otherwise
    all pods of the group count again."""
    return sum(n for pod, n in members if pod.created <= stalled.until) == stalled.count


def _with_default(request: Resources, default: Resources) -> Resources:
    missing = {name: amount for name, amount in default.items() if not request.get(name)}
    return {**request, **missing} if missing else request


def with_siblings(groups: Sequence[PendingGroup], pods: Sequence[Pod]) -> tuple[PendingGroup, ...]:
    """Returns the groups, where `siblings` has the nodes with a pod that excludes the group's pods.

    Bound pods are read without labels and ports, so each pod of the same namespace with the same
    request counts as such a pod. At worst dnm lends a node too many."""
    kinds = {
        group.fingerprint: (group.namespace, _sorted(group.shape.request))
        for group in groups
        if has_anti_affinity(group.shape, group.namespace)
    }
    nodes: dict[tuple[str, tuple[tuple[str, int], ...]], set[str]] = {
        kind: set() for kind in kinds.values()
    }
    namespaces = {namespace for namespace, _ in nodes}
    for pod in pods if kinds else ():
        if pod.node and pod.namespace in namespaces:
            nodes.get((pod.namespace, _sorted(pod.shape.request)), set()).add(pod.node)
    return tuple(
        msgspec.structs.replace(group, siblings=frozenset(nodes[kinds[group.fingerprint]]))
        if group.fingerprint in kinds
        else group
        for group in groups
    )


def _sorted(request: Resources) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(request.items()))
