"""Limits that could not be read or written, and the queues that a run can use nevertheless. Pure.

Trouble with the limits of one queue must not change what happens to a queue of another queue system
or namespace. A queue without limits is never in trouble."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import Objection
from dnm.plan.refusal import explain_changed_system
from dnm.queues.namespaces import unlimited_queues
from dnm.queues.system import Queues


def without_limits(
    config: Config, registry: Registry, lent: Mapping[str, str], why: str
) -> tuple[Queues | None, Objection]:
    """Returns the queues without limits (None: there are none), and the objection to all others.
    `why` is its reason, empty if the queue system of a namespace has changed. `lent` has the queue
    system that was used to lend each namespace's nodes."""
    same = {
        name: policy
        for name, policy in config.namespaces.items()
        if lent.get(name, policy.queue_system) == policy.queue_system
    }
    queues = unlimited_queues(replace(config, namespaces=same))
    if why:
        return queues, Objection(reason=Reason.QUEUE_UNREADABLE, detail=why)
    return queues, explain_changed_system(config, registry, lent)


def rank_last(config: Config, unwritten: Collection[str]) -> Config:
    """Returns the configuration with the lowest priority for those queues with limits that the last
    run could not write. The next refused write skips their requests: ranked first, they would take
    the nodes and the `max_conversions_per_run` of the other queues in each run."""
    lowest = min(policy.priority for policy in config.namespaces.values()) - 1
    namespaces = {
        name: replace(policy, priority=lowest) if policy.queue in unwritten else policy
        for name, policy in config.namespaces.items()
    }
    return replace(config, namespaces=namespaces)
