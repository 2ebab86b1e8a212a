"""The part of `dnm check` that each queue system has in its own package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Protocol, cast

from dnm.checks.findings import Finding
from dnm.demand.demand import Demand
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.permission import Permission
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList


class QueueChecks(Protocol):
    """The checks of a queue system, in the order in which `dnm check` shows them."""

    def permissions(self, config: Config) -> tuple[Permission, ...]:
        """Returns what a run needs of the API to read and write the limits."""

    def check_limits(
        self, config: Config, kube: KubeClient, snapshot: Snapshot
    ) -> Iterator[Finding]:
        """Checks whether the limits can be read and changed."""

    def check_queues(self, config: Config, snapshot: Snapshot) -> Iterator[Finding]:
        """Checks each monitored queue."""

    def check_demand(
        self,
        config: Config,
        snapshot: Snapshot,
        pods: PodList,
        count: Callable[[Config], Demand],
    ) -> Iterator[Finding]:
        """Reports what is special about the demand. `count` returns dnm's demand below a
        configuration."""


def checks_of(config: Config) -> tuple[QueueChecks, ...]:
    """Returns the checks of each queue system that a monitored namespace has."""
    systems = sorted(config.queue_systems)
    modules = (import_module(f"dnm.queues.{system}.admin.checks") for system in systems)
    return tuple(cast(QueueChecks, module) for module in modules)
