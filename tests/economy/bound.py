"""What a clairvoyant would have lent for the same waiting: two bounds, on the played pods.

`oracle`: the same scheduler, the same pods started at the same moments, but a planner that knows
the future: a node is there the moment it is needed, and gone the moment its last pod is. `volume`:
less than any schedule can do, since it moves running pods together at every instant.

Both pay one conversion and one reversion per lending, and bridge a gap where that is cheaper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tests.economy.world import CONVERSION, REVERSION, Amounts, PodState, Workload, World

OVERHEAD = sum(CONVERSION) / 2 + sum(REVERSION) / 2


def oracle(world: World) -> float:
    """Node-seconds lent by a planner that knows the future."""
    return sum(_cost(_busy(world, node_type)) for node_type in _types(world.workload))


def volume(world: World) -> float:
    """Node-seconds below which no planner and no scheduler can go."""
    return sum(_cost(_needed(world, node_type)) for node_type in _types(world.workload))


def _types(workload: Workload) -> set[str]:
    return {node_type for _, node_type in workload.namespaces.values()}


def _queues(workload: Workload, node_type: str) -> list[str]:
    return [path for path, kind in workload.namespaces.values() if kind == node_type]


def _events(world: World, queues: list[str]) -> list[tuple[float, int, PodState]]:
    """(time, -1 ended or 1 started, pod), ends before starts."""
    pods = [entry for entry in world.trace if entry[2].ask.queue in queues]
    events = [(end, -1, pod) for _, end, pod in pods]
    events += [(start, 1, pod) for start, _, pod in pods]
    return sorted(events, key=lambda event: (event[0], event[1], event[2].number))


class _Usage:
    """Running sums, and how many lent nodes they take at the least."""

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

    def for_room(self) -> int:
        whole: Amounts = defaultdict(int)
        free: Amounts = defaultdict(int)
        for used in self._used.values():
            for name, amount in used.items():
                whole[name] += amount
        for node in self._workload.free:
            for name, amount in node.items():
                free[name] += amount
        return self._nodes(whole, {name: free[name] for name in whole})

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
    for when, sign, pod in _events(world, queues):
        usage.add(pod, sign)
        needed.append((when, max(usage.for_room(), usage.for_quota())))
    return needed


def _busy(world: World, node_type: str) -> list[tuple[float, int]]:
    """Replay: each pod goes to the fullest node that takes it; where none does, one appears."""
    queues = _queues(world.workload, node_type)
    usage = _Usage(world.workload, queues, node_type)
    size = dict(world.workload.classes[node_type].size)
    free = {number: dict(node) for number, node in enumerate(world.workload.free)}
    permanent = len(free)
    pods_on: dict[int, int] = defaultdict(int)
    home: dict[PodState, int] = {}
    opened = permanent
    needed = []
    for when, sign, pod in _events(world, queues):
        usage.add(pod, sign)
        if sign < 0:
            number = home.pop(pod)
        else:
            fitting = [
                number
                for number, have in free.items()
                if all(have.get(name, 0) >= ask for name, ask in pod.request.items())
            ]
            if not fitting:
                fitting, free[opened] = [opened], dict(size)
                opened += 1
            number = min(fitting, key=lambda one: (free[one]["vcore"], one))
            home[pod] = number
        pods_on[number] += sign
        for name, ask in pod.request.items():
            free[number][name] -= sign * ask
        if number >= permanent and not pods_on[number]:
            del free[number]
        needed.append((when, max(len(free) - permanent, usage.for_quota())))
    return needed


def _cost(needed: list[tuple[float, int]]) -> float:
    """Node by node: the time in use, one overhead per lending, and the gaps worth bridging."""
    total = 0.0
    most = max((count for _, count in needed), default=0)
    for level in range(1, most + 1):
        started: float | None = None
        ended: float | None = None
        for when, count in needed:
            if count >= level and started is None:
                started = when
                total += OVERHEAD if ended is None else min(OVERHEAD, when - ended)
            elif count < level and started is not None:
                total += when - started
                started, ended = None, when
    return total
