"""The interface of the checks that each queue system adds to `dnm check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Protocol, cast

from dnm.checks.findings import Finding, doubtful, looks_at
from dnm.config.values import QUEUE_SYSTEMS
from dnm.demand.demand import Demand
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.permission import Permission
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.value import Value


class QueueProperties(Value):
    """The properties in which queue systems differ, e.g. what a limit of 0 means. `dnm check`
    prints them, and tests check them for each system."""

    writes_limits: bool  # False: there is no limit, and nodes alone bound the pods
    zero_means: str  # a limit of 0: `none` (no limit) or `nothing` (no pod)
    ancestors_grow: bool  # the limits above a queue must contain its nodes too
    shrinking_may_evict: bool  # the queue system may end pods if a limit falls below their use
    every_queue_is_limited: bool = False  # a queue that limits nothing cannot be lent nodes

    @property
    def sentence(self) -> str:
        """Returns a sentence that describes these properties to an administrator."""
        if not self.writes_limits:
            return "without quota: dnm changes no limit"
        above = " and of the queues above it" if self.ancestors_grow else ""
        zero = "no limit" if self.zero_means == "none" else "no pod"
        evicts = "; pods above a lowered limit may be ended" if self.shrinking_may_evict else ""
        return (
            f"dnm changes the limit of a queue{above} with its nodes; a limit of 0 means {zero}"
            f"{evicts}"
        )


class QueueChecks(Protocol):
    """The checks of a queue system, in the order in which `dnm check` shows them."""

    PROPERTIES: QueueProperties

    def find_trace(self, config: Config, kube: KubeClient) -> str:
        """Returns the object which shows that the cluster has this queue system; empty if there is
        none. Raises KubeError."""

    def permissions(self, config: Config) -> tuple[Permission, ...]:
        """Returns the API permissions that a run needs to read and write the limits."""

    def check_limits(
        self, config: Config, kube: KubeClient, snapshot: Snapshot
    ) -> Iterator[Finding]:
        """Checks whether the limits can be read and changed."""

    def check_queues(self, config: Config, snapshot: Snapshot) -> Iterator[Finding]:
        """Checks each monitored queue, e.g. that it exists and that only its pods use its nodes."""

    def check_demand(
        self,
        config: Config,
        snapshot: Snapshot,
        pods: PodList,
        count: Callable[[Config], Demand],
    ) -> Iterator[Finding]:
        """Reports demand that the queue system and dnm count differently, and demand that lent
        nodes would not help. `count` returns dnm's own count with a given configuration."""


def checks_of(config: Config) -> tuple[QueueChecks, ...]:
    """Returns the checks of each queue system that a monitored namespace has."""
    return tuple(map(_checks_named, sorted(config.queue_systems)))


def _checks_named(system: str) -> QueueChecks:
    return cast(QueueChecks, import_module(f"dnm.queues.{system}.admin.checks"))


@looks_at("queue system")
def check_other_systems(config: Config, kube: KubeClient) -> Iterator[Finding]:
    """Warns if the cluster has a queue system that no namespace uses, or lacks the configured one.
    A run never guesses the system, since a guess could change while nodes are lent."""
    traces: dict[str, str] = {}
    is_complete = True
    for system in QUEUE_SYSTEMS:
        try:
            traces[system] = _checks_named(system).find_trace(config, kube)
        except KubeError:  # dnm needs no right to read it
            is_complete = False
    present = {system: trace for system, trace in traces.items() if trace}
    is_lacking = bool(config.quota_system) and config.quota_system not in present
    for system, trace in present.items():
        if system not in config.queue_systems and (is_lacking or not config.quota_system):
            yield doubtful(
                f"there is {trace}, but no namespace has queue_system = {system}",
                f"if it limits the pods of these namespaces, set queue_system = {system} in "
                "[settings]; if nodes are lent, return them first",
            )
    if is_lacking and is_complete and not present:
        yield doubtful(
            f"queue_system = {config.quota_system}, but nothing in the cluster shows it",
            "if the cluster has no queue system, set queue_system = none in [settings]",
        )
