"""Policies for comparison: the rules of cluster-autoscaler, and Karpenter's.

Unlike cloud autoscalers, they also respect limits of queues, which a joining node raises. Like all
policies here, they pay two boots for each lend."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from dnm.simulate.values import PodState, SimNode
from dnm.simulate.world import World

CA_UNNEEDED = 600.0  # --scale-down-unneeded-time
CA_SCAN = 10.0  # --scan-interval


class _Autoscaler:
    """A base of both policies: joining nodes raise their queue's limit, leaving ones lower it."""

    rests_until = 0.0
    runs_after: float | None = None

    def __init__(self, interval: float = CA_SCAN) -> None:
        self.interval = interval
        self._coming: dict[str, int] = {}
        self._idle: dict[str, float] = {}

    def run(self, world: World) -> float:
        for namespace in world.workload.namespaces:
            self._order(world, namespace, self._missing(world, namespace))
        self._give_back(world)
        return world.now

    def _missing(self, world: World, namespace: str) -> int:
        raise NotImplementedError

    def _order(self, world: World, namespace: str, count: int) -> None:
        count = min(count, world.workload.cap - len(world.lent_since))
        if count > 0:
            _, node_type = world.workload.namespaces[namespace]
            call = world.convert(self, node_type, namespace, count)
            self._coming[namespace] = self._coming.get(namespace, 0) + len(call.names)

    def _give_back(self, world: World) -> None:
        for name, since in list(self._idle.items()):
            if world.nodes[name].pods:
                self._idle[name] = world.now
            elif world.now - since >= CA_UNNEEDED:
                self._return(world, name)

    def _return(self, world: World, name: str) -> None:
        state = world.nodes[name]
        queue, _ = world.workload.namespaces[state.namespace]
        world.resize(queue, state.size, -1)
        world.revert(name)
        del self._idle[name]

    def joined(self, world: World, node: str) -> None:
        state = world.nodes[node]
        queue, _ = world.workload.namespaces[state.namespace]
        world.resize(queue, state.size, 1)
        self._coming[state.namespace] -= 1
        self._idle[node] = world.now

    def failed(self, world: World, node: str, namespace: str) -> None:
        self._coming[namespace] -= 1


class ClusterAutoscalerPolicy(_Autoscaler):
    """Waiting pods are packed first on current and joining nodes, then on new nodes. A node without
    pods leaves after ten minutes. Nothing is evicted (tenants' pods are not safe to evict).
    """

    def _missing(self, world: World, namespace: str) -> int:
        queue, node_type = world.workload.namespaces[namespace]
        pending = [pod for pod in world.pending if pod.ask.queue == queue]
        if not pending:
            return 0
        size = dict(world.workload.classes[node_type].size)
        coming = self._coming.get(namespace, 0)
        there = [dict(node.free) for node in _open_to(world, namespace)]
        there += [dict(size) for _ in range(coming)]
        return max(_pack(pending, there, size), _for_quota(world, queue, pending, size) - coming)


class KarpenterPolicy(ClusterAutoscalerPolicy):
    """Nodes are added as by cluster-autoscaler. An empty node leaves at once. One node at a time is
    emptied if its pods fit on other nodes, where they restart (WhenEmptyOrUnderutilized,
    consolidateAfter 0s, no disruption of gangs)."""

    def _give_back(self, world: World) -> None:
        for name in list(self._idle):
            if not world.nodes[name].pods:
                self._return(world, name)
        if world.pending or any(self._coming.values()):
            return
        for name in sorted(self._idle, key=lambda name: len(world.nodes[name].pods)):
            if self._may_empty(world, world.nodes[name]):
                world.nodes[name].cordoned = True
                for pod in sorted(world.nodes[name].pods, key=lambda pod: pod.number):
                    world.move(pod)
                return

    def _may_empty(self, world: World, node: SimNode) -> bool:
        """Returns whether a node's pods fit on other nodes and in the quota without the node."""
        remaining = [
            node_state for node_state in _open_to(world, node.namespace) if node_state is not node
        ]
        pods = sorted(node.pods, key=lambda pod: pod.number)
        queue, _ = world.workload.namespaces[node.namespace]
        within = all(
            world.used[path].get(name, 0) <= limit - node.size.get(name, 0)
            for path in world.path(queue)
            for name, limit in world.limits[path].items()
        )
        if not within or any(pod.ask.gang for pod in pods):
            return False
        return _pack(pods, [dict(other.free) for other in remaining], {}) == 0


def _open_to(world: World, namespace: str) -> list[SimNode]:
    return [
        node
        for node in world.nodes.values()
        if not node.cordoned and node.namespace in ("", namespace)
    ]


def _pack(pods: Iterable[PodState], free: list[dict[str, int]], size: dict[str, int]) -> int:
    """Packs pods first-fit on free nodes, then on new ones; returns the number of new nodes. With a
    size, pods larger than that are skipped; without, each remaining pod counts as one."""
    opened = 0
    for pod in pods:
        asks = pod.request.items()
        if any(ask > size.get(name, 0) for name, ask in asks) and size:
            continue
        for have in free:
            if all(have.get(name, 0) >= ask for name, ask in asks):
                break
        else:
            opened += 1
            have = dict(size)
            free.append(have)
        for name, ask in asks:
            have[name] = have.get(name, 0) - ask
    return opened


def _for_quota(world: World, queue: str, pending: list[PodState], size: dict[str, int]) -> int:
    """Returns how many nodes raise the limits of a queue and its ancestors enough for the pods."""
    most = 0
    for path in world.path(queue):
        for name, limit in world.limits[path].items():
            wants = world.used[path].get(name, 0) + sum(
                pod_state.request.get(name, 0) for pod_state in pending
            )
            if size.get(name):
                most = max(most, ceil((wants - limit) / size[name]))
    return most
