"""The checks by `dnm check` of namespaces without a queue system."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dnm.checks.findings import Finding
from dnm.checks.node_types import check_node_types
from dnm.checks.queue_checks import QueueProperties
from dnm.demand.demand import Demand
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.permission import Permission
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList

PROPERTIES = QueueProperties(
    writes_limits=False, zero_means="nothing", ancestors_grow=False, shrinking_may_evict=False
)


def find_trace(config: Config, kube: KubeClient) -> str:
    """Returns an empty text, since no object shows that there is no queue system."""
    return ""


def permissions(config: Config) -> tuple[Permission, ...]:
    """Returns no permissions, since a run reads and writes no limits."""
    return ()


def check_limits(config: Config, kube: KubeClient, snapshot: Snapshot) -> Iterator[Finding]:
    """Reports nothing: these namespaces have no limits."""
    yield from ()


def check_queues(config: Config, snapshot: Snapshot) -> Iterator[Finding]:
    """Checks that only pods of a namespace without a queue system can use the nodes lent to it."""
    yield from check_node_types(config, config.namespaces_with("none"))


def check_demand(
    config: Config, snapshot: Snapshot, pods: PodList, count: Callable[[Config], Demand]
) -> Iterator[Finding]:
    """Reports nothing: without quota there is nothing to compare the demand with."""
    yield from ()
