"""How many nodes may still be lent: what each cap, the batch side and the rules leave.

The rule: a node of a pool is taken from every bound that holds for its pool. Each bound carries the
words that people read in a verdict. A bound that is not there bounds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode
from dnm.model.reason import Reason, Why
from dnm.model.registry import Registry
from dnm.model.share import Share
from dnm.model.value import Value


class NodePool(NamedTuple):
    """Names what nodes are lent as: those of one pool can stand for each other."""

    queue: str
    namespace: str
    node_type: str


class Bound(Value):
    """Says how many more nodes may be lent: of some types, to some namespaces; None: of any, to
    any. `reason`: why a queue gets none where it leaves none; `why`: what is said of it then, where
    that is not that it is used up."""

    name: str
    left: int
    reason: Why = Reason.CAPPED
    node_types: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    why: str = ""

    def holds_for(self, node_type: str, namespace: str) -> bool:
        """Returns whether such a node counts; one without a type is counted for another namespace
        already, and counts under the cap of this one alone."""
        is_namespace = self.namespaces is None or namespace in self.namespaces
        is_type = self.node_types is None or node_type in self.node_types
        return is_namespace and is_type and (bool(node_type) or self.namespaces is not None)

    @property
    def text(self) -> str:
        """Says that it leaves no more."""
        return self.why or f"{self.name} is used up"


class ConversionBudget(Value):
    """Says how many more nodes each bound allows now; never less than 0. Of several that leave none
    the first says why. `left`: by the bound's name; the bounds themselves have what was at first.
    """

    bounds: tuple[Bound, ...] = ()
    left: Mapping[str, int] = {}

    def bounds_of(self, pool: NodePool) -> list[Bound]:
        """Returns the bounds that hold for nodes of the pool."""
        return [bound for bound in self.bounds if bound.holds_for(pool.node_type, pool.namespace)]

    def changed(self, pools: Iterable[NodePool], by: int) -> ConversionBudget:
        """Returns what is left when one more node of each of these pools is lent (`by` -1), or has
        gone back (1)."""
        left = dict(self.left)
        for pool in pools:
            for bound in self.bounds_of(pool):
                left[bound.name] += by
        return msgspec.structs.replace(self, left=left)

    def covers(self, wanted: Mapping[NodePool, int]) -> bool:
        """Tells whether so many nodes of each pool can be lent, all of them together."""
        asked: Counter[str] = Counter()
        for pool, count in wanted.items():
            for bound in self.bounds_of(pool):
                asked[bound.name] += count
        return all(count <= self.left[name] for name, count in asked.items())


def budget_of(bounds: Iterable[Bound]) -> ConversionBudget:
    """Returns the budget that these bounds are."""
    every = tuple(bounds)
    return ConversionBudget(bounds=every, left={bound.name: bound.left for bound in every})


UNBOUNDED = ConversionBudget()


def pool_of(entry: LentNode) -> NodePool:
    """Returns the pool of a lent node."""
    return NodePool(entry.queue, entry.namespace, entry.node_type)


class CapCount(Value):
    """How many nodes are lent or coming under a cap, how many may be, and the bound that it is."""

    cap: str
    bound: Bound
    lent: int
    max: int


def lent_in(registry: Registry) -> list[tuple[str, str]]:
    """Returns (node type, namespace) of what the registry counts under the caps: lent nodes,
    claimed nodes and conversions under way. One that changes its queue counts for both namespaces,
    since it may go either way: without a type, for the other one."""
    nodes, claimed = registry.nodes, registry.claimed
    lent = [(node.node_type, node.namespace) for node in nodes.values()]
    lent += [("", node.heads_for) for node in nodes.values() if node.heads_for != node.namespace]
    lent += [
        (claim.node_type, claim.namespace) for name, claim in claimed.items() if name not in nodes
    ]
    for request in registry.requests:
        lent += [(request.node_type, request.namespace)] * request.count
    return lent


def count_caps(config: Config, lent: Iterable[tuple[str, str]]) -> list[CapCount]:
    """Counts the lent nodes, each as (node type, namespace), under every cap that is set: of all
    nodes, of each type, of each namespace."""
    found, counts = [], Counter(lent)
    for cap, name, most, of in _caps(config):
        if isinstance(most, int):
            bound = Bound(name=name, left=0, **of)
            there = sum(count for pair, count in counts.items() if bound.holds_for(*pair))
            bound = msgspec.structs.replace(bound, left=max(0, most - there))
            found.append(CapCount(cap=cap, bound=bound, lent=there, max=most))
    return found


def _caps(config: Config) -> Iterator[tuple[str, str, int | Share | None, dict[str, Any]]]:
    """Each cap, the words for it in a verdict, what it is, and what it is of."""
    yield "all", "max_converted_nodes", config.max_converted_nodes, {}
    for name, node_type in config.node_types.items():
        of = {"node_types": frozenset((name,))}
        yield f"type {name}", f"max_nodes of node type {name}", node_type.max_nodes, of
    for name, policy in config.namespaces.items():
        of = {"namespaces": frozenset((name,))}
        yield f"namespace {name}", f"max_nodes of namespace {name}", policy.max_nodes, of


def why_never_so_many(config: Config, wanted: Sequence[tuple[str, str]]) -> str | None:
    """Says which cap bars so many nodes at once, each as (node type, namespace), if nothing else
    were lent."""
    caps = [cap for cap in count_caps(config, wanted) if cap.lent > cap.max]
    return "; ".join(f"{cap.bound.name} is {cap.max}" for cap in caps) or None


def count_left(
    config: Config,
    lent: Iterable[tuple[str, str]],
    at_hand: Mapping[str, int],
    more: Iterable[Bound] = (),
) -> ConversionBudget:
    """Counts what the caps leave beside the lent nodes, each as (node type, namespace). `at_hand`:
    batch nodes that could be lent now, by node type; where it is not known there is no bound.
    `more`: what the rules leave; what is closed whatever is lent is said where nothing else is."""
    more = tuple(more)
    return budget_of((
        *(bound for bound in more if not bound.why),
        *(cap.bound for cap in count_caps(config, lent)),
        *bounds_at_hand(at_hand),
        *(bound for bound in more if bound.why),
    ))  # fmt: skip


def bounds_at_hand(at_hand: Mapping[str, int]) -> Iterator[Bound]:
    """Yields how many nodes of each type could be had."""
    for node_type, count in at_hand.items():
        name = f"batch nodes of type {node_type}"
        yield Bound(
            name=name,
            left=count,
            reason=Reason.NO_BATCH_NODE,
            node_types=frozenset((node_type,)),
            why=f"no more {name} can be lent",
        )
