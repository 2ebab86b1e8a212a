"""The number of nodes that may still be lent, within caps, options, and the nodes that Slurm has.

The rule: each lent node of a pool reduces every bound that applies to the pool. Each bound has a
text for messages. A cap that is not set bounds nothing; `plan/cap_shares.py` has made percentages
numbers. `conversion_budget` in `plan/lendable.py` makes the budget of a run."""

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
    """The queue, namespace and type of lent nodes. Nodes with the same pool are interchangeable."""

    queue: str
    namespace: str
    node_type: str


class Bound(Value):
    """An upper bound on how many more nodes of some types may be lent to some namespaces (None:
    all). `reason` is the reason of a decision that it forces. `why` explains that in a clause; if
    empty, the clause is that the bound is used up."""

    name: str
    left: int
    reason: ReasonText = Reason.CAPPED
    node_types: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    why: str = ""

    def holds_for(self, node_type: str, namespace: str) -> bool:
        """Returns whether the bound counts a node of this type and namespace. The type is empty for
        the new namespace of a moving node; only bounds of namespaces count that."""
        is_namespace = self.namespaces is None or namespace in self.namespaces
        is_type = self.node_types is None or node_type in self.node_types
        return is_namespace and is_type and (bool(node_type) or self.namespaces is not None)

    @property
    def text(self) -> str:
        """Returns a clause that explains why the bound allows no more nodes."""
        return self.why or f"{self.name} is used up"


class ConversionBudget(Value):
    """The number of nodes that each bound still allows to lend, never below 0. The first bound that
    allows none gives the reason. `left` has the current numbers by the name of the bound; in
    `bounds` are the initial ones."""

    bounds: tuple[Bound, ...] = ()
    left: Mapping[str, int] = {}

    def bounds_of(self, pool: NodePool) -> list[Bound]:
        """Returns the bounds that apply to nodes of a pool (queue, namespace and type)."""
        return [bound for bound in self.bounds if bound.holds_for(pool.node_type, pool.namespace)]

    def changed(self, pools: Iterable[NodePool], by: int) -> ConversionBudget:
        """Returns the budget after a node of each of these pools is lent (`by` is -1) or returned
        (`by` is 1)."""
        left = dict(self.left)
        for pool in pools:
            for bound in self.bounds_of(pool):
                left[bound.name] += by
        return msgspec.structs.replace(self, left=left)

    def covers(self, wanted: Mapping[NodePool, int]) -> bool:
        """Returns whether all bounds together allow to lend these numbers of nodes, by pool."""
        asked: Counter[str] = Counter()
        for pool, count in wanted.items():
            for bound in self.bounds_of(pool):
                asked[bound.name] += count
        return all(count <= self.left[name] for name, count in asked.items())


def budget_of(bounds: Iterable[Bound]) -> ConversionBudget:
    """Returns a budget of nodes that starts with the number that each bound allows."""
    every = tuple(bounds)
    return ConversionBudget(bounds=every, left={bound.name: bound.left for bound in every})


UNBOUNDED = ConversionBudget()


def pool_of(entry: LentNode) -> NodePool:
    """Returns the pool (queue, namespace and type) that a lent node belongs to."""
    return NodePool(entry.queue, entry.namespace, entry.node_type)


class CapCount(Value):
    """A configured cap: its value, the lent and incoming nodes that it counts, and what is left."""

    cap: str
    bound: Bound
    lent: int
    max: int


def lent_in(registry: Registry) -> list[tuple[str, str]]:
    """Returns (node type, namespace) of each recorded node that counts under the caps: lent nodes,
    claimed nodes, and requested nodes. A moving node counts for both namespaces,
    since the move can end in either. For the new namespace, the node type is empty."""
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
    """Counts the lent nodes, given as (node type, namespace), under each configured cap: for all
    nodes, for a type, for a namespace."""
    caps, counts = [], Counter(lent)
    for cap, name, most, of in _caps(config):
        if isinstance(most, int):
            bound = Bound(name=name, left=0, **of)
            lent_now = sum(count for pair, count in counts.items() if bound.holds_for(*pair))
            bound = msgspec.structs.replace(bound, left=max(0, most - lent_now))
            caps.append(CapCount(cap=cap, bound=bound, lent=lent_now, max=most))
    return caps


def _caps(config: Config) -> Iterator[tuple[str, str, int | Share | None, dict[str, Any]]]:
    """Yields each cap, its name, its value, and the node types or namespaces that it limits."""
    yield "all", "max_converted_nodes", config.max_converted_nodes, {}
    for name, node_type in config.node_types.items():
        of = {"node_types": frozenset((name,))}
        yield f"type {name}", f"max_nodes of node type {name}", node_type.max_nodes, of
    for name, policy in config.namespaces.items():
        of = {"namespaces": frozenset((name,))}
        yield f"namespace {name}", f"max_nodes of namespace {name}", policy.max_nodes, of


def describe_exceeded_caps(config: Config, nodes: Sequence[tuple[str, str]]) -> str | None:
    """Returns which caps these nodes, given as (node type, namespace), exceed alone, or None."""
    caps = [cap for cap in count_caps(config, nodes) if cap.lent > cap.max]
    return "; ".join(f"{cap.bound.name} is {cap.max}" for cap in caps) or None


def count_left(
    config: Config,
    lent: Iterable[tuple[str, str]],
    lendable: Mapping[str, int],
    rules: Iterable[Bound] = (),
) -> ConversionBudget:
    """Returns how many more nodes may be lent if these are lent, each given as (node type,
    namespace). `lendable` has the number of Slurm's nodes of each type that can be lent now; if
    empty, it is no bound. `rules` are bounds of options; those with their own text come last."""
    rules = tuple(rules)
    return budget_of((
        *(bound for bound in rules if not bound.why),
        *(cap.bound for cap in count_caps(config, lent)),
        *bounds_of_lendable(lendable),
        *(bound for bound in rules if bound.why),
    ))  # fmt: skip


def bounds_of_lendable(lendable: Mapping[str, int]) -> Iterator[Bound]:
    """Yields a bound for each node type: the number of Slurm's nodes that can be lent now."""
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
    """Returns a clause: how many nodes can be lent, and which bounds prevent more."""
    used_up = sorted(bound.name for bound in spent if not bound.why)
    texts = [f"{', '.join(used_up)} used up"] if used_up else []
    texts += [bound.why for bound in spent if bound.why]
    return f"{granted} can be lent: {'; '.join(texts)}"
