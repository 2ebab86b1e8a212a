"""The fair division of nodes that are too few for every namespace.

The queue with the higher priority gets nodes first. Between equal priorities each node goes to the
namespace that has the fewest nodes under the bound that is too low, with incoming ones. Between
equal numbers, the order of the claims decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from dnm.model.reason import Reason
from dnm.sizing.caps import Bound, ConversionBudget, NodePool

Claims = Mapping[NodePool, int]
"""The nodes that each pool would get alone, the longest wait first."""

Held = Mapping[tuple[str, str], int]
"""(namespace, node type) -> lent and incoming nodes."""


def divide_fairly(
    budget: ConversionBudget, claims: Claims, held: Held, priorities: Mapping[str, int]
) -> Counter[NodePool]:
    """Returns how many of its claimed nodes each pool (queue, namespace, type) gets."""
    bounds = {pool: budget.bounds_of(pool) for pool in claims}
    scarce = list_scarce_bounds(budget, claims)
    left, shares = dict(budget.left), Counter[NodePool]()
    under = Counter({
        (bound.name, pool.namespace): sum(
            count
            for (namespace, node_type), count in held.items()
            if namespace == pool.namespace and bound.holds_for(node_type, namespace)
        )
        for pool in claims
        for bound in scarce[pool]
    })  # fmt: skip

    def level(pool: NodePool) -> int:
        return max((under[bound.name, pool.namespace] for bound in scarce[pool]), default=0)

    turns = [
        (-priorities.get(pool.queue, 0), level(pool), rank, pool)
        for rank, pool in enumerate(claims)
    ]
    heapify(turns)
    while turns:
        first, before, rank, pool = heappop(turns)
        if shares[pool] >= claims[pool] or any(left[bound.name] <= 0 for bound in bounds[pool]):
            continue
        if before == level(pool):  # another pool of the namespace may have got a node since
            shares[pool] += 1
            for bound in bounds[pool]:
                left[bound.name] -= 1
            for bound in scarce[pool]:
                under[bound.name, pool.namespace] += 1
        heappush(turns, (first, level(pool), rank, pool))
    return shares


def list_scarce_bounds(budget: ConversionBudget, claims: Claims) -> dict[NodePool, list[Bound]]:
    """Returns for each pool its bounds that allow fewer nodes than several namespaces claim."""
    claimed: dict[str, Counter[str]] = {}
    for pool, count in claims.items():
        for bound in budget.bounds_of(pool):
            claimed.setdefault(bound.name, Counter())[pool.namespace] += count
    scarce = {
        name
        for name, counts in claimed.items()
        if len(counts) > 1 and 0 < budget.left[name] < counts.total()
    }
    return {
        pool: [bound for bound in budget.bounds_of(pool) if bound.name in scarce] for pool in claims
    }


def bounds_of_shares(
    scarce: Mapping[NodePool, Sequence[Bound]], shares: Mapping[NodePool, int], queue: str
) -> dict[str, tuple[Bound, Bound]]:
    """Returns (share, bound) by name for each bound on nodes that is too low for all namespaces. A
    share is itself a bound: the nodes that one namespace of the queue gets."""
    by_name: dict[str, tuple[Bound, Bound]] = {}
    for pool, bounds in scarce.items():
        for bound in bounds if pool.queue == queue else ():
            count = sum(
                share
                for other, share in shares.items()
                if other.namespace == pool.namespace
                and bound.holds_for(other.node_type, other.namespace)
            )
            share = Bound(
                name=f"share of namespace {pool.namespace} in {bound.name}",
                left=count,
                reason=Reason.OUTRANKED,
                node_types=bound.node_types,
                namespaces=frozenset((pool.namespace,)),
                why=f"{bound.name} is shared with other namespaces",
            )
            by_name[share.name] = (share, bound)
    return by_name
