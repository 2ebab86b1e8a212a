"""Floors and caps, which may be percentages of the nodes that the batch side has."""

from __future__ import annotations

from dnm.model.value import Value


class Floor(Value):
    """The nodes that stay with Slurm: at least `nodes`, and at least `percent` of all nodes."""

    nodes: int = 0
    percent: float = 0.0

    def of(self, total: int) -> int:
        """Returns the floor for `total` nodes, rounded up."""
        return max(self.nodes, -(-total * round(self.percent * 1000) // 100_000))


class Share(Value):
    """A cap that is a percentage of the nodes."""

    percent: float

    def of(self, total: int) -> int:
        """Returns the cap for `total` nodes. It is rounded down, but a share above 0 gives at least
        one node, since a cap of 0 would exclude all."""
        nodes = total * round(self.percent * 1000) // 100_000
        return max(nodes, 1) if total and self.percent else nodes

    def __str__(self) -> str:
        """Returns the percentage as in the configuration: `25%`."""
        return f"{self.percent:g}%"


def most_of(cap: int | Share, total: int) -> int:
    """Returns a cap as a number of nodes; a percentage is applied to `total`."""
    return cap.of(total) if isinstance(cap, Share) else cap
