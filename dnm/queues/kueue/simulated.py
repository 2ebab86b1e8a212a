"""Kueue for `dnm simulate`, which refuses it: a simulated cluster has no Workloads."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.config import Config
from dnm.model.errors import QueueError
from dnm.model.value import Resources


class SimulatedKueue:
    """A queue system that cannot be simulated: a call raises QueueError."""

    def __init__(self, config: Config, limits: Mapping[str, Resources]) -> None:
        raise QueueError(
            "cannot simulate queue_system = kueue: write queue_system = none into a copy of the ini"
        )


SimulatedMaps = SimulatedKueue
