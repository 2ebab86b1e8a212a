"""The queue systems: `system` is their interface, and each of them is a package. plan, its rules,
run, kube, cli and every queue system (none, yunikorn) import the interface. It imports model."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from dnm.model.config import Config
from dnm.queues.system import PodReading, QueueSystem


def system_of(config: Config) -> QueueSystem:
    """Imports the queue system of a site, or both if some of its namespaces have none."""
    systems = config.queue_systems
    quota_system = None
    if systems != {"none"}:
        quota_system = cast(QueueSystem, import_module("dnm.queues.yunikorn.system").SYSTEM)
        if "none" not in systems:
            return quota_system
    return cast(
        QueueSystem, import_module("dnm.queues.none.system").NamespacesAsQueues(quota_system)
    )


def pod_reading_of(config: Config) -> PodReading:
    """Returns how the pods are read for the queue system of a site."""
    return system_of(config).pod_reading(config)
