"""Packing: equal pods onto free rooms, and onto as few new nodes as possible.

The rule: amounts are vectors over the same axes (resource names in a fixed order), pods come as
items (one shape, a count), nodes as rooms (what is free). A pod that fits a room that is there gets
no new node. Large problems are solved by first-fit-decreasing over items, so the time is that of
items x rooms; small ones try several orders and then a bounded exact search for one node less.

    least_nodes(Problem) -> Packing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import ge
from typing import TypeAlias

from dnm.model.value import Value

Vector: TypeAlias = tuple[int, ...]

_MANY_TRIALS = 40_000  # items x rooms up to which all orders are tried
_EXACT_PODS = 60
_EXACT_ROOMS = 40
_EXACT_STEPS = 2_000


class Item(Value):
    """`count` equal pods. `places`: the rooms they may use. `kinds`: the new nodes they may use,
    best first; each takes at least one of the pods when empty. `tokens`: what no two pods on a node
    may both have (a host port); with any, one pod a node. `blocked`: rooms that already hold such a
    pod. `one_new`: at most one new node is of use to them."""

    request: Vector
    count: int
    places: frozenset[int]
    kinds: tuple[int, ...] = ()
    tokens: frozenset[str] = frozenset()
    blocked: frozenset[int] = frozenset()
    one_new: bool = False


class Room(Value):
    """A node with free space. `place`: which items may use it (see Item.places)."""

    free: Vector
    place: int


class Kind(Value):
    """New nodes that can be had: their free space when empty, and the budgets each one is taken
    from (indexes into Problem.budgets)."""

    room: Vector
    budgets: tuple[int, ...] = ()


class Problem(Value):
    """`opened`: new nodes that are wanted anyway, as indexes into `kinds`; they are filled first
    and are taken from the budgets as well."""

    items: tuple[Item, ...]
    rooms: tuple[Room, ...] = ()
    kinds: tuple[Kind, ...] = ()
    budgets: tuple[int, ...] = ()
    opened: tuple[int, ...] = ()


class Packing(Value):
    """Where the pods go. `placed[i]`: (room, count) of item i; rooms from len(problem.rooms) on are
    the `opened` new nodes, in order. `left[i]`: how many of item i have no room."""

    opened: tuple[int, ...]
    placed: tuple[tuple[tuple[int, int], ...], ...]
    left: tuple[int, ...]

    def count(self, kind: int) -> int:
        return self.opened.count(kind)


def least_nodes(problem: Problem) -> Packing:
    """Pack all items on as few new nodes as can be found; ties keep the better-liked kinds."""
    orders = _orders(problem)
    best = _pack(problem, orders[0], _first_fit)
    if not best.opened[len(problem.opened) :] or len(best.opened) <= _lower_bound(problem):
        return best
    small = len(problem.items) * (len(problem.rooms) + len(best.opened)) <= _MANY_TRIALS
    for order in orders[1:] if small else ():
        for fit in (_first_fit, _best_fit):
            best = min(best, _pack(problem, order, fit), key=_cost)
            if len(best.opened) <= _lower_bound(problem):
                return best
    return _improve(problem, best)


def _cost(packing: Packing) -> tuple[int, int, int]:
    return (sum(packing.left), len(packing.opened), sum(packing.opened))


# --- first fit -------------------------------------------------------------------------------


def _orders(problem: Problem) -> list[list[int]]:
    """Orders in which to place the items: the most constrained first, then the largest by several
    measures of size, each relative to the largest node in sight."""
    axes = range(len(problem.items[0].request)) if problem.items else range(0)
    vectors = [kind.room for kind in problem.kinds] or [room.free for room in problem.rooms]
    scale = [max((vector[axis] for vector in vectors), default=1) or 1 for axis in axes]
    shares = [
        [amount / whole for amount, whole in zip(item.request, scale, strict=True)]
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
            key=lambda index: (len(problem.items[index].kinds), -measure(index), index),
        )
        if order not in orders:
            orders.append(order)
    return orders or [[]]


Fit: TypeAlias = Callable[[Sequence[int], Sequence[Vector]], Iterable[int]]


def _first_fit(rooms: Sequence[int], free: Sequence[Vector]) -> Iterable[int]:
    return rooms


def _best_fit(rooms: Sequence[int], free: Sequence[Vector]) -> Iterable[int]:
    """The fullest room first."""
    return sorted(rooms, key=lambda room: free[room])


class _Tray:
    """The rooms while they are being filled."""

    def __init__(self, problem: Problem) -> None:
        self.free = [room.free for room in problem.rooms]
        self.opened: list[int] = []
        self.budgets = list(problem.budgets)
        self.tokens: dict[int, set[str]] = {}
        self._kinds = problem.kinds
        self._there = len(problem.rooms)
        for kind in problem.opened:
            self.open(kind)

    def open(self, kind: int) -> int:
        """Take one more new node of a kind; returns its room."""
        for budget in self._kinds[kind].budgets:
            self.budgets[budget] -= 1
        self.opened.append(kind)
        self.free.append(self._kinds[kind].room)
        return len(self.free) - 1

    def can_open(self, kind: int) -> bool:
        return all(self.budgets[budget] > 0 for budget in self._kinds[kind].budgets)

    def put(self, room: int, item: Item, wanted: int) -> int:
        """Put as many of `wanted` pods into a room as it takes; returns how many."""
        free = self.free[room]
        count = wanted
        for have, ask in zip(free, item.request, strict=True):
            if ask and have // ask < count:
                count = have // ask
                if count <= 0:
                    return 0
        if item.tokens:
            taken = self.tokens.setdefault(room, set())
            is_blocked = room < self._there and room in item.blocked
            if is_blocked or not taken.isdisjoint(item.tokens):
                return 0
            taken |= item.tokens
            count = 1
        self.free[room] = tuple(
            have - ask * count for have, ask in zip(free, item.request, strict=True)
        )
        return count


def _pack(problem: Problem, order: Sequence[int], fit: Fit) -> Packing:
    """Place the items in this order, each into the first rooms that take it, opening a new node of
    the best-liked kind that can be had when none does."""
    tray = _Tray(problem)
    placed: list[list[tuple[int, int]]] = [[] for _ in problem.items]
    left = [item.count for item in problem.items]
    by_place = _usable_rooms(problem)
    base = len(problem.rooms)
    for index in order:
        item = problem.items[index]
        rooms = [room for place in sorted(item.places) for room in by_place.get(place, ())]
        news = [base + n for n, kind in enumerate(tray.opened) if kind in item.kinds]
        new_used = 0
        for room in (*fit(rooms, tray.free), *fit(news, tray.free)):
            if not left[index]:
                break
            if room >= base and item.one_new and new_used:
                break
            count = tray.put(room, item, left[index])
            if count:
                placed[index].append((room, count))
                left[index] -= count
                new_used += room >= base
        while left[index] and not (item.one_new and new_used):
            kind = next((kind for kind in item.kinds if tray.can_open(kind)), None)
            if kind is None:
                break
            room = tray.open(kind)
            count = tray.put(room, item, left[index])
            placed[index].append((room, count))
            left[index] -= count
            new_used += 1
    return Packing(
        opened=tuple(tray.opened),
        placed=tuple(tuple(one) for one in placed),
        left=tuple(left),
    )


def _usable_rooms(problem: Problem) -> dict[int, list[int]]:
    """Room numbers by place, without the rooms that are too full for any item."""
    if not problem.items:
        return {}
    least = [min(column) for column in zip(*(item.request for item in problem.items), strict=True)]
    by_place: dict[int, list[int]] = {}
    for number, room in enumerate(problem.rooms):
        if all(map(ge, room.free, least)):
            by_place.setdefault(room.place, []).append(number)
    return by_place


# --- one node less ---------------------------------------------------------------------------


def _lower_bound(problem: Problem) -> int:
    """New nodes without which the items can't fit, whatever the order: by their sum, and by the
    pods that are larger than half a node, of which no two share one."""
    wanted = len(problem.opened)
    if not problem.kinds or not problem.items:
        return wanted
    for axis in range(len(problem.items[0].request)):
        whole = max(kind.room[axis] for kind in problem.kinds)
        if whole <= 0:
            continue
        asks = [(item.request[axis], item.count) for item in problem.items]
        free = [room.free[axis] for room in problem.rooms if room.free[axis] > 0]
        total = sum(ask * count for ask, count in asks) - sum(free)
        wanted = max(wanted, -(-total // whole))
        large = [(ask, count) for ask, count in asks if 2 * ask > whole]
        if large:
            least = min(ask for ask, _ in large)
            seated = sum(amount // least for amount in free)
            wanted = max(wanted, sum(count for _, count in large) - seated)
    return wanted


def _improve(problem: Problem, packing: Packing) -> Packing:
    """Search for the same with one new node less, again and again, as long as the problem is small
    and all new nodes are of one kind."""
    pods = sum(item.count for item in problem.items)
    kinds = set(packing.opened)
    if (
        len(kinds) != 1
        or any(packing.left)
        or pods > _EXACT_PODS
        or len(problem.rooms) + len(packing.opened) > _EXACT_ROOMS
    ):
        return packing
    kind = packing.opened[0]
    bound = max(_lower_bound(problem), len(problem.opened))
    while len(packing.opened) > bound:
        found = _Search(problem, kind, len(packing.opened) - 1).run()
        if found is None:
            break
        packing = found
    return packing


class _Search:
    """Depth-first search for a packing with a given number of new nodes, at most _EXACT_STEPS deep
    in work; equal pods go in ascending rooms and equal rooms are tried once."""

    def __init__(self, problem: Problem, kind: int, count: int) -> None:
        self._problem = problem
        self._kind = kind
        self._count = count
        self._steps = 0
        room = problem.kinds[kind].room
        self._free = [one.free for one in problem.rooms] + [room] * count
        self._place = [one.place for one in problem.rooms] + [-1] * count
        self._tokens: list[frozenset[str]] = [frozenset()] * len(self._free)
        order = sorted(
            range(len(problem.items)),
            key=lambda index: (
                -max(
                    (ask / have for ask, have in zip(self._ask(index), room, strict=True) if have),
                    default=0,
                ),
                index,
            ),
        )
        self._pods = [index for index in order for _ in range(problem.items[index].count)]
        self._rest = self._remaining()
        self._choice: list[int] = []

    def _ask(self, index: int) -> Vector:
        return self._problem.items[index].request

    def _remaining(self) -> list[Vector]:
        """For each depth, what all pods from there on ask for together."""
        axes = len(self._problem.items[0].request)
        sums = [(0,) * axes]
        for index in reversed(self._pods):
            sums.append(tuple(a + b for a, b in zip(sums[-1], self._ask(index), strict=True)))
        return sums[::-1]

    def run(self) -> Packing | None:
        if any(item.one_new for item in self._problem.items) or not self._descend(0):
            return None
        placed: list[dict[int, int]] = [{} for _ in self._problem.items]
        for index, room in zip(self._pods, self._choice, strict=True):
            placed[index][room] = placed[index].get(room, 0) + 1
        return Packing(
            opened=(self._kind,) * self._count,
            placed=tuple(tuple(sorted(one.items())) for one in placed),
            left=(0,) * len(placed),
        )

    def _descend(self, depth: int) -> bool:
        if depth == len(self._pods):
            return True
        self._steps += 1
        if self._steps > _EXACT_STEPS or not self._could_fit(depth):
            return False
        index = self._pods[depth]
        item = self._problem.items[index]
        start = 0
        if depth and self._pods[depth - 1] == index:
            start = self._choice[depth - 1]
        tried = set()
        for room in range(start, len(self._free)):
            state = (self._free[room], self._place[room], self._tokens[room])
            if state in tried or not self._takes(item, room):
                continue
            tried.add(state)
            saved = (self._free[room], self._tokens[room])
            self._free[room] = tuple(
                have - ask for have, ask in zip(saved[0], item.request, strict=True)
            )
            self._tokens[room] |= item.tokens
            self._choice.append(room)
            if self._descend(depth + 1):
                return True
            self._choice.pop()
            self._free[room], self._tokens[room] = saved
        return False

    def _takes(self, item: Item, room: int) -> bool:
        place = self._place[room]
        if place < 0:
            allowed = self._kind in item.kinds
        else:
            allowed = place in item.places and room not in item.blocked
        if not allowed or not self._tokens[room].isdisjoint(item.tokens):
            return False
        return all(have >= ask for have, ask in zip(self._free[room], item.request, strict=True))

    def _could_fit(self, depth: int) -> bool:
        """Whether all that is free would do for all that is left, axis by axis."""
        for axis, ask in enumerate(self._rest[depth]):
            if ask and sum(free[axis] for free in self._free if free[axis] > 0) < ask:
                return False
        return True
