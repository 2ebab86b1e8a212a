"""Tests of packing against the optimum, on small problems that an exhaustive search can solve.

The optimum comes from another algorithm than dnm's: it fills one node at a time with each maximal
subset of the remaining pods."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

from dnm.sizing.packing import least_nodes
from dnm.sizing.packing_problem import Bin, BinType, Item, Problem, Vector
from tests.sizing.test_packing import check

SEED = 20260302
INSTANCES = 500


def random_problem(source: random.Random) -> Problem:
    """Draws a problem: up to 12 pods of 5 shapes, 2 or 3 resources, up to 3 present nodes."""
    axes = source.choice((2, 2, 3))
    node = tuple(source.randint(8, 32) for _ in range(axes))
    items: list[Item] = []
    left = source.randint(3, 12)
    while left > 0 and len(items) < 5:
        count = min(left, source.randint(1, 4))
        left -= count
        request = tuple(source.randint(1, max(1, size * 3 // 4)) for size in node)
        places = frozenset(place for place in (0, 1) if source.random() < 0.8)
        items.append(Item(request=request, count=count, node_classes=places, bin_types=(0,)))
    bins = tuple(
        Bin(
            free=tuple(source.randint(0, size) for size in node),
            node_class=source.choice((0, 1)),
        )
        for _ in range(source.randint(0, 3))
    )
    return Problem(items=tuple(items), bins=bins, bin_types=(BinType(free=node),))


def optimum(problem: Problem) -> int:
    """Returns the least number of new nodes for the pods, by trying all ways to fill each node."""
    items = problem.items
    counts = tuple(item.count for item in items)

    def fillings(
        free: Vector, left: tuple[int, ...], allowed: tuple[bool, ...]
    ) -> list[tuple[int, ...]]:
        """Returns the largest combinations of pods that fit on a node."""
        ranges = [range((have if may else 0) + 1) for have, may in zip(left, allowed, strict=True)]
        fitting = [
            chosen
            for chosen in product(*ranges)
            if all(
                sum(n * item.request[axis] for n, item in zip(chosen, items, strict=True)) <= have
                for axis, have in enumerate(free)
            )
        ]
        chosen_set = set(fitting)
        return [
            chosen
            for chosen in fitting
            if not any(
                may
                and chosen[i] < left[i]
                and (*chosen[:i], chosen[i] + 1, *chosen[i + 1 :]) in chosen_set
                for i, may in enumerate(allowed)
            )
        ]

    everywhere = tuple(True for _ in items)

    @cache
    def new_nodes(left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        best = sum(left)
        for chosen in fillings(problem.bin_types[0].free, left, everywhere):
            if any(chosen):
                rest = tuple(a - b for a, b in zip(left, chosen, strict=True))
                best = min(best, 1 + new_nodes(rest))
        return best

    def over_bins(number: int, left: tuple[int, ...]) -> int:
        if number == len(problem.bins):
            return new_nodes(left)
        entry = problem.bins[number]
        allowed = tuple(entry.node_class in item.node_classes for item in items)
        return min(
            over_bins(number + 1, tuple(a - b for a, b in zip(left, chosen, strict=True)))
            for chosen in fillings(entry.free, left, allowed)
        )

    return over_bins(0, counts)


def test_packing_needs_at_most_a_node_more_than_the_optimum() -> None:
    source = random.Random(SEED)
    equal = 0
    for number in range(INSTANCES):
        problem = random_problem(source)
        packing = least_nodes(problem)
        check(problem, packing)
        assert not any(packing.left)
        best = optimum(problem)
        got = len(packing.opened)
        assert best <= got <= best + 1, f"instance {number} of seed {SEED}: {got} for {best}"
        equal += got == best
    assert equal >= INSTANCES * 0.995, f"{equal} of {INSTANCES} are optimal (seed {SEED})"
