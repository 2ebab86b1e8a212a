"""A bounded exact search for a packing with one new node less. Pure."""

from __future__ import annotations

from dnm.sizing.packing_problem import Item, Packing, Problem, Vector

_EXACT_PODS = 60
_EXACT_BINS = 40
_EXACT_STEPS = 2_000


def find_fewer(problem: Problem, packing: Packing, bound: int) -> Packing:
    """Returns the same with one new node less, and one less again, as far as it is found while the
    problem is small and all new nodes are of one type. `bound`: there are so many at least."""
    pods = sum(item.count for item in problem.items)
    bin_types = set(packing.opened)
    if (
        len(bin_types) != 1
        or any(packing.left)
        or pods > _EXACT_PODS
        or len(problem.bins) + len(packing.opened) > _EXACT_BINS
    ):
        return packing
    bin_type = packing.opened[0]
    bound = max(bound, len(problem.opened))
    while len(packing.opened) > bound:
        found = _Search(problem, bin_type, len(packing.opened) - 1).run()
        if found is None:
            break
        packing = found
    return packing


class _Search:
    """Depth-first search for a packing with a given number of new nodes, at most _EXACT_STEPS deep
    in work; equal pods go in ascending bins and equal bins are tried once."""

    def __init__(self, problem: Problem, bin_type: int, count: int) -> None:
        self._problem = problem
        self._bin_type = bin_type
        self._count = count
        self._steps = 0
        empty = problem.bin_types[bin_type].free
        self._free = [one.free for one in problem.bins] + [empty] * count
        self._node_classes = [one.node_class for one in problem.bins] + [-1] * count
        self._exclusive: list[frozenset[str]] = [frozenset()] * len(self._free)
        order = sorted(
            range(len(problem.items)),
            key=lambda index: (
                -max(
                    (ask / have for ask, have in zip(self._ask(index), empty, strict=True) if have),
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
        """Returns a packing with exactly so many new nodes; None if none was found."""
        if any(item.at_most_one_new for item in self._problem.items) or not self._descend(0):
            return None
        placed: list[dict[int, int]] = [{} for _ in self._problem.items]
        for index, number in zip(self._pods, self._choice, strict=True):
            placed[index][number] = placed[index].get(number, 0) + 1
        return Packing(
            opened=(self._bin_type,) * self._count,
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
        for number in range(start, len(self._free)):
            state = (self._free[number], self._node_classes[number], self._exclusive[number])
            if state in tried or not self._takes(item, number):
                continue
            tried.add(state)
            saved = (self._free[number], self._exclusive[number])
            self._free[number] = tuple(
                have - ask for have, ask in zip(saved[0], item.request, strict=True)
            )
            self._exclusive[number] |= item.exclusive
            self._choice.append(number)
            if self._descend(depth + 1):
                return True
            self._choice.pop()
            self._free[number], self._exclusive[number] = saved
        return False

    def _takes(self, item: Item, number: int) -> bool:
        node_class = self._node_classes[number]
        if node_class < 0:
            allowed = self._bin_type in item.bin_types
        else:
            allowed = node_class in item.node_classes and number not in item.blocked_bins
        if not allowed or not self._exclusive[number].isdisjoint(item.exclusive):
            return False
        return all(have >= ask for have, ask in zip(self._free[number], item.request, strict=True))

    def _could_fit(self, depth: int) -> bool:
        """Whether all that is free would do for all that is left, axis by axis."""
        for axis, ask in enumerate(self._rest[depth]):
            if ask and sum(free[axis] for free in self._free if free[axis] > 0) < ask:
                return False
        return True
