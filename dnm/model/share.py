"""Floors and caps as percentages of the nodes that the batch side has."""

from __future__ import annotations

from dnm.model.value import Value


class Floor(Value):
    """The part that stays with Slurm: a number or a percentage of nodes."""

    nodes: int = 0
    percent: float = 0.0

    def of(self, total: int) -> int:
        """Returns the floor in nodes, rounded up."""
        return max(self.nodes, -(-total * round(self.percent * 1000) // 100_000))


class Share(Value):
    """A cap: a percentage of the nodes."""

    percent: float

    def of(self, total: int) -> int:
        """Returns the cap in nodes. It is rounded down, but a share above 0 gives at least one
        node, since a cap of 0 excludes all."""
        nodes = total * round(self.percent * 1000) // 100_000
        return max(nodes, 1) if total and self.percent else nodes

    def __str__(self) -> str:
        """Returns the text in the configuration."""
        return f"{self.percent:g}%"


def most_of(cap: int | Share, total: int) -> int:
    """Returns a cap in nodes, for a total of nodes."""
    return cap.of(total) if isinstance(cap, Share) else cap
