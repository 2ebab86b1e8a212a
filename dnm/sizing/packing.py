"""Packing of equal pods onto existing nodes, and onto as few new nodes as possible. Pure.

The rule: a pod that fits an existing node (a bin) gets no new one. Large problems are solved by
first-fit-decreasing over items, so the time grows with items x bins; small ones try several orders.

    least_nodes(Problem) -> Packing"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import ge
from typing import TypeAlias

from dnm.sizing.packing_problem import Item, Packing, Problem, Vector

_MANY_TRIALS = 40_000  # items x bins up to which all orders are tried
_AT_ONCE = 512  # bins that are checked at once


def least_nodes(problem: Problem) -> Packing:
    """Packs all pods on as few new nodes as possible. Between equal results, earlier types win."""
    orders = _orders(problem)
    best = _pack(problem, orders[0], _first_fit)
    if not best.opened[len(problem.opened) :] or len(best.opened) <= lower_bound(problem):
        return best
    small = len(problem.items) * (len(problem.bins) + len(best.opened)) <= _MANY_TRIALS
    for order in orders[1:] if small else ():
        for fit in (_first_fit, _best_fit):
            best = min(best, _pack(problem, order, fit), key=_cost)
            if len(best.opened) <= lower_bound(problem):
                return best
    return best


def _cost(packing: Packing) -> tuple[int, int, int]:
    return (sum(packing.left), len(packing.opened), sum(packing.opened))


def _orders(problem: Problem) -> list[list[int]]:
    """Returns orders in which to place groups of pods: those with the fewest usable node types
    first, then the largest, by several measures of size relative to the largest node."""
    axes = range(len(problem.items[0].request)) if problem.items else range(0)
    vectors = [node_type.free for node_type in problem.bin_types] or [
        item.free for item in problem.bins
    ]
    scale = [max((vector[axis] for vector in vectors), default=1) or 1 for axis in axes]
    shares = [
        [amount / largest for amount, largest in zip(item.request, scale, strict=True)]
        for item in problem.items
    ]
    measures: list[Callable[[int], float]] = [
        lambda index: max(shares[index], default=0.0),
        lambda index: sum(shares[index]),
        lambda index: sum(share * share for share in shares[index]),
    ]
    measures += [lambda index, axis=axis: shares[index][axis] for axis in axes]  # type: ignore[misc]
    orders: list[list[int]] = []
    for measure in measures:
        order = sorted(
            range(len(problem.items)),
            key=lambda index: (len(problem.items[index].bin_types), -measure(index), index),
        )
        if order not in orders:
            orders.append(order)
    return orders or [[]]


Fit: TypeAlias = Callable[[Sequence[int], Sequence[Vector]], Iterable[int]]


def _first_fit(bins: Sequence[int], free: Sequence[Vector]) -> Iterable[int]:
    return bins


def _best_fit(bins: Sequence[int], free: Sequence[Vector]) -> Iterable[int]:
    """Returns these nodes in the order of their free capacity, the fullest first."""
    return sorted(bins, key=free.__getitem__)


class _Bins:
    """The nodes while pods are placed on them: free amounts, added new nodes, remaining budgets."""

    def __init__(self, problem: Problem) -> None:
        self.free = [item.free for item in problem.bins]
        self.opened: list[int] = []
        self.budgets = dict(problem.budgets)
        self.exclusive: dict[int, set[str]] = {}
        self._bin_types = problem.bin_types
        self._existing = len(problem.bins)
        for bin_type in problem.opened:
            self.open(bin_type)

    def open(self, bin_type: int) -> int:
        """Adds a new node of a type and returns its index. Each of its budgets loses one node."""
        for budget in self._bin_types[bin_type].budgets:
            self.budgets[budget] -= 1
        self.opened.append(bin_type)
        self.free.append(self._bin_types[bin_type].free)
        return len(self.free) - 1

    def can_open(self, bin_type: int) -> bool:
        """Returns whether every budget of the node type allows one more node."""
        return all(self.budgets[budget] > 0 for budget in self._bin_types[bin_type].budgets)

    def put(self, number: int, item: Item, wanted: int) -> int:
        """Places up to `wanted` pods of an item on a node with space for one of them. Returns how
        many of them fit."""
        free = self.free[number]
        count = wanted
        for have, ask in zip(free, item.request, strict=True):
            if ask and have // ask < count:
                count = have // ask
        if item.exclusive:
            taken = self.exclusive.setdefault(number, set())
            is_blocked = number < self._existing and number in item.blocked_bins
            if is_blocked or not taken.isdisjoint(item.exclusive):
                return 0
            taken |= item.exclusive
            count = 1
        self.free[number] = tuple(
            have - ask * count for have, ask in zip(free, item.request, strict=True)
        )
        return count


def _pack(problem: Problem, order: Sequence[int], fit: Fit) -> Packing:
    """Places groups of pods in this order, each on the first nodes where it fits. If none has
    space, adds a new node of the first type that the budget allows."""
    state = _Bins(problem)
    placed: list[list[tuple[int, int]]] = [[] for _ in problem.items]
    left = [item.count for item in problem.items]
    by_class = _usable_bins(problem)
    usable: dict[frozenset[int], list[int]] = {}
    base = len(problem.bins)
    for index in order:
        item = problem.items[index]
        if item.node_classes not in usable:
            usable[item.node_classes] = [
                number
                for node_class in sorted(item.node_classes)
                for number in by_class.get(node_class, ())
            ]
        existing = usable[item.node_classes]
        opened = [base + n for n, bin_type in enumerate(state.opened) if bin_type in item.bin_types]
        new_used = 0
        bins = (*fit(existing, state.free), *fit(opened, state.free))
        for number in _with_space(bins, state.free, item.request):
            if not left[index]:
                break
            if number >= base and item.single_new_bin and new_used:
                break
            count = state.put(number, item, left[index])
            if count:
                placed[index].append((number, count))
                left[index] -= count
                new_used += number >= base
        while left[index] and not (item.single_new_bin and new_used):
            bin_type = next(filter(state.can_open, item.bin_types), None)
            if bin_type is None:
                break
            number = state.open(bin_type)
            count = state.put(number, item, left[index])
            placed[index].append((number, count))
            left[index] -= count
            new_used += 1
    return Packing(
        opened=tuple(state.opened), placed=tuple(tuple(row) for row in placed), left=tuple(left)
    )


def _with_space(bins: Sequence[int], free: Sequence[Vector], request: Vector) -> Iterator[int]:
    """Yields the nodes with space for one more pod, in order. It compares one resource of many
    nodes at a time, which is ten times faster with thousands of groups and mostly full nodes."""
    requested = [(axis, ask) for axis, ask in enumerate(request) if ask]
    for start in range(0, len(bins), _AT_ONCE):
        some = bins[start : start + _AT_ONCE]
        for axis, ask in requested:
            some = [number for number in some if free[number][axis] >= ask]
        yield from some


def _usable_bins(problem: Problem) -> dict[int, list[int]]:
    """Returns the nodes of each node class, without those that are too full for any pod."""
    if not problem.items:
        return {}
    least = [min(column) for column in zip(*(item.request for item in problem.items), strict=True)]
    by_class: dict[int, list[int]] = {}
    for number, entry in enumerate(problem.bins):
        if all(map(ge, entry.free, least)):
            by_class.setdefault(entry.node_class, []).append(number)
    return by_class


def lower_bound(problem: Problem) -> int:
    """Returns a number of new nodes that no packing can undercut. It follows from the sum of
    requests, and from the pods larger than half a node, of which no two share one. The problem has
    groups of pods and types of nodes."""
    wanted = len(problem.opened)
    for axis in range(len(problem.items[0].request)):
        largest = max(node_type.free[axis] for node_type in problem.bin_types)
        if largest <= 0:
            continue
        asks = [(item.request[axis], item.count) for item in problem.items]
        free = [item.free[axis] for item in problem.bins if item.free[axis] > 0]
        total = sum(ask * count for ask, count in asks) - sum(free)
        wanted = max(wanted, -(-total // largest))
        large = [(ask, count) for ask, count in asks if 2 * ask > largest]
        if large:
            least = min(ask for ask, _ in large)
            fitting = sum(amount // least for amount in free)
            wanted = max(wanted, sum(count for _, count in large) - fitting)
    return wanted
