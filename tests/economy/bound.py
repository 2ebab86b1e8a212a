"""Two lower bounds of the lent node-time that any policy needs for the pods of a played workload.

`oracle` keeps the starts of the pods, but planner and scheduler know the future. A node exists from
its first need to the end of its last pod. Each pod goes where it extends a node's time least, if
that is cheaper than filling the fullest node. The best placement may be cheaper still. `volume` is
less than any schedule needs, since it repacks running pods at every instant.

Both pay one conversion and one return per lend, and bridge a gap if that is cheaper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dnm.simulate.values import REVERSION, Amounts, PodState, Workload
from dnm.simulate.world import World


def oracle(world: World) -> float:
    """Returns the lent node-seconds of a planner that knows when pods start and end."""
    return sum(
        min(
            _cost(busy(world, node_type), _overhead(world.workload))
            for busy in (_busy_online, _busy_offline)
        )
        for node_type in _types(world.workload)
    )


def volume(world: World) -> float:
    """Returns the node-seconds below which no planner and scheduler can be."""
    return sum(
        _cost(_needed(world, node_type), _overhead(world.workload))
        for node_type in _types(world.workload)
    )


def _overhead(workload: Workload) -> float:
    """Returns the seconds that one lend costs on average: the conversion and the return."""
    return sum(workload.conversion) / 2 + sum(REVERSION) / 2


def _types(workload: Workload) -> set[str]:
    return {node_type for _, node_type in workload.namespaces.values()}


def _queues(workload: Workload, node_type: str) -> list[str]:
    return [path for path, kind in workload.namespaces.values() if kind == node_type]


class _Event(NamedTuple):
    """The start (`sign` 1) or the end (-1) of a pod."""

    when: float
    sign: int
    number: int
    began: float
    end: float
    pod: PodState


def _events(world: World, queues: list[str]) -> list[_Event]:
    """Returns the starts and ends of the queues' pods in order of time, ends before starts."""
    # A pod that was bound at the last moment used no time.
    pods = [pair for pair in world.trace if pair[2].ask.queue in queues and pair[0] < pair[1]]
    events = [_Event(end, -1, pod.number, start, end, pod) for start, end, pod in pods]
    events += [_Event(start, 1, pod.number, start, end, pod) for start, end, pod in pods]
    return sorted(events, key=lambda event: event[:4])


class _Usage:
    """The requests of the running pods, and the least number of lent nodes for them."""

    def __init__(self, workload: Workload, queues: list[str], node_type: str) -> None:
        self._workload = workload
        self._queues = queues
        self._size = dict(workload.classes[node_type].size)
        self._used: dict[str, Amounts] = {queue: defaultdict(int) for queue in queues}

    def add(self, pod: PodState, sign: int) -> None:
        for name, amount in pod.request.items():
            self._used[pod.ask.queue][name] += sign * amount

    def for_quota(self) -> int:
        return sum(
            self._nodes(self._used[queue], self._workload.limits[queue]) for queue in self._queues
        )

    def for_capacity(self) -> int:
        full: Amounts = defaultdict(int)
        free: Amounts = defaultdict(int)
        for used in self._used.values():
            for name, amount in used.items():
                full[name] += amount
        for node in self._workload.free:
            for name, amount in node.items():
                free[name] += amount
        return self._nodes(full, {name: free[name] for name in full})

    def _nodes(self, used: Mapping[str, int], have: Mapping[str, int]) -> int:
        over = [
            -(-(used.get(name, 0) - amount) // self._size[name])
            for name, amount in have.items()
            if self._size.get(name)
        ]
        return max(0, *over)


def _needed(world: World, node_type: str) -> list[tuple[float, int]]:
    queues = _queues(world.workload, node_type)
    usage = _Usage(world.workload, queues, node_type)
    needed = []
    for event in _events(world, queues):
        usage.add(event.pod, event.sign)
        needed.append((event.when, max(usage.for_capacity(), usage.for_quota())))
    return needed


def _busy_online(world: World, node_type: str) -> list[tuple[float, int]]:
    """Returns (time, nodes in use), if each pod goes to the fullest node on which it fits."""
    queues = _queues(world.workload, node_type)
    usage = _Usage(world.workload, queues, node_type)
    size = dict(world.workload.classes[node_type].size)
    free = {number: dict(node) for number, node in enumerate(world.workload.free)}
    permanent = opened = len(free)
    pods_on: dict[int, int] = defaultdict(int)
    home: dict[tuple[PodState, float], int] = {}
    needed = []
    for event in _events(world, queues):
        pod = event.pod
        usage.add(pod, event.sign)
        if event.sign < 0:
            number = home.pop((pod, event.began))
        else:
            fitting = [number for number, have in free.items() if _fits(pod.request, have)]
            if not fitting:
                fitting, free[opened] = [opened], dict(size)
                opened += 1
            number = min(fitting, key=lambda number: (free[number]["cpu"], number))
            home[pod, event.began] = number
        pods_on[number] += event.sign
        for name, ask in pod.request.items():
            free[number][name] -= event.sign * ask
        if number >= permanent and not pods_on[number]:
            del free[number]
        needed.append((event.when, max(len(free) - permanent, usage.for_quota())))
    return needed


def _fits(request: Mapping[str, int], have: Mapping[str, int]) -> bool:
    return all(have.get(name, 0) >= ask for name, ask in request.items())


class _Timeline:
    """A node of the bound `oracle`, with all of its present and future pods."""

    def __init__(self, size: Mapping[str, int]) -> None:
        self._size = size
        self._pods: list[tuple[float, float, Mapping[str, int]]] = []
        self.busy: list[tuple[float, float]] = []  # while it has any pod; separate and in order

    def takes(self, start: float, end: float, request: Mapping[str, int]) -> bool:
        """Returns whether the node has free capacity for a pod all the time from start to end."""
        beside = [pod for pod in self._pods if pod[0] < end and pod[1] > start]
        for moment in {start, *(pair[0] for pair in beside if pair[0] > start)}:
            there = [pair[2] for pair in beside if pair[0] <= moment < pair[1]]
            for name, ask in request.items():
                if sum(entry.get(name, 0) for entry in there) + ask > self._size.get(name, 0):
                    return False
        return True

    def longer(self, start: float, end: float) -> float:
        """Returns by how many seconds a pod would extend the time in which the node is used."""
        covered = (min(end, last) - max(start, first) for first, last in self.busy)
        return end - start - sum(number for number in covered if number > 0)

    def add(self, start: float, end: float, request: Mapping[str, int]) -> None:
        self._pods.append((start, end, request))
        separate = [pair for pair in self.busy if pair[1] < start or pair[0] > end]
        touching = [pair for pair in self.busy if pair not in separate]
        full = (
            min([start, *(pair[0] for pair in touching)]),
            max([end, *(pair[1] for pair in touching)]),
        )
        self.busy = sorted([*separate, full])


def _busy_offline(world: World, node_type: str) -> list[tuple[float, int]]:
    """Returns (time, nodes in use) if each pod goes where it extends a node's time least, longest
    pods first (Flammini et al., Minimizing total busy time in parallel scheduling, 2010)."""
    queues = _queues(world.workload, node_type)
    size = world.workload.classes[node_type].size
    permanent = [_Timeline(dict(node)) for node in world.workload.free]
    lent: list[_Timeline] = []
    starts = [event for event in _events(world, queues) if event.sign > 0]
    for start in sorted(starts, key=lambda pair: (pair.began - pair.end, pair.began, pair.number)):
        span = (start.began, start.end)
        request = start.pod.request
        home = next((node for node in permanent if node.takes(*span, request)), None)
        if home is None:
            by_cost = sorted(lent, key=lambda node: node.longer(*span))
            home = next((node for node in by_cost if node.takes(*span, request)), None)
        if home is None:
            home = _Timeline(dict(size))
            lent.append(home)
        home.add(*span, request)
    return _with_quota(world, queues, node_type, lent)


def _with_quota(
    world: World, queues: list[str], node_type: str, lent: Sequence[_Timeline]
) -> list[tuple[float, int]]:
    changes: dict[float, int] = defaultdict(int)
    for node in lent:
        for first, last in node.busy:
            changes[first] += 1
            changes[last] -= 1
    usage = _Usage(world.workload, queues, node_type)
    quota: dict[float, int] = {}
    for event in _events(world, queues):
        usage.add(event.pod, event.sign)
        quota[event.when] = usage.for_quota()
    needed, count, by_quota = [], 0, 0
    for when in sorted({*changes, *quota}):
        count += changes.get(when, 0)
        by_quota = quota.get(when, by_quota)
        needed.append((when, max(count, by_quota)))
    return needed


def _cost(needed: list[tuple[float, int]], overhead: float) -> float:
    """Returns the cost in node-seconds: use, and an overhead for each lend or the gap before it."""
    total = 0.0
    most = max((count for _, count in needed), default=0)
    for level in range(1, most + 1):
        started: float | None = None
        ended: float | None = None
        for when, count in needed:
            if count >= level and started is None:
                started = when
                total += overhead if ended is None else min(overhead, when - ended)
            elif count < level and started is not None:
                total += when - started
                started, ended = None, when
    return total
