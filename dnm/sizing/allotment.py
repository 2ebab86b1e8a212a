"""The allocation of nodes to queues in turn: each queue gets what the previous ones left.

An `Allotment` holds the free capacity, limits and budget of one decision and is discarded with it.
`serve` decides for one queue and reserves the result: used capacity, used quota, and limits that
the granted nodes raise (for siblings too, through shared ancestors)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy

import msgspec

from dnm.demand.constraints import needs_single_domain
from dnm.demand.demand import Demand
from dnm.model.cluster import QueueLimits
from dnm.model.config import NamespacePolicy
from dnm.sizing.backlog import QueueBacklog, Schedulable
from dnm.sizing.caps import UNBOUNDED, Bound, ConversionBudget, NodePool, budget_of
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.packing import least_nodes
from dnm.sizing.packing_input import PackingInput
from dnm.sizing.packing_problem import Bin, BinType, Packing, Problem
from dnm.sizing.queue_sizing import QueueSizing, UnschedulablePods
from dnm.sizing.quota import Groups, Quota, Shortage

MOST_NEW_NODES = 10_000
"""The most new nodes counted for one queue: a tenant can request any number."""


class Allotment:
    """The free capacity, limits and budget of nodes while nodes are allocated to queues."""

    def __init__(
        self,
        demand: Demand,
        queues: Mapping[str, QueueLimits],
        node_supply: NodeSupply,
        packing_input: PackingInput,
    ) -> None:
        self._packing_input = packing_input
        self._bins = list(packing_input.bins)
        self._quota = Quota(demand, queues)
        for incoming, size in zip(node_supply.incoming, packing_input.incoming_sizes, strict=True):
            self._quota.grow(incoming.queue, size)
        self._lent = Counter((node.namespace, node.node_type) for node in node_supply.lent.values())
        self._lent.update(
            (incoming.namespace, incoming.node_type) for incoming in node_supply.incoming
        )
        self._budget = UNBOUNDED

    def serve_within(
        self, budget: ConversionBudget, backlogs: Sequence[QueueBacklog]
    ) -> list[QueueSizing]:
        """Allocates nodes to these queues in order, no more than the budget allows. The result also
        has their need without a budget. Namespaces of equal priority share scarce nodes."""
        self._budget = budget
        names = {option.pool.namespace for backlog in backlogs for option in backlog.options}
        if len(names) > 1:
            return list(self._serve_shares(backlogs))
        return [self._serve_share(backlog, {}) for backlog in backlogs]

    def _serve_shares(self, backlogs: Sequence[QueueBacklog]) -> Iterator[QueueSizing]:
        from dnm.sizing.fair_shares import bounds_of_shares, divide_fairly, list_scarce_bounds

        claims = self._list_claims(backlogs)
        priorities = {backlog.queue: backlog.priority for backlog in backlogs}
        shares: Mapping[NodePool, int] | None = None
        for backlog in backlogs:
            if shares is None:
                scarce = list_scarce_bounds(self._budget, claims)
                shares = divide_fairly(self._budget, claims, self._lent, priorities)
            sizing = self._serve_share(backlog, bounds_of_shares(scarce, shares, backlog.queue))
            yield sizing
            own = {pool for pool in claims if pool.queue == backlog.queue}
            claims = {pool: count for pool, count in claims.items() if pool not in own}
            if sum(sizing.granted.values()) < sum(shares.get(pool, 0) for pool in own):
                shares = None  # the other namespaces share the rest

    def _list_claims(self, backlogs: Sequence[QueueBacklog]) -> dict[NodePool, int]:
        """Returns how many nodes of each pool (queue, namespace, type) the budget allows if no
        earlier queue gets new nodes. Existing capacity goes to the queues in order."""
        claims: dict[NodePool, int] = {}
        rest = self._copy(budget_of([Bound(name="new nodes", left=0)]))
        for backlog in backlogs:
            claims |= rest._copy(self._budget).serve(backlog).wanted
            rest.serve(backlog)
        return claims

    def _serve_share(
        self, backlog: QueueBacklog, shares: Mapping[str, tuple[Bound, Bound]]
    ) -> QueueSizing:
        """Allocates nodes to a queue within its shares of scarce bounds (upper bounds on nodes). In
        `spent` of the result, a bound that is itself used up replaces its share."""
        wanted, entire = self._copy(UNBOUNDED).serve(backlog), self._budget
        self._budget = ConversionBudget(
            bounds=(*entire.bounds, *(share for share, _ in shares.values())),
            left={**entire.left, **{name: share.left for name, (share, _) in shares.items()}},
        )
        sizing = self.serve(backlog)
        left = {name: self._budget.left[name] for name in entire.left}
        self._budget = msgspec.structs.replace(entire, left=left)
        is_of_spent = {name for name, (_, bound) in shares.items() if bound in sizing.spent}
        spent = tuple(bound for bound in sizing.spent if bound.name not in is_of_spent)
        fields = {"granted": sizing.wanted, "spent": spent, "served": sizing.served}
        return msgspec.structs.replace(wanted, **fields)

    def _copy(self, budget: ConversionBudget) -> Allotment:
        other = copy(self)
        other._budget = budget
        other._bins = list(self._bins)
        other._quota = self._quota.copy()
        other._lent = Counter(self._lent)
        return other

    def serve(self, backlog: QueueBacklog) -> QueueSizing:
        """Allocates all nodes that one queue needs and the budget allows, and reserves them for
        it."""
        fits: dict[str, int] = {}
        unschedulable = self._place_unschedulable(backlog, fits)
        groups = self._count_helpable(backlog, unschedulable)
        packing = least_nodes(self._problem(backlog, groups))
        groups = _drop_domain_excess(groups, packing, unschedulable)
        has_quota_now = self._quota.admit(groups, self._quota.now)
        has_quota = self._quota.admit(groups, self._quota.limits)
        for (group, _), admitted, placed in zip(groups, has_quota_now, packing.placed, strict=True):
            fits[group.fingerprint] = min(admitted, self._count_on_existing(placed))
        shortages = list(self._quota.shortages(backlog.queue, groups))
        opened = list(packing.opened)
        self._add_for_quota(backlog, groups, shortages, opened)
        self._add_for_min_nodes(backlog, opened)
        pools = Counter(backlog.options[option].pool for option in sorted(opened))
        pods = sum(count for _, count in groups)
        on_bins = [
            pair for placed in packing.placed for pair in placed if pair[0] < len(self._bins)
        ]
        below = [policy for policy, _ in self._below_min_nodes(backlog, ())]
        served = self._reserve(backlog, groups, packing, opened)
        return QueueSizing(
            queue=backlog.queue,
            priority=backlog.priority,
            wanted=pools,
            granted=pools,
            without_capacity=pods - sum(count for _, count in on_bins),
            no_quota=pods - sum(has_quota),
            opened_for_capacity=len(packing.opened),
            shortage=min(shortages, key=lambda short: short.is_early, default=None),
            below_min_nodes=tuple(
                policy.min_nodes_by or f"min_nodes of {policy.name}" for policy in below
            ),
            relies_on_incoming=has_quota_now != has_quota
            or any(number >= self._packing_input.existing for number, _ in on_bins),
            waits_since=_waits_since(groups, fits),
            fits=fits,
            unschedulable=tuple(unschedulable),
            spent=self._spent(backlog),
            fingerprint=backlog.fingerprint,
            served=served,
        )

    def _count_helpable(
        self, backlog: QueueBacklog, unschedulable: list[UnschedulablePods]
    ) -> Groups:
        """Returns the groups of pods that new nodes can help, each with the number of pods that fit
        the limits that nodes do not raise. Adds the other pods to `unschedulable`."""
        groups = [
            (schedulable.group, schedulable.group.count) for schedulable in backlog.schedulable
        ]
        brought = {
            schedulable.group.fingerprint: frozenset(
                resource
                for option in schedulable.options
                for resource, amount in backlog.options[option].size.items()
                if amount > 0
            )
            for schedulable in backlog.schedulable
        }
        answers = self._quota.admit_under_unraisable_limits(backlog.queue, groups, brought)
        for (group, total), (count, why) in zip(groups, answers, strict=True):
            if count < total:
                unschedulable.append(UnschedulablePods(group=group, count=total - count, why=why))
        return [(group, count) for (group, _), (count, _) in zip(groups, answers, strict=True)]

    # --- quota -------------------------------------------------------------------------------

    def _add_for_quota(
        self,
        backlog: QueueBacklog,
        groups: Groups,
        shortages: Sequence[Shortage],
        opened: list[int],
    ) -> None:
        """Adds to `opened` the new nodes that raise each limit that is too low, best ones first."""
        for short in shortages:
            resource = short.resource
            missing = short.missing
            missing -= sum(backlog.options[option].size.get(resource, 0) for option in opened)
            for option in _options_for(backlog, groups, resource):
                size = backlog.options[option].size.get(resource, 0)
                if size > 0 and missing > 0:
                    count = min(-(-missing // size), self._left_of(backlog, option, opened))
                    opened += [option] * count
                    missing -= size * count

    # --- min_nodes ---------------------------------------------------------------------------

    def _below_min_nodes(
        self, backlog: QueueBacklog, opened: Iterable[int]
    ) -> Iterator[tuple[NamespacePolicy, str]]:
        """Yields, for each node that a namespace needs to reach its min_nodes, the settings of the
        namespace, and the required node type (empty: any)."""
        new = Counter(
            (pool.namespace, pool.node_type)
            for pool in (backlog.options[option].pool for option in opened)
        )
        counts = self._lent + new
        for policy in backlog.policies:
            missing = 0
            for name, least in policy.min_of_type.items():
                lacks = max(least - counts[policy.name, name], 0)
                missing += lacks
                yield from [(policy, name)] * lacks
            current = sum(
                count for (namespace, _), count in counts.items() if namespace == policy.name
            )
            yield from [(policy, "")] * (policy.min_nodes - current - missing)

    def _add_for_min_nodes(self, backlog: QueueBacklog, opened: list[int]) -> None:
        for policy, node_type in list(self._below_min_nodes(backlog, opened)):
            for option, expected in enumerate(backlog.options):
                pool = expected.pool
                is_its_own = pool.namespace == policy.name and node_type in ("", pool.node_type)
                if is_its_own and self._left_of(backlog, option, opened) > 0:
                    opened.append(option)
                    break

    # --- budget ------------------------------------------------------------------------------

    def _spent(self, backlog: QueueBacklog) -> tuple[Bound, ...]:
        left = self._budget.left
        held = [
            bound for option in backlog.options for bound in self._budget.bounds_of(option.pool)
        ]
        return tuple(
            bound for bound in self._budget.bounds if left[bound.name] <= 0 and bound in held
        )

    def _left_of(self, backlog: QueueBacklog, option: int, opened: Sequence[int]) -> int:
        """Returns how many more new nodes of a kind (`option`) the budget allows, after the nodes
        in `opened`, which this queue already gets and the budget does not count yet."""
        left = MOST_NEW_NODES - len(opened)
        bounds = [self._budget.bounds_of(expected.pool) for expected in backlog.options]
        for bound in bounds[option]:
            taken = sum(bound in bounds[other] for other in opened)
            left = min(left, self._budget.left[bound.name] - taken)
        return max(0, left)

    # --- space -------------------------------------------------------------------------------

    def _place_unschedulable(
        self, backlog: QueueBacklog, fits: dict[str, int]
    ) -> list[UnschedulablePods]:
        """Places pods that no new node helps on existing nodes. Returns those without a place."""
        if not backlog.unschedulable:
            return []
        totals = [(group, group.count) for group, _ in backlog.unschedulable]
        admitted = self._quota.admit(totals, self._quota.limits)
        groups = [(group, count) for (group, _), count in zip(totals, admitted, strict=True)]
        alone = msgspec.structs.replace(
            backlog,
            options=(),
            schedulable=tuple(Schedulable(group=group, options=()) for group, _ in groups),
        )
        packing = least_nodes(self._problem(alone, groups))
        self._reserve(alone, groups, packing, [])
        remaining = []
        for (group, why), placed in zip(backlog.unschedulable, packing.placed, strict=True):
            fits[group.fingerprint] = self._count_on_existing(placed)
            missing = group.count - sum(count for _, count in placed)
            if missing:
                remaining.append(UnschedulablePods(group=group, count=missing, why=why))
        return remaining

    def _problem(
        self, backlog: QueueBacklog, groups: Groups, opened: Sequence[int] | None = None
    ) -> Problem:
        """Returns the packing problem of a queue. `opened`, if given, are the only new nodes."""
        left = MOST_NEW_NODES if opened is None else 0
        return Problem(
            items=tuple(
                msgspec.structs.replace(
                    self._packing_input.items[group.fingerprint],
                    count=count,
                    bin_types=schedulable.options,
                )
                for schedulable, (group, count) in zip(backlog.schedulable, groups, strict=True)
            ),
            bins=tuple(self._bins),
            bin_types=tuple(
                BinType(
                    free=self._packing_input.vector(expected.free),
                    budgets=("", *(bound.name for bound in self._budget.bounds_of(expected.pool))),
                )
                for expected in backlog.options
            ),
            budgets={"": left, **self._budget.left},
            opened=tuple(opened or ()),
        )

    def _count_on_existing(self, placed: Iterable[tuple[int, int]]) -> int:
        """Returns how many pods of a group are placed on existing Nodes, not on incoming ones."""
        return sum(count for number, count in placed if number < self._packing_input.existing)

    # --- reservation -------------------------------------------------------------------------

    def _reserve(
        self, backlog: QueueBacklog, groups: Groups, packing: Packing, opened: Sequence[int]
    ) -> dict[str, int]:
        """Takes granted nodes from the budget and places pods; returns their number by group."""
        granted = [backlog.options[option] for option in opened]
        self._budget = self._budget.changed((expected.pool for expected in granted), -1)
        for expected in granted:
            self._quota.grow(backlog.queue, expected.size)
            self._lent[expected.pool.namespace, expected.pool.node_type] += 1
        admitted = self._quota.admit(groups, self._quota.limits)
        if any(packing.left) or admitted != [count for _, count in groups]:
            groups = [(group, count) for (group, _), count in zip(groups, admitted, strict=True)]
            packing = least_nodes(self._problem(backlog, groups, opened))
        self._bins += [
            Bin(
                free=self._packing_input.vector(expected.free),
                node_class=self._packing_input.node_classes.add(expected.traits),
            )
            for expected in granted
        ]
        served: dict[str, int] = {}
        for (group, _), placed in zip(groups, packing.placed, strict=True):
            served[group.fingerprint] = sum(count for _, count in placed)
            request = self._packing_input.items[group.fingerprint].request
            for number, count in placed:
                item = self._bins[number]
                free = tuple(
                    have - ask * count for have, ask in zip(item.free, request, strict=True)
                )
                self._bins[number] = Bin(free=free, node_class=item.node_class)
            self._quota.use([(group, served[group.fingerprint])])
        return served


def _options_for(backlog: QueueBacklog, groups: Groups, resource: str) -> list[int]:
    """Returns the kinds of new nodes that can raise a limit: those that help pods that request the
    resource, or all if no pod requests it."""
    asking = {
        option
        for schedulable, (group, count) in zip(backlog.schedulable, groups, strict=True)
        if count and group.request.get(resource, 0)
        for option in schedulable.options
    }
    return sorted(asking) if asking else list(range(len(backlog.options)))


def _drop_domain_excess(
    groups: Groups, packing: Packing, unschedulable: list[UnschedulablePods]
) -> Groups:
    """Returns the groups without the pods that do not fit, although they must share a host or zone.
    Further nodes cannot help these pods, so they are added to `unschedulable`."""
    why = "has an affinity that one more node can't satisfy"
    kept = []
    for (group, count), missing in zip(groups, packing.left, strict=True):
        if missing and needs_single_domain(group.shape, group.namespace):
            unschedulable.append(UnschedulablePods(group=group, count=missing, why=why))
            count -= missing
        kept.append((group, count))
    return kept


def _waits_since(groups: Groups, fits: Mapping[str, int]) -> str:
    """Returns the creation time of the oldest pod without capacity or quota; empty without one."""
    lacking = (group.oldest for group, count in groups if count > fits[group.fingerprint])
    return min(lacking, default="")
