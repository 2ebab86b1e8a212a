"""Consolidation: half-empty lent nodes get no new pods, so that they become empty. Pure.

A lent node is spare if less than half of it is used, its pods fit into nine tenths of the free
capacity of the other nodes of its namespace, and its queue can do without its quota. If it is spare
for ten minutes while no pod of the queue waits, it is fenced. Then it gets no new pods, its pods
run on, and it is returned once they have ended. The first pod that waits ends the fence. No pod is
evicted. A run fences at most one node of a queue for this."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from dnm.demand.demand import Demand, NodeUse
from dnm.model.lent import LentNode, Phase
from dnm.model.pod import PodList
from dnm.model.queue_path import is_under, present_lineage
from dnm.model.registry import Registry
from dnm.plan.hooks import Additions, Leave, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.rule import CONSOLIDATED, SPARE_FOR
from dnm.plan.rules.low_utilization import used_share

_HALF = 0.5
_KEPT_FREE = 0.1  # of the free capacity of the other nodes
_NOTHING: Mapping[str, int] = {}


def _add(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    """Records since when each half-empty node is spare: its pods would fit on other nodes."""
    if not _sees_all(inputs):
        return Additions(registry=noted)
    recorded = inputs.registry.spare_nodes
    spare = {
        name: min(recorded.get(name, inputs.now), inputs.now) for name in _spare(inputs, registry)
    }
    return Additions(registry=msgspec.structs.replace(noted, spare_nodes=spare))


def _leaving(inputs: Inputs, registry: Registry) -> Iterator[str]:
    """Yields, for each queue, the emptiest of the nodes that were spare for ten minutes."""
    if not _sees_all(inputs):
        return
    due = {
        name
        for name, since in inputs.registry.spare_nodes.items()
        if inputs.now - since >= SPARE_FOR
    }
    queues: set[str] = set()
    for name in _spare(inputs, registry) if due else ():
        queue = registry.nodes[name].queue
        if name in due and queue not in queues:
            queues.add(queue)
            yield name


def _is_over(inputs: Inputs, registry: Registry, name: str) -> bool:
    return inputs.demand is not None and _waits(inputs.demand, registry.nodes[name].queue)


def _waits(demand: Demand, queue: str) -> bool:
    """Returns whether pods of the queue are pending for longer than the scheduler takes."""
    return any(group.count and is_under(group.queue, queue) for group in demand.groups)


def _sees_all(inputs: Inputs) -> bool:
    pods = inputs.snapshot.pods
    is_read = isinstance(pods, PodList) and pods.cluster_wide and not pods.unreadable
    return is_read and inputs.demand is not None and inputs.facts.nodes is not None


def _spare(inputs: Inputs, registry: Registry) -> list[str]:
    """Returns the half-empty nodes that their queues can do without, the emptiest first."""
    demand = inputs.demand
    assert demand is not None
    serving = registry.nodes_of(inputs.config.instance_id, Phase.SERVING)
    half: dict[str, float] = {}
    for name, entry in serving.items():
        use, is_kept = demand.nodes.get(name), inputs.is_kept(name, entry)
        if (
            use is None
            or not use.work_pods
            or entry.leaves
            or is_kept
            or _waits(demand, entry.queue)
        ):
            continue
        share = used_share([(entry, use)])
        if share < _HALF:
            half[name] = share
    free = _free_by_node(inputs, serving, {serving[name].namespace for name in half})
    totals = {namespace: _sum(of.values()) for namespace, of in free.items()}
    ready = Counter(
        (node.namespace, node.node_type) for node in serving.values() if not node.leaves
    )
    return [
        name
        for name in sorted(half, key=lambda n: (half[n], -serving[n].since.timestamp(), n))
        if _fits(demand.nodes[name], free[namespace := serving[name].namespace].get(name, _NOTHING),
                 totals[namespace])
        and _can_do_without(inputs, demand, ready, serving[name])
    ]  # fmt: skip


def _free_by_node(
    inputs: Inputs, serving: Mapping[str, LentNode], namespaces: Iterable[str]
) -> dict[str, dict[str, Counter[str]]]:
    """Returns the free capacity of each node that serves a namespace or runs some of its pods, by
    namespace and node."""
    by_namespace: defaultdict[str, set[str]] = defaultdict(set)
    for name, entry in serving.items():
        by_namespace[entry.namespace].add(name)
    pods = inputs.snapshot.pods
    wanted = frozenset(namespaces)
    if wanted and isinstance(pods, PodList):
        for pod in pods.pods:
            if pod.node and pod.namespace in wanted:
                by_namespace[pod.namespace].add(pod.node)
    return {namespace: dict(_free(inputs, by_namespace[namespace])) for namespace in wanted}


def _free(inputs: Inputs, names: Iterable[str]) -> Iterator[tuple[str, Counter[str]]]:
    assert inputs.demand is not None
    for name in names:
        node, entry = inputs.facts.node(name), inputs.registry.nodes.get(name)
        if node is None or not node.is_ready or node.is_cordoned or node.unreadable:
            continue
        if entry is not None and (entry.leaves or entry.phase is not Phase.SERVING):
            continue
        use = inputs.demand.nodes.get(name)
        free = Counter(node.allocatable if entry is None else entry.counted)
        free.subtract(use.used if use else {})
        yield name, free


def _sum(amounts: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for amount in amounts:
        total.update(amount)
    return total


def _fits(use: NodeUse, own: Mapping[str, int], total: Mapping[str, int]) -> bool:
    """Returns whether the pods of a node fit into the free capacity of the other nodes. `total` is
    that of all nodes together, `own` the part of it that the node itself has."""
    return all(
        amount - use.daemonsets.get(resource, 0)
        <= (1 - _KEPT_FREE) * (total.get(resource, 0) - own.get(resource, 0))
        for resource, amount in use.used.items()
        if resource != "pods"
    )


def _can_do_without(
    inputs: Inputs, demand: Demand, ready: Mapping[tuple[str, str], int], entry: LentNode
) -> bool:
    """Returns whether a queue can do without a node: each limit still covers its use, and at least
    `min_nodes` nodes remain. `ready` counts nodes by namespace and type."""
    for path in present_lineage(entry.queue, inputs.limits):
        limit = inputs.limits[path]
        used = demand.queues[path].used if path in demand.queues else {}
        for resource in limit.max.keys() - limit.fixed:
            if used.get(resource, 0) > limit.max[resource] - entry.counted.get(resource, 0):
                return False
    policy = inputs.config.namespaces.get(entry.namespace)
    of_namespace = sum(count for (name, _), count in ready.items() if name == entry.namespace)
    of_type = ready[entry.namespace, entry.node_type]
    return (
        policy is not None
        and of_namespace > policy.min_nodes
        and of_type > policy.min_of_type.get(entry.node_type, 0)
    )


RULE = Rule(
    leave=Leave(
        word=CONSOLIDATED,
        reason="less than half of it was used, and other nodes have free capacity for its pods",
        find_nodes=_leaving,
        is_over=_is_over,
    ),
    adds=_add,
)
