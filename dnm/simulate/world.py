"""A cluster in virtual time: pods are bound within limits, jobs run as in Slurm, conversions
take minutes and can fail.

The scheduler takes pods in the order of their creation and skips those that do not fit. It respects
every limit up the tree and the free capacity of nodes, and fills the fullest node first, by cores
and memory alike (nodesortpolicy binpacking; without it nodes are seldom idle: `spreads`). The pods
of a gang keep their nodes and begin together; after fifteen minutes the gang begins with the bound
pods (gangSchedulingStyle Soft). Times are seconds since the workload begins.

A policy that rests is called again after the next event. `changes` counts all events, `version`
those that concern every policy: pods that found no free capacity when created, or that had waited;
the first and the last pod of a lent node; nodes that are lent or returned."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Mapping
from math import ceil, inf
from typing import Protocol

from dnm.simulate.batch import MIN_IDLE, BatchSide
from dnm.simulate.pending import PendingPods
from dnm.simulate.values import (
    DAY,
    GANG_PATIENCE,
    REVERSION,
    SHORT,
    Amounts,
    Ask,
    Cost,
    PodState,
    SimNode,
    SimulatedCall,
    Workload,
)


class Policy(Protocol):
    """What decides about lending in a simulation: dnm, or another autoscaler. The world calls `run`
    every `interval` seconds, and not before the time that `run` returned. If nothing changes, it
    skips calls until `rests_until`. `runs_after`: seconds to an extra call after a conversion."""

    interval: float
    rests_until: float
    runs_after: float | None

    def run(self, world: World) -> float: ...

    def joined(self, world: World, node: str) -> None: ...

    def failed(self, world: World, node: str, namespace: str) -> None: ...


class World:
    """The state of the simulated cluster and Slurm, their events, and the actions of a policy."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.now = 0.0
        self.random = random.Random(workload.seed)
        self.limits = {path: dict(limit) for path, limit in workload.limits.items()}
        self.used: dict[str, Amounts] = {path: {} for path in workload.limits}
        self.nodes: dict[str, SimNode] = {}
        self.batch: dict[str, BatchSide] = {}
        self.lent_since: dict[str, float] = {}
        self.away: dict[str, str] = {}  # node -> why Slurm does not have it in service
        self.pending = PendingPods()
        self.running: set[PodState] = set()
        self.ledger = Cost()
        self.trace: list[tuple[float, float, PodState]] = []
        self.version = self.changes = 0
        self._woken_at = inf
        self._new: list[PodState] = []  # that came and have not been scheduled yet
        self._events: list[tuple[float, int, bool, Callable[[], None]]] = []
        self._number = 0
        self._failures: dict[str, int] = {}  # in a row
        self._rests_until: dict[str, float] = {}
        self._idle_from: dict[str, float] = {}
        self._booting: dict[str, float] = {}
        self._gangs: dict[int, list[PodState]] = {}
        self._working_gangs: set[int] = set()
        self._populate()

    def _populate(self) -> None:
        for number, free in enumerate(self.workload.free):
            name = f"k{number:03}"
            self.nodes[name] = SimNode(name=name, node_type="", size=dict(free), free=dict(free))
        for node_type, kind in self.workload.classes.items():
            prefix = kind.prefix or node_type
            names = [f"{prefix}{number:03}" for number in range(1, kind.count + 1)]
            self.batch[node_type] = BatchSide(dict.fromkeys(names, -DAY), self._at_batch)
        for ask in self.workload.asks:
            self.at(ask.at, lambda ask=ask: self._arrive(ask))  # type: ignore[misc]
        for job in self.workload.jobs:
            side = self.batch[job.node_type]
            self._at_batch(job.at, lambda job=job, side=side: side.submit(job, self.now))  # type: ignore[misc]

    # --- time --------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], None], is_batch: bool = False) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, is_batch, action))

    def _at_batch(self, when: float, action: Callable[[], None]) -> None:
        """Schedules the start or end of a batch job. A policy that requests no node needs no run
        after it."""
        self.at(when, action, is_batch=True)

    def play(self, policy: Policy, report: Callable[[float], object] | None = None) -> Cost:
        """Simulates the whole time of the workload. Calls the policy every interval, unless it is
        busy or has no reason to run, and `report` with the fraction that is simulated."""
        next_run = 0.0
        while self.now < self.workload.lasts:
            self.now = self._advance(next_run)
            self._woken_at = inf
            busy_until = policy.run(self)
            self._schedule()
            if report is not None:
                report(self.now / self.workload.lasts)
            next_run = self._next_run(policy, self.now, busy_until)
        return self._close()

    def _advance(self, until: float) -> float:
        """Executes the events before the policy's next run. Returns the time of that run."""
        while self._events and self._events[0][0] <= (until := min(until, self._woken_at)):
            self.now, _, is_batch, action = heapq.heappop(self._events)
            action()
            self.changes += not is_batch
            if not self._events or self._events[0][0] > self.now:
                self._schedule()
        return min(until, self._woken_at)

    def _ask_policy(self, policy: Policy) -> None:
        """Schedules a run of the policy after a conversion, one for all that end together."""
        if policy.runs_after is not None:
            self._woken_at = min(self._woken_at, self.now + policy.runs_after)

    def _next_run(self, policy: Policy, last: float, busy_until: float) -> float:
        following = (last // policy.interval + 1) * policy.interval
        while following < busy_until:
            following += policy.interval
        happens = self._events[0][0] if self._events else self.workload.lasts
        rests_until = min(policy.rests_until, happens, self.workload.lasts)
        if rests_until > following:
            following += ceil((rests_until - following) / policy.interval) * policy.interval
        return following

    def _close(self) -> Cost:
        for pod in (*self.pending, *(pod for pod in self.running if pod.works_since < 0)):
            self.ledger.waits.append(self.now - pod.ask.at)
            self.ledger.unserved += 1
        for name, since in self.lent_since.items():
            self.ledger.lent += self.now - since
            if name in self._idle_from:
                self.ledger.idle += self.now - self._idle_from[name]
            if name not in self.nodes:
                self.ledger.booting += self.now - self._booting[name]
        for pod in self.running:
            if pod.works_since >= 0:
                self.ledger.waits.append(pod.works_since - pod.ask.at)
            self.trace.append((pod.bound_at, self.now, pod))
        return self.ledger

    def job_waits(self) -> list[float]:
        """Returns how many seconds each job has waited: until its start, or until now."""
        waits = [wait for side in self.batch.values() for _, wait in side.waits]
        return waits + [self.now - job.at for side in self.batch.values() for job in side.waiting]

    # --- pods --------------------------------------------------------------------------------

    def _arrive(self, ask: Ask) -> None:
        self._number += 1
        request = {**dict(ask.request), "pods": 1}
        pod = PodState(number=self._number, ask=ask, request=request)
        self.pending.append(pod)
        self._new.append(pod)
        if ask.gang:
            self._gangs.setdefault(ask.gang, []).append(pod)

    def _schedule(self) -> None:
        self.pending.take(self._bind)
        self.version += any(not pod.node for pod in self._new)
        self._new.clear()

    def path(self, queue: str) -> Iterable[str]:
        """Yields the queue and its ancestors, without those that have no limits."""
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
        sign = -1 if self.workload.spreads else 1
        good = [
            (sign * node.free_share, bool(node.node_type), node.name, node)
            for node in self.nodes.values()
            if not (node.cordoned or (node.node_type and node.namespace != namespace))
            and all(node.free.get(name, 0) >= ask for name, ask in pod.request.items())
        ]
        if not good:
            return False
        self._start(pod, min(good)[3])
        return True

    def _start(self, pod: PodState, node: SimNode) -> None:
        pod.node, pod.bound_at = node.name, self.now
        node.pods.add(pod)
        self._count(pod, node, 1)
        self.running.add(pod)
        if node.name in self._idle_from:
            self.ledger.idle += self.now - self._idle_from.pop(node.name)
            self.version += 1
        self.version += pod.ask.at < self.now
        self.changes += 1
        gang = self._gangs.get(pod.ask.gang)
        if gang is None or pod.ask.gang in self._working_gangs:
            self._work(pod)
        elif all(pod_state.node for pod_state in gang):
            self._work_together(pod.ask.gang)
        elif sum(bool(pod_state.node) for pod_state in gang) == 1:
            self.at(self.now + GANG_PATIENCE, lambda: self._work_together(pod.ask.gang))

    def _work_together(self, gang: int) -> None:
        if gang not in self._working_gangs:
            self._working_gangs.add(gang)
            for pod in self._gangs[gang]:
                if pod.node:
                    self._work(pod)

    def _work(self, pod: PodState) -> None:
        pod.works_since = self.now
        epoch = pod.epoch
        if self.now + pod.ask.lasts <= self.workload.nothing_ends_after:
            self.at(self.now + pod.ask.lasts, lambda: self._end(pod, epoch))

    def _end(self, pod: PodState, epoch: int) -> None:
        if pod.epoch == epoch:
            self.ledger.waits.append(pod.works_since - pod.ask.at)
            self._leave(pod)

    def _leave(self, pod: PodState) -> None:
        node = self.nodes[pod.node]
        node.pods.discard(pod)
        self._count(pod, node, -1)
        self.running.discard(pod)
        self.trace.append((pod.bound_at, self.now, pod))
        if node.node_type and not node.pods:
            self._idle_from[node.name] = self.now
            self.version += 1

    def move(self, pod: PodState) -> None:
        """Evicts a pod: it starts again elsewhere, and its earlier run counts as waiting."""
        self.ledger.moved += 1
        self.version += 1
        self._leave(pod)
        pod.epoch += 1
        pod.node, pod.bound_at, pod.works_since = "", -1.0, -1.0
        self.pending.append(pod)

    def _count(self, pod: PodState, node: SimNode, sign: int) -> None:
        for name, ask in pod.request.items():
            node.free[name] -= sign * ask
        for path in self.path(pod.ask.queue):
            used = self.used[path]
            for name, ask in pod.request.items():
                used[name] = used.get(name, 0) + sign * ask

    # --- nodes -------------------------------------------------------------------------------

    def lendable(self, node_type: str) -> list[str]:
        """Returns the nodes that the converter would take now, in its order. Like the shipped
        converter, it avoids a node for a while after a failed conversion."""
        names = self.batch[node_type].lendable(self.now)
        return [name for name in names if self._rests_until.get(name, 0.0) <= self.now]

    def convert(self, policy: Policy, node_type: str, namespace: str, count: int) -> SimulatedCall:
        """Starts conversions of `count` nodes, or of fewer if fewer can be lent now."""
        side = self.batch[node_type]
        call = SimulatedCall(node_type, self.lendable(node_type)[:count])
        kind = self.workload.classes[node_type]
        size = dict(kind.brings or kind.size)
        for name in call.names:
            del side.idle[name]
            self.ledger.conversions += 1
            self.lent_since[name] = self._booting[name] = self.now
            self.away[name] = "converting"
            node = SimNode(name, node_type, size, dict(size), namespace)
            ends = self.now + self._span(self.workload.conversions, self.workload.conversion)
            comes = self.random.random() >= self.workload.fails
            comes = comes and name not in self.workload.broken
            after = self._join if comes else self._fail
            self.at(ends, lambda node=node, after=after: after(policy, call, node))  # type: ignore[misc]
        return call

    def _join(self, policy: Policy, call: SimulatedCall, node: SimNode) -> None:
        call.joined.append(node.name)
        self._failures.pop(node.name, None)
        node.joined_at = self.now
        self.away[node.name] = "lent"
        self.ledger.booting += self.now - self._booting.pop(node.name)
        self.nodes[node.name] = node
        self._idle_from[node.name] = self.now
        self.version += 1
        policy.joined(self, node.name)
        self._ask_policy(policy)

    def _fail(self, policy: Policy, call: SimulatedCall, node: SimNode) -> None:
        """Ends a failed conversion. The converter returns the node to Slurm, which takes a boot."""
        call.failed.append(node.name)
        if self.workload.rests:
            row = self._failures[node.name] = self._failures.get(node.name, 0) + 1
            self._rests_until[node.name] = self.now + min(MIN_IDLE * 2**row, DAY)
        self.ledger.failures += 1
        self.version += 1
        self._boot_back(node.name, node.node_type)
        policy.failed(self, node.name, node.namespace)
        self._ask_policy(policy)

    def relabel(self, name: str, namespace: str) -> None:
        """Gives a node the labels and taints of another namespace."""
        self.nodes[name].namespace = namespace
        self.version += 1
        self.changes += 1

    def revert(self, name: str) -> None:
        """Removes a node from Kubernetes; minutes later, Slurm has it again. Does nothing if that
        has begun already, because converters accept a repeated call."""
        if name not in self.nodes:
            return
        node = self.nodes.pop(name)
        assert not node.pods, f"{name} still has pods"
        self.ledger.idle += self.now - self._idle_from.pop(name)
        self.ledger.short += self.now - node.joined_at < SHORT
        self._booting[name] = self.now
        self._boot_back(name, node.node_type)

    def _boot_back(self, name: str, node_type: str) -> None:
        self.away[name] = "returning"
        back = self.now + self._span(self.workload.returns, REVERSION)
        self.at(back, lambda: self._returned(name, node_type))

    def _span(self, recorded: tuple[float, ...], between: tuple[float, float]) -> float:
        return self.random.choice(recorded) if recorded else self.random.uniform(*between)

    def _returned(self, name: str, node_type: str) -> None:
        del self.away[name]
        self.version += 1
        self.ledger.lent += self.now - self.lent_since.pop(name)
        self.ledger.booting += self.now - self._booting.pop(name)
        self.batch[node_type].give(name, self.now)

    def resize(self, queue: str, size: Mapping[str, int], sign: int) -> None:
        """Raises or lowers the limits of a queue and its ancestors by a node's size."""
        for path in self.path(queue):
            for name in self.limits[path]:
                self.limits[path][name] += sign * size.get(name, 0)


class NobodyLends:
    """A policy that lends no node, so that its figures show the waits without lending."""

    interval = 3600.0
    rests_until = 0.0
    runs_after: float | None = None

    def run(self, world: World) -> float:
        return world.now

    def joined(self, world: World, node: str) -> None:
        raise AssertionError(node)

    def failed(self, world: World, node: str, namespace: str) -> None:
        raise AssertionError(node)
