"""The number of nodes that may still be lent within each bound: caps, the batch side and the rules.

The rule: each lent node of a pool reduces every bound that applies to the pool. Each bound has a
text for verdicts. A cap that is not set bounds nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import Registry
from dnm.model.share import Share
from dnm.model.value import Value


class NodePool(NamedTuple):
    """The queue, namespace and type of a lent node: nodes of one pool are interchangeable."""

    queue: str
    namespace: str
    node_type: str


class Bound(Value):
    """A bound: how many nodes of some types may still be lent to some namespaces (None: any).
    `reason`: the reason of the verdict on a queue that this bound stops. `why`: a text for that
    case (empty: the bound is used up)."""

    name: str
    left: int
    reason: ReasonText = Reason.CAPPED
    node_types: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    why: str = ""

    def holds_for(self, node_type: str, namespace: str) -> bool:
        """Returns whether a node of this type and namespace counts. The type is empty for the new
        namespace of a moving node, which then counts only under bounds of namespaces."""
        is_namespace = self.namespaces is None or namespace in self.namespaces
        is_type = self.node_types is None or node_type in self.node_types
        return is_namespace and is_type and (bool(node_type) or self.namespaces is not None)

    @property
    def text(self) -> str:
        """Returns a clause that the bound allows no more nodes."""
        return self.why or f"{self.name} is used up"


class ConversionBudget(Value):
    """The number of nodes that each bound still allows, never below 0. The first bound without
    nodes gives the reason. `left`: the current numbers, by the bound's name; the bounds themselves
    keep the initial ones."""

    bounds: tuple[Bound, ...] = ()
    left: Mapping[str, int] = {}

    def bounds_of(self, pool: NodePool) -> list[Bound]:
        """Returns the bounds that apply to nodes of the pool."""
        return [bound for bound in self.bounds if bound.holds_for(pool.node_type, pool.namespace)]

    def changed(self, pools: Iterable[NodePool], by: int) -> ConversionBudget:
        """Returns the budget after one node of each of these pools was lent (`by` is -1) or
        returned (1)."""
        left = dict(self.left)
        for pool in pools:
            for bound in self.bounds_of(pool):
                left[bound.name] += by
        return msgspec.structs.replace(self, left=left)

    def covers(self, wanted: Mapping[NodePool, int]) -> bool:
        """Checks whether the budget allows these numbers of nodes, by pool, together."""
        asked: Counter[str] = Counter()
        for pool, count in wanted.items():
            for bound in self.bounds_of(pool):
                asked[bound.name] += count
        return all(count <= self.left[name] for name, count in asked.items())


def budget_of(bounds: Iterable[Bound]) -> ConversionBudget:
    """Returns the budget of these bounds."""
    every = tuple(bounds)
    return ConversionBudget(bounds=every, left={bound.name: bound.left for bound in every})


UNBOUNDED = ConversionBudget()


def pool_of(entry: LentNode) -> NodePool:
    """Returns the pool of a lent node."""
    return NodePool(entry.queue, entry.namespace, entry.node_type)


class CapCount(Value):
    """A cap with the number of lent and incoming nodes under it, its maximum, and its bound."""

    cap: str
    bound: Bound
    lent: int
    max: int


def lent_in(registry: Registry) -> list[tuple[str, str]]:
    """Returns (node type, namespace) of every node that the registry counts under the caps: lent
    nodes, claimed nodes and conversions under way. A node that moves counts for both namespaces,
    since the move can end in either. The pair with its new namespace has an empty node type."""
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
    caps, counts = [], Counter(lent)
    for cap, name, most, of in _caps(config):
        if isinstance(most, int):
            bound = Bound(name=name, left=0, **of)
            lent_now = sum(count for pair, count in counts.items() if bound.holds_for(*pair))
            bound = msgspec.structs.replace(bound, left=max(0, most - lent_now))
            caps.append(CapCount(cap=cap, bound=bound, lent=lent_now, max=most))
    return caps


def _caps(config: Config) -> Iterator[tuple[str, str, int | Share | None, dict[str, Any]]]:
    """Yields each cap, its name in a verdict, its value, and the nodes to which it applies."""
    yield "all", "max_converted_nodes", config.max_converted_nodes, {}
    for name, node_type in config.node_types.items():
        of = {"node_types": frozenset((name,))}
        yield f"type {name}", f"max_nodes of node type {name}", node_type.max_nodes, of
    for name, policy in config.namespaces.items():
        of = {"namespaces": frozenset((name,))}
        yield f"namespace {name}", f"max_nodes of namespace {name}", policy.max_nodes, of


def describe_exceeded_caps(config: Config, nodes: Sequence[tuple[str, str]]) -> str | None:
    """Returns which caps these nodes, each as (node type, namespace), exceed by themselves."""
    caps = [cap for cap in count_caps(config, nodes) if cap.lent > cap.max]
    return "; ".join(f"{cap.bound.name} is {cap.max}" for cap in caps) or None


def count_left(
    config: Config,
    lent: Iterable[tuple[str, str]],
    lendable: Mapping[str, int],
    rules: Iterable[Bound] = (),
) -> ConversionBudget:
    """Returns the budget that `lent` leaves, the lent nodes, each as (node type, namespace).
    `lendable`: batch nodes that could be lent now, by node type; if it is empty, it bounds nothing.
    `rules`: bounds of the rules; a bound with its own text comes last."""
    rules = tuple(rules)
    return budget_of((
        *(bound for bound in rules if not bound.why),
        *(cap.bound for cap in count_caps(config, lent)),
        *bounds_of_lendable(lendable),
        *(bound for bound in rules if bound.why),
    ))  # fmt: skip


def bounds_of_lendable(lendable: Mapping[str, int]) -> Iterator[Bound]:
    """Yields a bound for each node type: how many batch nodes of it can be lent."""
    for node_type, count in lendable.items():
        name = f"batch nodes of type {node_type}"
        yield Bound(
            name=name,
            left=count,
            reason=Reason.NO_BATCH_NODE,
            node_types=frozenset((node_type,)),
            why=f"no more {name} can be lent",
        )


def describe_bounds(spent: Sequence[Bound], granted: int) -> str:
    """Returns how many nodes can be lent and why not more; bounds with their own text come last."""
    used_up = sorted(bound.name for bound in spent if not bound.why)
    texts = [f"{', '.join(used_up)} used up"] if used_up else []
    texts += [bound.why for bound in spent if bound.why]
    return f"{granted} can be lent: {'; '.join(texts)}"
