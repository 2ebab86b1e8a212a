"""How many nodes may still be lent: what each cap and the batch side leave.

The rule: a bound is known by the words that people read in a verdict, and a node of a pool is taken
from every bound that holds for its pool. A bound that is not there bounds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode
from dnm.model.share import Share
from dnm.model.value import Value

BATCH_NODES = "batch nodes"
KUBELETS = "kubelet settings"
BATCH_FLOOR = "batch_floor"
NODE_HOURS = "node_hours_per_week"
BRIDGE = "nodes that slurm-bridge leaves pods on"


class NodePool(NamedTuple):
    """Names what nodes are lent as: those of one pool can stand for each other."""

    queue: str
    namespace: str
    node_type: str


class Bound(Value):
    """Says how many more nodes of some types may be lent, to some namespaces. `namespaces` None:
    to any."""

    name: str
    left: int
    node_types: frozenset[str]
    namespaces: frozenset[str] | None = None

    def holds_for(self, pool: NodePool) -> bool:
        """Returns whether a node of the pool counts."""
        is_namespace = self.namespaces is None or pool.namespace in self.namespaces
        return is_namespace and pool.node_type in self.node_types


class ConversionBudget(Value):
    """Says how many more nodes each bound allows now, by its name for people; never less than 0."""

    left: Mapping[str, int] = {}
    barred: Mapping[str, str] = {}  # bound that is none because of kubelet settings -> why
    more: tuple[Bound, ...] = ()  # bounds of some types and namespaces, which `left` has too

    def bounds_of(self, pool: NodePool) -> list[str]:
        """Returns the names of the bounds that hold for nodes of the pool."""
        names = [name for name in _bounds(pool.node_type, pool.namespace) if name in self.left]
        return [*names, *(bound.name for bound in self.more if bound.holds_for(pool))]

    def within(self, bounds: Iterable[Bound]) -> ConversionBudget:
        """Returns what is left within these bounds too."""
        more = tuple(bounds)
        left = {**self.left, **{bound.name: bound.left for bound in more}}
        return msgspec.structs.replace(self, left=left, more=(*self.more, *more))

    def less(self, pools: Iterable[NodePool]) -> ConversionBudget:
        """Returns what is left when one more node of each of these pools is lent."""
        return self._changed(pools, -1)

    def plus(self, pools: Iterable[NodePool]) -> ConversionBudget:
        """Returns what is left when one node of each of these pools has gone back."""
        return self._changed(pools, 1)

    def _changed(self, pools: Iterable[NodePool], by: int) -> ConversionBudget:
        left = dict(self.left)
        for pool in pools:
            for name in self.bounds_of(pool):
                left[name] += by
        return msgspec.structs.replace(self, left=left)

    def covers(self, wanted: Mapping[NodePool, int]) -> bool:
        """Tells whether so many nodes of each pool can be lent, all of them together."""
        asked: Counter[str] = Counter()
        for pool, count in wanted.items():
            for name in self.bounds_of(pool):
                asked[name] += count
        return all(count <= self.left[name] for name, count in asked.items())


def pool_of(entry: LentNode) -> NodePool:
    """Returns the pool of a lent node."""
    return NodePool(entry.queue, entry.namespace, entry.node_type)


class CapCount(Value):
    """How many nodes are lent or coming under a cap, and how many may be. `bound`: the words for it
    in a verdict."""

    cap: str
    bound: str
    lent: int
    max: int
    is_of_namespace: bool = False


def count_caps(config: Config, lent: Iterable[tuple[str, str]]) -> list[CapCount]:
    """Counts the lent nodes, each as (node type, namespace), under every cap that is set: of all
    nodes, of each type, of each namespace. One without a type is counted for another namespace
    already, and counts under the cap of this one alone."""
    caps: list[tuple[str, str, int | Share | None]] = [("all", _IN_ALL, config.max_converted_nodes)]
    caps += [
        (f"type {one.name}", _of_type(one.name), one.max_nodes)
        for one in config.node_types.values()
    ]
    caps += [
        (f"namespace {one.name}", _of_namespace(one.name), one.max_nodes)
        for one in config.namespaces.values()
    ]
    used = Counter(bound for pair in lent for bound in _bounds(*pair))
    return [
        CapCount(
            cap=cap,
            bound=bound,
            lent=used[bound],
            max=most,
            is_of_namespace=cap.startswith("namespace "),
        )
        for cap, bound, most in caps
        if isinstance(most, int)
    ]


def why_never_so_many(config: Config, wanted: Sequence[tuple[str, str]]) -> str | None:
    """Says which cap bars so many nodes at once, each as (node type, namespace), if nothing else
    were lent."""
    caps = [cap for cap in count_caps(config, wanted) if cap.lent > cap.max]
    return "; ".join(f"{cap.bound} is {cap.max}" for cap in caps) or None


def count_left(
    config: Config,
    lent: Iterable[tuple[str, str]],
    at_hand: Mapping[str, int],
    barred: Mapping[str, str] = {},
) -> ConversionBudget:
    """Counts what the caps leave beside the lent nodes, each as (node type, namespace). `at_hand`:
    batch nodes that could be lent now, by node type; where it is not known there is no bound.
    `barred`: node types whose kubelets would not start, with the reason."""
    left = {cap.bound: max(0, cap.max - cap.lent) for cap in count_caps(config, lent)}
    left |= {_at_hand(node_type): count for node_type, count in at_hand.items()}
    left |= {_kubelets(node_type): 0 for node_type in barred}
    whys = {_kubelets(node_type): why for node_type, why in barred.items()}
    return ConversionBudget(left=left, barred=whys)


def count_at_hand(config: Config, at_hand: Mapping[str, int]) -> dict[str, int]:
    """Returns how many nodes of each type could be had, by the name of the bound."""
    return {_at_hand(node_type): at_hand.get(node_type, 0) for node_type in config.node_types}


_IN_ALL = "max_converted_nodes"


def _bounds(node_type: str, namespace: str) -> tuple[str, ...]:
    """Returns the names of all bounds that there may be for such a node."""
    if not node_type:
        return (_of_namespace(namespace),)
    return (
        _IN_ALL,
        _of_type(node_type),
        _of_namespace(namespace),
        _at_hand(node_type),
        _kubelets(node_type),
    )


def _of_type(node_type: str) -> str:
    return f"max_nodes of node type {node_type}"


def _of_namespace(namespace: str) -> str:
    return f"max_nodes of namespace {namespace}"


def _at_hand(node_type: str) -> str:
    return f"{BATCH_NODES} of type {node_type}"


def _kubelets(node_type: str) -> str:
    return f"{KUBELETS} of type {node_type}"
