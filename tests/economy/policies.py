"""The rule of the tool that dnm replaces, for comparison."""

from __future__ import annotations

from math import ceil

from dnm.simulate.values import POD_START, REVERT_CALL
from dnm.simulate.world import World

IDLE_SECONDS = 600.0


class PredecessorPolicy:
    """The rule of the predecessor, without its failures.

    A namespace needs nodes if demand exceeds `headroom` x limit, or pending exceeds the rest. It
    also does if any pod is pending and used / largest pending is a multiple of pods per node. Then
    it gets the deficit in nodes, at least one. A bound pod that is pulling images counts as
    pending. Only vCPU and memory count. One conversion call at a time covers everything needed at
    its start; queued demand is evaluated again after it. A node is returned on the first pass that
    finds it without pods, if its conversion is older than the idle time. The pass waits until each
    has left Kubernetes, without evaluating anything meanwhile.
    """

    interval = 30.0
    rests_until = 0.0
    runs_after: float | None = None

    def __init__(self, headroom: float = 0.95) -> None:
        self._headroom = headroom
        self._tasks: list[str] = []
        self._busy_with: str = ""
        self._coming = 0
        self._since: dict[str, float] = {}

    def run(self, world: World) -> float:
        for namespace in world.workload.namespaces:
            committed = self._tasks.count(namespace) + (self._busy_with == namespace)
            left = world.workload.cap - len(world.lent_since) - len(self._tasks)
            need = min(self._need(world, namespace) - committed, left)
            self._tasks += [namespace] * max(0, need)
        self._work(world)
        return world.now + REVERT_CALL * self._revert(world)

    def _need(self, world: World, namespace: str) -> int:
        queue, node_type = world.workload.namespaces[namespace]
        size = dict(world.workload.classes[node_type].size)
        started = [
            pod
            for pod in world.running
            if pod.ask.queue == queue and world.now >= pod.bound_at + POD_START
        ]
        waiting = [pod for pod in (*world.pending, *world.running) if pod.ask.queue == queue]
        waiting = [pod for pod in waiting if pod not in set(started)]
        limit = world.limits[queue]
        deficits = [0]
        is_over = False
        for name in ("cpu", "memory"):
            used = sum(pod.request[name] for pod in started)
            asked = sum(pod.request[name] for pod in waiting)
            mark = limit[name] * self._headroom
            is_over |= used + asked > mark or asked > max(0, limit[name] - used)
            deficits.append(ceil(max(0, used + asked - mark) / size[name]))
        if waiting:
            largest = {n: max(pod.request[n] for pod in waiting) for n in ("cpu", "memory")}
            per_node = min(size[name] // largest[name] for name in largest)
            used = sum(pod.request["cpu"] for pod in started)
            estimate = round(used / max(largest["cpu"], 1000))
            is_over |= per_node > 0 and estimate > 0 and estimate % per_node == 0
        return max(*deficits, 1) if is_over else 0

    def _work(self, world: World) -> None:
        while self._tasks and not self._busy_with:
            namespace = self._tasks.pop(0)
            need = min(self._need(world, namespace), world.workload.cap - len(world.lent_since))
            names = []
            if need > 0:
                _, node_type = world.workload.namespaces[namespace]
                names = world.convert(self, node_type, namespace, need).names
            if names:
                self._busy_with, self._coming = namespace, len(names)

    def joined(self, world: World, node: str) -> None:
        state = world.nodes[node]
        queue, _ = world.workload.namespaces[state.namespace]
        world.resize(queue, _cpu_and_memory(state.size), 1)
        self._since[node] = world.now
        self._ended(world)

    def failed(self, world: World, node: str, namespace: str) -> None:
        self._ended(world)

    def _ended(self, world: World) -> None:
        self._coming -= 1
        if not self._coming:
            self._busy_with = ""
            self._work(world)

    def _revert(self, world: World) -> int:
        count = 0
        for name, since in list(self._since.items()):
            if not world.nodes[name].pods and world.now - since >= IDLE_SECONDS:
                state = world.nodes[name]
                queue, _ = world.workload.namespaces[state.namespace]
                world.resize(queue, _cpu_and_memory(state.size), -1)
                world.revert(name)
                del self._since[name]
                count += 1
        return count


def _cpu_and_memory(size: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in size.items() if name in ("cpu", "memory")}
