"""The choice of lent nodes that can be released, and of cordoned nodes that must serve again.

The rule: a node can be released if and only if `size_queues` needs nothing without it that it does
not need with it. So no release causes a new lend: both have the same trigger. Nor is a node
released if that frees a cap under which a queue would get an equal node. Pods that are too young to
request a node do keep one.

Pods that stayed pending as long as a node was idle, although it had capacity and quota for them, or
although no such node helps them, wait for something else. They keep no node. If a node is released
in spite of them, they are recorded (`Releases.stalled`, for the registry), so that they request
none either until exactly these pods change.

    choose_releases(config, demand, queues, node_supply, Candidates(...)) -> Releases
    judge_fenced(config, demand, queues, node_supply, fenced) -> {node: NodeVerdict}"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import datetime

import msgspec

from dnm.demand.demand import NO_USE, Demand, QueueDemand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import LentNode
from dnm.model.observed import StalledPods
from dnm.model.printable import count_of
from dnm.model.quantity import amount_text
from dnm.model.queue_path import present_lineage
from dnm.model.reason import Reason
from dnm.model.value import Resources, Value
from dnm.model.verdict import NodeVerdict, Objection, Verdict
from dnm.sizing.caps import UNBOUNDED, ConversionBudget, NodePool, pool_of
from dnm.sizing.node_supply import NodeSupply, is_sound
from dnm.sizing.sizing import count_young_pods, size_queues
from dnm.sizing.stalled import find_stalled, without_stalled


class _QuotaInUse(Objection):
    """The objection that an idle node must stay, since pods on other nodes use its quota."""


class Candidates(Value):
    """The serving nodes that may be released: they have been idle for their whole idle time, and no
    command keeps them. `at_most` is how many may be released in this run, `budget` how many nodes
    could be lent now. `are_early`: the idle time is not over, e.g. for a move."""

    names: tuple[str, ...]
    at_most: int
    budget: ConversionBudget = UNBOUNDED
    are_early: bool = False


class Releases(Value):
    """The nodes to release, in order (`go`), and the decision about each candidate (`verdicts`).
    `stalled`: pods to record as stalled. `quota_in_use`: candidates with quota that pods elsewhere
    use. `incomplete`: queues with Workloads for which too few nodes can be lent."""

    go: tuple[str, ...]
    verdicts: Mapping[str, NodeVerdict]
    stalled: Mapping[str, StalledPods] = {}
    quota_in_use: frozenset[str] = frozenset()
    incomplete: frozenset[str] = frozenset()


def choose_releases(
    config: Config,
    demand: Demand,
    queues: Mapping[str, QueueLimits],
    node_supply: NodeSupply,
    candidates: Candidates,
) -> Releases:
    """Decides which idle nodes no queue needs. The emptiest of equal nodes, then the latest lent,
    goes first. `queues` and `node_supply` are as for size_queues: limits count every lent node."""
    demand_with_young = count_young_pods(demand)
    inputs = queues, node_supply, candidates.budget
    with_all = RemovalSimulation(config, demand_with_young, *inputs)
    stalled: Mapping[str, Mapping[str, StalledPods]] = {}
    if demand_with_young.groups and not candidates.are_early:
        bounds = _idle_bounds(node_supply, candidates)
        stalled = find_stalled(demand_with_young, node_supply, with_all.base, bounds)
    trial = with_all
    if any(stalled.values()):
        trial = RemovalSimulation(config, without_stalled(demand_with_young, stalled), *inputs)
    spare: list[str] = []
    verdicts: dict[str, NodeVerdict] = {}
    quota_in_use: set[str] = set()
    for rivals in _list_classes(demand, node_supply, candidates, trial.sound):
        asked = rivals[: max(0, candidates.at_most - len(spare))]
        count, objection = trial.count_spare(spare, asked)
        spare += rivals[:count]
        for name in rivals[:count]:
            verdicts[name] = NodeVerdict(
                node=name, verdict=Verdict.REVERT, reason=Reason.IDLE_LONG_ENOUGH
            )
        for name in rivals[count:]:
            why = objection and _reason_to_keep(config, node_supply, name, spare, objection)
            why = why or Objection(reason=Reason.BUDGET)
            if isinstance(why, _QuotaInUse):
                quota_in_use.add(name)
            verdicts[name] = NodeVerdict(
                node=name, verdict=Verdict.KEEP, reason=why.reason, detail=why.detail
            )
    remembered: dict[str, StalledPods] = {}
    if any(stalled.values()) and with_all.objection(spare):
        # Without these entries the nodes would be needed again at once.
        for queue in {node_supply.lent[name].queue for name in spare}:
            remembered |= stalled.get(queue, {})
    incomplete = frozenset(name for name, of in with_all.base.queues.items() if of.incomplete)
    return Releases(go=tuple(spare), verdicts=verdicts, stalled=remembered,
                    quota_in_use=frozenset(quota_in_use), incomplete=incomplete)  # fmt: skip


def judge_fenced(
    config: Config,
    demand: Demand,
    queues: Mapping[str, QueueLimits],
    node_supply: NodeSupply,
    fenced: Mapping[str, LentNode],
    budget: ConversionBudget = UNBOUNDED,
) -> dict[str, NodeVerdict]:
    """Decides about nodes that are cordoned but not yet passed to the converter. A node is kept if
    pods landed on it, or if its queue would need or get another node like it; else it is returned.

    `fenced` nodes are in NodeSupply.leaving, and not in the limits. They are still lent, so a kept
    one needs no free place under a cap, and takes no node that completes a Workload."""
    budget = budget.changed(map(pool_of, fenced.values()), 1) if demand.workloads else budget
    sizing = size_queues(config, count_young_pods(demand), queues, node_supply, budget)
    wanted, granted = sizing.wanted(), sizing.granted()
    wanted = {p: max(wanted.get(p, 0), granted.get(p, 0)) for p in {**wanted, **granted}}
    verdicts: dict[str, NodeVerdict] = {}
    work = {name: demand.nodes.get(name, NO_USE).work_pods for name in fenced}
    for name in sorted(fenced, key=lambda name: (-work[name], str(fenced[name].since), name)):
        entry = fenced[name]
        pool, verdict, reason, detail = pool_of(entry), Verdict.REVERT, Reason.FENCED, ""
        if work[name]:
            verdict, reason = Verdict.KEEP, Reason.DEMAND_RETURNED
            detail = f"{count_of(work[name], 'pod')} landed on it before the fence"
        elif wanted.get(pool, 0) > 0:
            verdict, reason = Verdict.KEEP, Reason.DEMAND_RETURNED
            more = count_of(wanted[pool], "node")
            detail = f"{entry.queue} needs {more} of type {entry.node_type}"
        if verdict is Verdict.KEEP:
            wanted[pool] = wanted.get(pool, 0) - 1
        verdicts[name] = NodeVerdict(node=name, verdict=verdict, reason=reason, detail=detail)
    return verdicts


def _list_classes(
    demand: Demand, node_supply: NodeSupply, candidates: Candidates, sound: Set[str]
) -> list[list[str]]:
    """Returns the candidates in lists of equal queue, namespace and type. Each is in the order of
    release. The list that contains the node with the longest idle time is first."""
    classes: dict[NodePool, list[str]] = {}
    for name in candidates.names:
        classes.setdefault(pool_of(node_supply.lent[name]), []).append(name)
    for names in classes.values():
        names.sort()
        names.sort(key=lambda name: node_supply.lent[name].since, reverse=True)
        names.sort(key=lambda name: demand.nodes.get(name, NO_USE).used.get("cpu", 0))
        names.sort(key=sound.__contains__)  # an unsound node is released first
    return sorted(
        classes.values(),
        key=lambda names: min(str(node_supply.lent[name].idle_since) for name in names),
    )


def _reason_to_keep(
    config: Config, node_supply: NodeSupply, name: str, spare: Sequence[str], objection: Objection
) -> Objection:
    """Returns the reason to keep an idle node: min_nodes of its namespace, or else `objection`."""
    entry = node_supply.lent[name]
    policy = config.namespaces.get(entry.namespace)
    ready = Counter(
        incoming.node_type
        for incoming in node_supply.incoming
        if incoming.namespace == entry.namespace
    )
    ready.update(
        lent_node.node_type
        for node, lent_node in node_supply.lent.items()
        if lent_node.namespace == entry.namespace and node not in spare
    )
    return keeps_ready(policy, entry, ready) or objection


def keeps_ready(
    policy: NamespacePolicy | None, entry: LentNode, ready: Counter[str]
) -> Objection | None:
    """Returns the objection that `min_nodes` keeps a node of the namespace, or None. `ready` has
    the number of ready nodes of the namespace by type, including this one."""
    if policy is None or not (
        ready.total() <= policy.min_nodes
        or ready[entry.node_type] <= policy.min_of_type.get(entry.node_type, 0)
    ):
        return None
    detail = policy.min_nodes_by or f"min_nodes of {entry.namespace} is {policy.min_nodes}"
    return Objection(reason=Reason.KEPT_READY, detail=detail)


def _idle_bounds(node_supply: NodeSupply, candidates: Candidates) -> dict[str, datetime]:
    """Returns for each queue the time since which all of its candidates for a release are idle."""
    bounds: dict[str, datetime] = {}
    for name in candidates.names:
        node = node_supply.lent[name]
        if node.idle_since:
            bounds[node.queue] = max(node.idle_since, bounds.get(node.queue, node.idle_since))
    return bounds


# --- simulated removal --------------------------------------------------------------------------


class RemovalSimulation:
    """A simulation of the release of lent nodes. It compares what the queues need with and without
    the nodes. A release must cause no further need, and no limit may fall below its use: otherwise
    the next small pod would cause a new lend."""

    def __init__(
        self,
        config: Config,
        demand: Demand,
        queues: Mapping[str, QueueLimits],
        node_supply: NodeSupply,
        budget: ConversionBudget,
    ) -> None:
        self._config, self._demand, self._queues = config, demand, queues
        self._node_supply, self._budget, lent = node_supply, budget, node_supply.lent
        self.sound = {
            node.name
            for node in node_supply.nodes
            if node.name in lent and is_sound(config, node, lent[node.name].node_type)
        }
        self.base = size_queues(config, demand, queues, node_supply, budget)
        if demand.workloads:
            from dnm.sizing.workloads import drop_incomplete

            self._demand = drop_incomplete(demand, self.base)

    def count_spare(
        self, removed: Sequence[str], rivals: Sequence[str]
    ) -> tuple[int, Objection | None]:
        """Returns how many of `rivals`, in order, can be released in addition to `removed`, and why
        not one more. It tries all of them first, and then searches by halving."""
        if not rivals:
            return 0, None
        objection = self.objection([*removed, *rivals])
        if not objection:
            return len(rivals), None
        low, high = 0, len(rivals) - 1
        while low < high:
            middle = (low + high + 1) // 2
            refusal = self.objection([*removed, *rivals[:middle]])
            if refusal:
                objection, high = refusal, middle - 1
            else:
                low = middle
        return low, objection

    def objection(self, names: Sequence[str]) -> Objection | None:
        """Returns the objection that these nodes' release causes a need or a low limit, or None."""
        limits = self._limits_without(names)
        for path, resource, _ in self._fallen(limits, names, lambda of: of.largest_gang):
            if limits[path].max[resource] < 0:
                return _needed(f"the limit of {path} does not count all of its nodes yet")
            return _needed(f"a gang application of {path} requests more {resource} at once")
        supply, config, base = self._node_supply, self._config, self.base
        own = {name: pool_of(supply.lent[name]) for name in names}
        node_supply = msgspec.structs.replace(
            supply,
            lent={name: node for name, node in supply.lent.items() if name not in own},
            leaving=supply.leaving | own.keys(),
        )
        budget = self._budget.changed(own.values(), 1)
        sizing = size_queues(config, self._demand, limits, node_supply, budget)
        sound = {own[name] for name in self.sound & own.keys()}  # a dead one only frees quota
        granted = {pool: count for pool, count in sizing.granted().items() if pool in sound}
        for after, before in ((sizing.wanted(), base.wanted()), (granted, base.granted())):
            for pool, count in after.items():
                if count > before.get(pool, 0):
                    return _needed(sizing.verdicts[pool.queue].sentence)
        for path, resource, amount in self._fallen(limits, names, lambda of: of.used):
            has = amount_text(resource, limits[path].max[resource])
            used = amount_text(resource, amount)
            detail = f"{path} would have {has}, and {used} is used"
            return _QuotaInUse(reason=Reason.NEEDED, detail=detail)
        return None

    def _fallen(
        self,
        limits: Mapping[str, QueueLimits],
        names: Sequence[str],
        least_of: Callable[[QueueDemand], Resources],
    ) -> Iterator[tuple[str, str, int]]:
        """Yields (path, resource, minimum) of each limit that would fall below its minimum without
        these nodes. Limits that are below it already are left out."""
        queues = (self._node_supply.lent[name].queue for name in names)
        for path in dict.fromkeys(
            name for queue in queues for name in present_lineage(queue, limits)
        ):
            least = least_of(self._demand.queues[path]) if path in self._demand.queues else {}
            for resource, limit in limits[path].max.items():
                if limit < least.get(resource, 0) <= self._queues[path].max[resource]:
                    yield path, resource, least.get(resource, 0)

    def _limits_without(self, names: Sequence[str]) -> dict[str, QueueLimits]:
        limits = {path: dict(queue.max) for path, queue in self._queues.items()}
        for name in names:
            entry = self._node_supply.lent[name]
            for path in present_lineage(entry.queue, self._queues):
                for resource in limits[path].keys() - self._queues[path].fixed:
                    limits[path][resource] -= entry.counted.get(resource, 0)
        return {
            path: msgspec.structs.replace(queue, max=limits[path])
            for path, queue in self._queues.items()
        }


def _needed(why: str) -> Objection:
    return Objection(reason=Reason.NEEDED, detail=why)
