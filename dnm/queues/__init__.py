"""The queue systems: `system` is their interface, and each of them is a package. plan, its rules,
run, cli and every queue system (none, yunikorn) import the interface. It imports model."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from dnm.model.config import Config
from dnm.queues.system import QueueSystem


def system_of(config: Config) -> QueueSystem:
    """Imports the queue system of a site, or both if some of its namespaces have none."""
    systems = config.queue_systems
    others = None
    if systems != {"none"}:
        others = cast(QueueSystem, import_module("dnm.queues.yunikorn.system").SYSTEM)
        if "none" not in systems:
            return others
    return cast(QueueSystem, import_module("dnm.queues.none.system").NamespacesAsQueues(others))
