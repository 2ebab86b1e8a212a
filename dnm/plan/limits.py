"""The limits of queues: the current ones (before any cordon), and the planned ones (baseline plus
serving nodes). Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from dnm.demand.demand import Demand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.plan import SetQueueLimits
from dnm.model.queue_edit import Projection, QueueEdit, QueueWants
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Resources, Value
from dnm.model.verdict import Objection, limits_objection
from dnm.plan.breaker import record_used_quota
from dnm.plan.inputs import Inputs
from dnm.queues.system import Queues


class CurrentLimits(Value):
    """The limits before this run cordons a node. `objection` is the reason why no limit can be
    changed. `projected` are the limits without a cordon, or None if they could not be computed."""

    registry: Registry
    limits: Mapping[str, QueueLimits]
    objection: Objection | None = None
    projected: Projection | None = None
    edit: QueueEdit | None = None  # of `projected`


class PlannedLimits(Value):
    """The limits after this run's `edit` (None: it could not be computed). `objection` is the
    reason why no limit can be changed."""

    limits: Mapping[str, QueueLimits]
    objection: Objection | None = None
    action: SetQueueLimits | None = None
    edit: QueueEdit | None = None

    @property
    def is_changed(self) -> bool:
        """Returns whether the document that contains the limits must be written."""
        return self.edit is not None and self.edit.is_changed

    @property
    def questions(self) -> list[str]:
        """Returns the problems with the limits that only an administrator can fix."""
        if self.edit is None:
            why = self.objection
            return [why.detail] if why and why.needs_person else []
        if self.edit.refusal:
            return [self.edit.refusal]
        return [f"{queue}: {why}" for queue, why in self.edit.blocked.items()]


def judge_limits(inputs: Inputs, registry: Registry) -> CurrentLimits:
    """Returns the current limits and whether they can be changed, on which decisions depend."""
    if inputs.objection or inputs.queues is None or inputs.demand is None:
        return CurrentLimits(registry=registry, limits=inputs.limits, objection=inputs.objection)
    wants = wants_of(inputs, registry, inputs.demand)
    projected = inputs.queues.project(wants)
    limits = projected.edit.limits
    if registry.nodes:
        counted_nodes = _counted_nodes(inputs)
        registry = record_used_quota(registry, counted_nodes, inputs.demand, limits)
    return CurrentLimits(
        registry=registry, limits=limits, projected=projected, edit=projected.edit,
        objection=inputs.queues.shrink_objection(projected),
    )  # fmt: skip


def plan_limits(inputs: Inputs, registry: Registry, current: CurrentLimits) -> PlannedLimits:
    """Plans the limits for the nodes that serve now. It reuses the projected edit if that was
    computed for the same nodes."""
    if inputs.objection or inputs.queues is None or inputs.demand is None:
        return PlannedLimits(limits=current.limits, objection=current.objection)
    wants = wants_of(inputs, registry, inputs.demand)
    edit = inputs.queues.plan(wants, current.projected)
    return PlannedLimits(
        limits=current.limits if edit.refusal else edit.limits, edit=edit,
        objection=limits_objection(edit.refusal), action=SetQueueLimits(wants=wants, edit=edit),
    )  # fmt: skip


def diff_of(queues: Queues | None, limits: PlannedLimits) -> str:
    """Returns the unified diff of the document with the limits; empty if they do not change."""
    if limits.edit is None or queues is None or not limits.is_changed:
        return ""
    return queues.show_difference(limits.edit)


def queue_objection(inputs: Inputs, limits: PlannedLimits, queue: str) -> Objection | None:
    """Returns why dnm must not act for a queue, or None: its limits or pods could not be read."""
    if objection := inputs.objection_to(queue):
        return objection
    if queue not in limits.limits and inputs.queues and inputs.queues.is_missing:
        return limits.objection  # the queues are missing because the document is
    if queue not in limits.limits:
        close = difflib.get_close_matches(queue, limits.limits, n=1)
        hint = f", did you mean {close[0]}?" if close else ""
        detail = f"the queue system has no queue {queue}{hint}"
        return Objection(reason=Reason.QUEUE_UNREADABLE, detail=detail)
    if unread := inputs.unreadable_namespaces(queue):
        detail = f"namespace {', '.join(unread)}"
        return Objection(reason=Reason.DEMAND_UNREADABLE, detail=detail)
    return None


def lending_objection(inputs: Inputs, limits: PlannedLimits, queue: str) -> Objection | None:
    """Returns the reason in a queue's pods and limits why no node may be lent to it, or None."""
    return queue_objection(inputs, limits, queue) or limits_objection_to(inputs, limits, queue)


def limits_objection_to(
    inputs: Inputs, limits: CurrentLimits | PlannedLimits, queue: str
) -> Objection | None:
    """Returns why the limits of a queue are unknown or cannot be changed, or None."""
    refused = limits.edit.refused.get(queue) if limits.edit else None
    return inputs.objection_to(queue, limits.objection) or limits_objection(refused)


def _counted_nodes(inputs: Inputs) -> frozenset[str]:
    """Returns this instance's nodes that the current limits include, according to the ledger."""
    lenders, instance = inputs.facts.lenders or {}, inputs.config.instance_id
    return frozenset(name for name, lender in lenders.items() if lender == instance)


# --- the desired content of the queue document --------------------------------------------------


def wants_of(inputs: Inputs, registry: Registry, demand: Demand) -> QueueWants:
    """Returns what the limits must include while the serving nodes of `registry` serve."""
    nodes = serving_sizes(inputs.config, registry)
    return queue_wants(inputs.config, inputs.registry, nodes, floors(demand))


def queue_wants(
    config: Config,
    remembered: Registry,
    nodes: Mapping[str, Mapping[str, Resources]],
    floors: Mapping[str, Resources] | None = None,
) -> QueueWants:
    """Returns what the limits must include while `nodes` serve (see `serving_sizes`). `remembered`
    is a registry with the last run's ledger, in case that is lost. Another queue system's ledger
    does not count. Without limits it is kept for the queue system that the site had before."""
    last_run, system = remembered.last_run, config.quota_system
    is_own = not system or last_run.ledger_system in ("", system)
    return QueueWants(
        instance_id=config.instance_id, nodes=nodes, floors=floors or {},
        remembered=last_run.ledger if is_own else None, adjust_guaranteed=config.adjust_guaranteed,
    )  # fmt: skip


def serving_sizes(config: Config, registry: Registry) -> dict[str, dict[str, dict[str, int]]]:
    """Returns the recorded size of each node of this instance that serves, by queue and node."""
    queues: dict[str, dict[str, dict[str, int]]] = {}
    for name, entry in registry.nodes_of(config.instance_id, Phase.SERVING).items():
        queues.setdefault(entry.queue, {})[name] = dict(entry.counted)
    return queues


def floors(demand: Demand) -> dict[str, dict[str, int]]:
    """Returns the lowest allowed limits: what pods use, or the largest gang's request if more."""
    return {
        path: {
            name: max(queue.used.get(name, 0), queue.largest_gang.get(name, 0))
            for name in {*queue.used, *queue.largest_gang}
        }
        for path, queue in demand.queues.items()
    }
