"""A cluster in virtual time: pods are bound as YuniKorn would, conversions take minutes.

The scheduler takes pods in the order they came, skips those that do not fit, respects every limit
up the tree and the free space of nodes, and fills the fullest node first (nodesortpolicy
binpacking, without which no node would ever be idle). Times are seconds since Monday 00:00.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

Amounts = dict[str, int]

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
CONVERSION = (360.0, 600.0)
REVERSION = (480.0, 720.0)
REVERT_CALL = 120.0  # the site's converter power-cycles and returns; it does not wait for the boot
POD_START = 20.0  # from bound to Running: images
CHECK_INTERVAL = 60.0


@dataclass(frozen=True)
class Ask:
    """A pod that a user will create."""

    at: float
    lasts: float
    request: tuple[tuple[str, int], ...]
    queue: str
    never_starts: bool = False  # it waits for something that nodes and quota can't give


@dataclass(frozen=True)
class NodeClass:
    """A type of batch node: its size, how many there are, and what they really bring (empty: their
    size)."""

    size: tuple[tuple[str, int], ...]
    count: int
    brings: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Workload:
    """One week. `limits`: queue path -> baseline limit, parents included; `namespaces`: monitored
    namespace -> (queue, node type); `free`: what is free on each permanent node."""

    name: str
    asks: tuple[Ask, ...]
    limits: Mapping[str, Mapping[str, int]]
    namespaces: Mapping[str, tuple[str, str]]
    free: tuple[Mapping[str, int], ...]
    classes: Mapping[str, NodeClass]
    seed: int
    lasts: float = WEEK
    nothing_ends_after: float = 2 * WEEK  # a pod that would end later goes on for ever

    def namespace_of(self, queue: str) -> str:
        return next(name for name, (path, _) in self.namespaces.items() if path == queue)


@dataclass(eq=False)
class PodState:
    number: int
    ask: Ask
    request: Amounts
    node: str = ""
    bound_at: float = -1.0


@dataclass(eq=False)
class NodeState:
    name: str
    node_type: str  # empty: permanent
    size: Amounts
    free: Amounts
    namespace: str = ""
    cordoned: bool = False
    pods: set[PodState] = field(default_factory=set)


@dataclass
class Ledger:
    """What a policy cost."""

    waited: float = 0.0  # pod-seconds
    lent: float = 0.0  # node-seconds from the order to convert to being back in Slurm
    idle: float = 0.0  # node-seconds in Kubernetes without a pod
    conversions: int = 0
    unserved: int = 0  # pods that never started


class Policy(Protocol):
    """Decides once per check interval; returns when it may be asked again, at the earliest."""

    def run(self, world: World) -> float: ...

    def joined(self, world: World, node: str) -> None: ...


class World:
    """The state, the events, and what policies may do."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.now = 0.0
        self.random = random.Random(workload.seed)
        self.limits = {path: dict(limit) for path, limit in workload.limits.items()}
        self.used: dict[str, Amounts] = {path: {} for path in workload.limits}
        self.nodes: dict[str, NodeState] = {}
        self.batch: dict[str, list[str]] = {}
        self.lent_since: dict[str, float] = {}
        self.away: set[str] = set()  # not in Slurm's service
        self.pending: list[PodState] = []
        self.running: set[PodState] = set()
        self.ledger = Ledger()
        self.trace: list[tuple[float, float, PodState]] = []
        self.version = 0  # changes with every event
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._idle_from: dict[str, float] = {}
        self._coming: dict[str, float] = {}
        for number, free in enumerate(workload.free):
            name = f"k{number:03}"
            self.nodes[name] = NodeState(name=name, node_type="", size=dict(free), free=dict(free))
        for node_type, kind in workload.classes.items():
            self.batch[node_type] = [f"{node_type}{n:03}" for n in range(kind.count, 0, -1)]
        for ask in workload.asks:
            self.at(ask.at, lambda ask=ask: self._arrive(ask))  # type: ignore[misc]

    # --- time --------------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what))

    def play(self, policy: Policy) -> Ledger:
        """The whole week, the policy asked every check interval (unless it is still busy)."""
        next_run = 0.0
        while self.now < self.workload.lasts:
            while self._events and self._events[0][0] <= next_run:
                self.now, _, what = heapq.heappop(self._events)
                what()
                self.version += 1
                if not self._events or self._events[0][0] > self.now:
                    self._schedule()
            self.now = next_run
            busy_until = policy.run(self)
            self._schedule()
            next_run += CHECK_INTERVAL
            while next_run < busy_until:
                next_run += CHECK_INTERVAL
        return self._close(policy)

    def _close(self, policy: Policy) -> Ledger:
        for pod in self.pending:
            self.ledger.waited += self.now - pod.ask.at
            self.ledger.unserved += 1
        for name, since in self.lent_since.items():
            self.ledger.lent += self.now - since
            if name in self._idle_from:
                self.ledger.idle += self.now - self._idle_from[name]
        for pod in self.running:
            self.trace.append((pod.bound_at, self.now, pod))
        return self.ledger

    # --- pods --------------------------------------------------------------------------------

    def _arrive(self, ask: Ask) -> None:
        self._number += 1
        request = {**dict(ask.request), "pods": 1}
        self.pending.append(PodState(number=self._number, ask=ask, request=request))

    def _schedule(self) -> None:
        failed: set[tuple[object, ...]] = set()
        still: list[PodState] = []
        for pod in self.pending:
            kind = (pod.ask.queue, pod.ask.request, pod.ask.never_starts)
            if kind in failed or not self._bind(pod):
                failed.add(kind)
                still.append(pod)
        self.pending = still

    def path(self, queue: str) -> Iterable[str]:
        """The queue and its ancestors that have limits."""
        while queue and queue != "root":
            if queue in self.limits:
                yield queue
            queue = queue.rpartition(".")[0]

    def _bind(self, pod: PodState) -> bool:
        if pod.ask.never_starts:
            return False
        for path in self.path(pod.ask.queue):
            used = self.used[path]
            for name, limit in self.limits[path].items():
                ask = pod.request.get(name, 0)
                if ask and used.get(name, 0) + ask > limit:
                    return False
        namespace = self.workload.namespace_of(pod.ask.queue)
        best: NodeState | None = None
        for node in self.nodes.values():
            if node.cordoned or (node.node_type and node.namespace != namespace):
                continue
            if any(node.free.get(name, 0) < ask for name, ask in pod.request.items()):
                continue
            if best is None or node.free["vcore"] < best.free["vcore"]:
                best = node
        if best is None:
            return False
        self._start(pod, best)
        return True

    def _start(self, pod: PodState, node: NodeState) -> None:
        pod.node, pod.bound_at = node.name, self.now
        node.pods.add(pod)
        self._count(pod, node, 1)
        self.running.add(pod)
        self.ledger.waited += self.now - pod.ask.at
        if node.name in self._idle_from:
            self.ledger.idle += self.now - self._idle_from.pop(node.name)
        self.version += 1
        if self.now + pod.ask.lasts <= self.workload.nothing_ends_after:
            self.at(self.now + pod.ask.lasts, lambda: self._end(pod))

    def _end(self, pod: PodState) -> None:
        node = self.nodes[pod.node]
        node.pods.discard(pod)
        self._count(pod, node, -1)
        self.running.discard(pod)
        self.trace.append((pod.bound_at, self.now, pod))
        if node.node_type and not node.pods:
            self._idle_from[node.name] = self.now

    def _count(self, pod: PodState, node: NodeState, sign: int) -> None:
        for name, ask in pod.request.items():
            node.free[name] -= sign * ask
        for path in self.path(pod.ask.queue):
            used = self.used[path]
            for name, ask in pod.request.items():
                used[name] = used.get(name, 0) + sign * ask

    # --- nodes -------------------------------------------------------------------------------

    def convert(self, policy: Policy, node_type: str, namespace: str, count: int) -> list[str]:
        """Order conversions; returns the names of the nodes that will come, as far as there are."""
        names = [self.batch[node_type].pop() for _ in range(min(count, len(self.batch[node_type])))]
        kind = self.workload.classes[node_type]
        size = dict(kind.brings or kind.size)
        for name in names:
            self.ledger.conversions += 1
            self.lent_since[name] = self.now
            self.away.add(name)
            node = NodeState(name, node_type, size, dict(size), namespace)
            self._coming[name] = self.now + self.random.uniform(*CONVERSION)
            self.at(self._coming[name], lambda node=node: self._join(policy, node))  # type: ignore[misc]
        return names

    def ready_at(self, name: str) -> float:
        """When a node that was converted last will be, or was, Ready."""
        return self._coming[name]

    def _join(self, policy: Policy, node: NodeState) -> None:
        self.nodes[node.name] = node
        self._idle_from[node.name] = self.now
        policy.joined(self, node.name)

    def revert(self, name: str) -> None:
        """Take a node out of Kubernetes and give it back; Slurm has it again minutes later."""
        node = self.nodes.pop(name)
        assert not node.pods, f"{name} still has pods"
        self.ledger.idle += self.now - self._idle_from.pop(name)
        back = self.now + self.random.uniform(*REVERSION)
        self.at(back, lambda: self._returned(name, node.node_type))

    def _returned(self, name: str, node_type: str) -> None:
        self.away.discard(name)
        self.ledger.lent += self.now - self.lent_since.pop(name)
        self.batch[node_type].append(name)

    def resize(self, queue: str, size: Mapping[str, int], sign: int) -> None:
        """Raise or lower a queue and its limited ancestors by a node's size."""
        for path in self.path(queue):
            for name in self.limits[path]:
                self.limits[path][name] += sign * size.get(name, 0)
