"""Lower and upper limits on numbers of nodes, which may be percentages of the nodes in Slurm."""

from __future__ import annotations

from dnm.model.value import Value


class Floor(Value):
    """The nodes that must stay with Slurm: at least `nodes`, and at least `percent` of all."""

    nodes: int = 0
    percent: float = 0.0

    def of(self, total: int) -> int:
        """Returns how many of `total` nodes must stay with Slurm, rounded up."""
        return max(self.nodes, -(-total * round(self.percent * 1000) // 100_000))


class Share(Value):
    """A cap on lent nodes, configured as a percentage of the nodes in Slurm."""

    percent: float

    def of(self, total: int) -> int:
        """Returns the cap in nodes if Slurm has `total` nodes. It is rounded down, but a percentage
        above 0 allows at least one node, since a cap of 0 would allow none."""
        nodes = total * round(self.percent * 1000) // 100_000
        return max(nodes, 1) if total and self.percent else nodes

    def __str__(self) -> str:
        """Returns the percentage in the form of the configuration: `25%`."""
        return f"{self.percent:g}%"


def most_of(cap: int | Share, total: int) -> int:
    """Returns a cap as a number of nodes. A percentage is taken of `total`."""
    return cap.of(total) if isinstance(cap, Share) else cap
