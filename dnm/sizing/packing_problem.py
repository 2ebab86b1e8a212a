"""The problem of packing pods onto nodes, and its solution. Amounts are vectors over the same
resources in a fixed order. Equal pods are one item with a count. Nodes are bins, of which only the
free space matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dnm.model.value import Value

Vector: TypeAlias = tuple[int, ...]


class Item(Value):
    """A group of `count` equal pods that is to be packed onto nodes.

    `node_classes` are the classes of nodes that they may use. `bin_types` are the new nodes that
    they may use, best first; each can run a pod while it is empty. `exclusive` has properties that
    only one pod of a node may have, e.g. a host port; with any, each pod needs its own node.
    `blocked_bins` already have such a pod. `single_new_bin`: a second new node cannot help."""

    request: Vector
    count: int
    node_classes: frozenset[int]
    bin_types: tuple[int, ...] = ()
    exclusive: frozenset[str] = frozenset()
    blocked_bins: frozenset[int] = frozenset()
    single_new_bin: bool = False


class Bin(Value):
    """A node for the packing: its free amounts, and the class that decides which pods it takes."""

    free: Vector
    node_class: int


class BinType(Value):
    """A kind of new nodes for the packing: the free amounts of an empty one, and the names of the
    budgets (in Problem.budgets) that each such node reduces."""

    free: Vector
    budgets: tuple[str, ...] = ()


class Problem(Value):
    """A packing problem: pods (`items`), nodes (`bins`), and new nodes. `opened` are new nodes that
    are needed anyway, as indexes of `bin_types`; they are filled first and reduce the budgets."""

    items: tuple[Item, ...]
    bins: tuple[Bin, ...] = ()
    bin_types: tuple[BinType, ...] = ()
    budgets: Mapping[str, int] = {}
    opened: tuple[int, ...] = ()


class Packing(Value):
    """The solution of a packing problem. `placed` has (bin, count) pairs for each item; bins beyond
    the problem's are the new nodes in `opened`. `left` has the number of pods that do not fit."""

    opened: tuple[int, ...]
    placed: tuple[tuple[tuple[int, int], ...], ...]
    left: tuple[int, ...]
