"""How many pods of each kind wait and run: all that the record of demand keeps of them, so that
another configuration can be played over it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dnm.model.history import PodKind
from dnm.model.value import Resources

MOST_KINDS = 100  # of one queue, those with the most pods


def list_kinds(
    pending: Iterable[tuple[Resources, int]], bound: Iterable[tuple[Resources, int]]
) -> tuple[PodKind, ...]:
    """Returns the kinds, of which there are at most MOST_KINDS, in a steady order."""
    waiting, running = _count(pending), _count(bound)
    largest = sorted((waiting + running).items(), key=lambda one: (-one[1], one[0]))[:MOST_KINDS]
    return tuple(
        PodKind(request=dict(request), pending=waiting[request], bound=running[request])
        for request in sorted(request for request, _ in largest)
    )


def _count(pods: Iterable[tuple[Resources, int]]) -> Counter[tuple[tuple[str, int], ...]]:
    counts: Counter[tuple[tuple[str, int], ...]] = Counter()
    for request, count in pods:
        plain = sorted((name, amount) for name, amount in request.items() if name != "pods")
        counts[tuple(plain)] += count
    return counts
