"""Another client of the API server that writes Nodes all the time, as kubelets and operators do."""

from __future__ import annotations

from collections.abc import Sequence

from tests.real.rig import Rig
from tests.real.slinky import Controller

KEY = "tests.example.org/written"


class SecondWriter(Controller):
    """A writer that patches each Node ten times a second inside its `with` block."""

    def __init__(self, rig: Rig, nodes: Sequence[str]) -> None:
        super().__init__(rig, pause=0.1)
        self.nodes = nodes
        self.writes = 0

    def step(self) -> None:
        for name in self.nodes:
            self.writes += 1
            patch = {"metadata": {"annotations": {KEY: str(self.writes)}}}
            self.api.patch(f"/api/v1/nodes/{name}", patch)
