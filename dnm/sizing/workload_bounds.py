"""Upper bounds of what Workloads can get together: the capacity of nodes, and quota.

The rule: a Workload beyond a bound cannot be completed, however pods are placed, so it needs no
trial. A bound adds up existing, incoming and new nodes. It is the amount of a resource, the number
of pods that fill more than half of a node, the quota of a queue, or the number of equal pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from dnm.demand.demand import Demand, QueueDemand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.queue_path import is_under, present_lineage
from dnm.sizing.allotment import MOST_NEW_NODES
from dnm.sizing.backlog import describe_mismatch
from dnm.sizing.caps import ConversionBudget, NodePool, describe_bounds
from dnm.sizing.node_supply import ExpectedNode, NodeSupply
from dnm.sizing.packing_input import make_packing_input
from dnm.sizing.quota import Quota

Axis: TypeAlias = tuple[str, str]
"""A bound: _SPACE, _LARGE or the path of a queue with quota, and the resource."""
_SPACE, _LARGE = "space", "large"
Least: TypeAlias = Mapping[str, int]
"""Fingerprint of a group of pods -> the smallest number of pods that is admitted."""


class WorkloadBounds:
    """The bounds of one decision, and what the chosen Workloads take of them. `names`: the groups
    with pods of Workloads."""

    def __init__(
        self,
        config: Config,
        demand: Demand,
        queues: Mapping[str, QueueLimits],
        node_supply: NodeSupply,
        budget: ConversionBudget,
        names: Collection[str],
    ) -> None:
        self._input = make_packing_input(config, demand, node_supply)
        self._budget, self._queues = budget, queues
        self._groups = {group.fingerprint: group for group in demand.groups}
        usable = frozenset[int]().union(*(self._input.items[name].node_classes for name in names))
        self._bins = Counter(item for item in self._input.bins if item.node_class in usable)
        self._new = [node for nodes in self._input.options.values() for node in nodes]
        self._there: dict[Axis, int] = {}  # without new nodes
        self._most: dict[Axis, int] = {}
        self._taken: Counter[Axis] = Counter()
        self._half: dict[str, int] = {}
        self._of_pods: dict[str, dict[Axis, int]] = {}
        self._of_groups: dict[str, tuple[int, int, int]] = {}
        for number, name in enumerate(self._input.axes):
            free = [(item.free[number], count) for item, count in self._bins.items()]
            half = max((node.free.get(name, 0) for node in self._new), default=0) // 2 + 1
            self._half[name] = half
            self._add((_SPACE, name), sum(amount * count for amount, count in free), self._new)
            self._add((_LARGE, name), sum(amount // half * n for amount, n in free), self._new)
        self._add_quotas(demand, node_supply)

    def _add(self, axis: Axis, there: int, new: Sequence[ExpectedNode]) -> None:
        self._there[axis] = there
        self._most[axis] = there + self._count_new(new, lambda node: _amount_of(node, axis))

    def _add_quotas(self, demand: Demand, node_supply: NodeSupply) -> None:
        """Adds the limits that new nodes raise."""
        quota = Quota(demand, self._queues)
        for incoming, size in zip(node_supply.incoming, self._input.incoming_sizes, strict=True):
            quota.grow(incoming.queue, size)
        for path, limits in quota.limits.items():
            new = [node for node in self._new if is_under(node.pool.queue, path)]
            used = demand.queues.get(path, QueueDemand(queue=path)).used
            raised = {name for node in new for name, amount in node.size.items() if amount > 0}
            for name in limits.keys() & raised - self._queues[path].fixed:
                self._add((path, name), limits[name] - used.get(name, 0), new)

    def _count_new(
        self, nodes: Sequence[ExpectedNode], amount_of: Callable[[ExpectedNode], int]
    ) -> int:
        """Returns the largest sum of an amount over new nodes that the budget allows."""
        by_type: dict[str, list[ExpectedNode]] = {}
        for node in nodes:
            by_type.setdefault(node.pool.node_type, []).append(node)
        ranked = [(max(map(amount_of, some)), name) for name, some in by_type.items()]
        total, left = 0, self._left([node.pool for node in nodes])
        for amount, name in sorted(ranked, reverse=True):
            count = min(left, self._left([node.pool for node in by_type[name]]))
            total, left = total + amount * count, left - count
        return total

    def _left(self, pools: Sequence[NodePool]) -> int:
        """Returns the largest number of new nodes of these pools that the budget allows."""
        names = [{bound.name for bound in self._budget.bounds_of(pool)} for pool in pools]
        left = self._budget.left
        each = (min((left[name] for name in some), default=MOST_NEW_NODES) for some in names)
        shared = set.intersection(*names) if names else set()
        return max(0, min(sum(each), *(left[name] for name in shared), MOST_NEW_NODES * len(pools)))

    def _need_of(self, least: Least) -> Counter[Axis]:
        need: Counter[Axis] = Counter()
        for name, count in least.items():
            if name not in self._of_pods:
                self._of_pods[name] = self._measure_pod(name)
            for axis, amount in self._of_pods[name].items():
                need[axis] += amount * count
        return need

    def _measure_pod(self, name: str) -> dict[Axis, int]:
        group, own = self._groups[name], {}
        paths = {_SPACE, *present_lineage(group.queue, self._queues)}
        for kind, resource in self._there:
            if kind in paths:
                own[kind, resource] = group.request.get(resource, 0)
            elif kind == _LARGE:
                own[kind, resource] = int(group.request.get(resource, 0) >= self._half[resource])
        return {axis: amount for axis, amount in own.items() if amount}

    def _measure_group(self, name: str) -> tuple[int, int, int]:
        """Returns how many equal pods fit on existing and incoming nodes, how many with new nodes,
        and how many on a new node of their queue."""
        if name in self._of_groups:
            return self._of_groups[name]
        group, item = self._groups[name], self._input.items[name]
        asks = [(number, ask) for number, ask in enumerate(item.request) if ask > 0]

        def fit(free: Sequence[int]) -> int:
            return min((free[number] // ask for number, ask in asks), default=MOST_NEW_NODES)

        def fit_new(node: ExpectedNode) -> int:
            return fit(self._input.vector(node.free))

        on_bins = sum(
            fit(some.free) * count
            for some, count in self._bins.items()
            if some.node_class in item.node_classes
        )
        useful = [node for node in self._new if not describe_mismatch(group, node)]
        own = [node for node in useful if is_under(group.queue, node.pool.queue)]
        most = on_bins + self._count_new(useful, fit_new)
        self._of_groups[name] = on_bins, most, max(map(fit_new, own), default=0)
        return self._of_groups[name]

    def take(self, least: Least) -> None:
        """Adds a Workload to the chosen ones."""
        self._taken.update(self._need_of(least))

    def allow(self, many: Sequence[Least]) -> bool:
        """Returns whether no bound excludes these Workloads along with the chosen ones."""
        need: Counter[Axis] = Counter()
        for least in many:
            need.update(self._need_of(least))
        if any(self._taken[axis] + amount > self._most[axis] for axis, amount in need.items()):
            return False
        return all(
            self._measure_group(name)[1] >= count
            for name, count in (many[0].items() if len(many) == 1 else ())
        )

    def find_misfits(self, least: Least) -> set[str]:
        """Returns the groups of a Workload that lack capacity, and that no new node is for."""
        measured = {name: self._measure_group(name) for name in least}
        return {name for name, (on_bins, _, on_new) in measured.items()
                if not on_new and on_bins < least[name]}  # fmt: skip

    def describe_lack(self, least: Least) -> str:
        """Returns how many nodes a Workload beyond a bound needs besides the chosen ones, and why
        it cannot get them; of the first type that is for its pods."""
        names = [name for name, count in least.items() if count]
        queue = self._groups[names[0]].queue
        nodes = [node for node in self._new if is_under(queue, node.pool.queue)]
        if not nodes:
            return "has a queue without node types"
        fitting = (node for node in nodes if not describe_mismatch(self._groups[names[0]], node))
        node = next(fitting, nodes[0])
        need, before, after = self._need_of(least), 0, 0
        for axis, there in self._there.items():
            if (amount := _amount_of(node, axis)) > 0:
                before = max(before, -(-(self._taken[axis] - there) // amount))
                after = max(after, -(-(self._taken[axis] + need[axis] - there) // amount))
        for name in names:
            on_bins, _, on_new = self._measure_group(name)
            after = max(after, -(-(least[name] - on_bins) // on_new) if on_new else 0)
        bounds = self._budget.bounds_of(node.pool)
        left = self._left([other.pool for other in nodes])
        spent = [bound for bound in bounds if self._budget.left[bound.name] <= left]
        free = max(left - before, 0)
        more = max(after - before, free + 1)
        return f"needs {more} of type {node.pool.node_type}; {describe_bounds(spent, free)}"


def _amount_of(node: ExpectedNode, axis: Axis) -> int:
    """Returns by how much a new node raises the bound `axis`."""
    kind, resource = axis
    if kind == _LARGE:
        return 1
    return max((node.free if kind == _SPACE else node.size).get(resource, 0), 0)
