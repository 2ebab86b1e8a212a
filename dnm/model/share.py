"""Floors and caps as percentages of the nodes that the batch side has."""

from __future__ import annotations

from dnm.model.value import Value


class Floor(Value):
    """What is left to Slurm: so many nodes, or so many hundredths of those there are."""

    nodes: int = 0
    percent: float = 0.0

    def of(self, total: int) -> int:
        """Returns the floor in nodes, of so many; a part of a node is a node."""
        return max(self.nodes, -(-total * round(self.percent * 1000) // 100_000))


class Share(Value):
    """A cap: so many hundredths of those there are."""

    percent: float

    def of(self, total: int) -> int:
        """Returns the cap in nodes, of so many: a part of a node is none, but the first node of a
        share above 0 is one, as a cap of 0 is how none is said."""
        nodes = total * round(self.percent * 1000) // 100_000
        return max(nodes, 1) if total and self.percent else nodes

    def __str__(self) -> str:
        """As it stands in the file."""
        return f"{self.percent:g}%"


def most_of(cap: int | Share, total: int) -> int:
    """Returns a cap in nodes, of so many."""
    return cap.of(total) if isinstance(cap, Share) else cap
