"""The queue systems: `system` is their interface, and each of them is a package. plan, its rules,
simulate, run, kube, cli and every queue system import the interface. It imports model."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from dnm.model.config import Config
from dnm.queues.system import PodReading, QueueSystem


def system_of(config: Config) -> QueueSystem:
    """Returns the site's queue system. `none` wraps it if some namespaces have no queue system."""
    name = config.quota_system
    quota_system = cast(QueueSystem, _import(name, "system").SYSTEM) if name else None
    if quota_system and "none" not in config.queue_systems:
        return quota_system
    return cast(QueueSystem, _import("none", "system").NamespacesAsQueues(quota_system))


def unlimited_namespaces(config: Config) -> frozenset[str]:
    """Returns the namespaces without a queue system. Each of them is a queue without limits."""
    return config.namespaces_with("none")


def pod_reading_of(config: Config) -> PodReading:
    """Returns the reader of pods for the site's queue system."""
    return system_of(config).pod_reading(config)


def _import(name: str, module: str) -> Any:
    return import_module(f"dnm.queues.{name}.{module}")
