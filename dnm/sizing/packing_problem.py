"""The problem of packing and its solution. Amounts are vectors over the same axes (resource names
in a fixed order). Equal pods are one item with a count. Nodes are bins, of which only the free
space matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dnm.model.value import Value

Vector: TypeAlias = tuple[int, ...]


class Item(Value):
    """The needs of `count` equal pods.

    `node_classes`: classes of bins that they may use. `bin_types`: new nodes that they may use,
    best first; each can run a pod while it is empty. `exclusive`: properties that one pod of a node
    alone may have (a host port); with any, each pod needs its own node. `blocked_bins`: bins that
    already have such a pod. `single_new_bin`: a second new node cannot help them."""

    request: Vector
    count: int
    node_classes: frozenset[int]
    bin_types: tuple[int, ...] = ()
    exclusive: frozenset[str] = frozenset()
    blocked_bins: frozenset[int] = frozenset()
    single_new_bin: bool = False


class Bin(Value):
    """The free amounts of a node, and its class of nodes (Item.node_classes)."""

    free: Vector
    node_class: int


class BinType(Value):
    """New nodes that are available: the free amounts of an empty one, and the budgets from which
    each is taken (keys of Problem.budgets)."""

    free: Vector
    budgets: tuple[str, ...] = ()


class Problem(Value):
    """The items to pack and the bins for them. `opened`: new nodes that are needed anyway, as
    indexes of `bin_types`; they are filled first and are taken from the budgets as well."""

    items: tuple[Item, ...]
    bins: tuple[Bin, ...] = ()
    bin_types: tuple[BinType, ...] = ()
    budgets: Mapping[str, int] = {}
    opened: tuple[int, ...] = ()


class Packing(Value):
    """The places of the pods. `placed[i]`: (bin, count) of item i; bins from len(problem.bins) on
    are the `opened` new nodes, in order. `left[i]`: how many of item i do not fit."""

    opened: tuple[int, ...]
    placed: tuple[tuple[tuple[int, int], ...], ...]
    left: tuple[int, ...]
