"""What is to be packed, and onto what: amounts are vectors over the same axes (resource names in a
fixed order); equal pods are one item with a count; nodes are bins, of which only the free space
matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dnm.model.value import Value

Vector: TypeAlias = tuple[int, ...]


class Item(Value):
    """Says what `count` equal pods need.

    `node_classes`: they may use the bins of these classes. `bin_types`: the new nodes they may use,
    best first; an empty one takes at least one of the pods. `exclusive`: what no two pods on a node
    may both have (a host port); with any, one pod a node. `blocked_bins`: bins that already hold
    such a pod. `at_most_one_new`: a second new node is of no use to them.
    """

    request: Vector
    count: int
    node_classes: frozenset[int]
    bin_types: tuple[int, ...] = ()
    exclusive: frozenset[str] = frozenset()
    blocked_bins: frozenset[int] = frozenset()
    at_most_one_new: bool = False


class Bin(Value):
    """Says what is free on a node, and to which class of nodes it belongs (Item.node_classes)."""

    free: Vector
    node_class: int


class BinType(Value):
    """Describes new nodes that can be had: what is free on an empty one, and the budgets that each
    is taken from (keys of Problem.budgets)."""

    free: Vector
    budgets: tuple[str, ...] = ()


class Problem(Value):
    """Holds what is to be packed, and onto what. `opened`: new nodes that are wanted anyway, as
    indexes of `bin_types`; they are filled first and are taken from the budgets as well."""

    items: tuple[Item, ...]
    bins: tuple[Bin, ...] = ()
    bin_types: tuple[BinType, ...] = ()
    budgets: Mapping[str, int] = {}
    opened: tuple[int, ...] = ()


class Packing(Value):
    """Says where the pods go. `placed[i]`: (bin, count) of item i; bins from len(problem.bins) on
    are the `opened` new nodes, in order. `left[i]`: how many of item i fit nowhere."""

    opened: tuple[int, ...]
    placed: tuple[tuple[tuple[int, int], ...], ...]
    left: tuple[int, ...]
