"""The nodes that each queue needs, and those that are requested now. Pure.

Planning ends here if no queue needs a node, no administrator ordered one and no conversion was
interrupted. The rest is in `new_requests.py`."""

from __future__ import annotations

import msgspec

from dnm.demand.demand import Demand
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import Objection
from dnm.plan.advance import Advanced
from dnm.plan.inputs import Inputs
from dnm.plan.lendable import conversion_budget, node_supply
from dnm.plan.limits import PlannedLimits, queue_objection
from dnm.plan.new_requests import Conversions, request_for_queues, waiting_verdict
from dnm.plan.node_decisions import NodeDecisions
from dnm.plan.orders import request_for_orders
from dnm.sizing.queue_sizing import Sizing, size_without_demand
from dnm.sizing.sizing import size_with_demand


class Decided(Value):
    """The results of all stages of planning, from which `fold_plan` makes the plan."""

    inputs: Inputs
    seen: Advanced
    decisions: NodeDecisions
    limits: PlannedLimits
    conversions: Conversions


def plan_conversions(inputs: Inputs, registry: Registry, limits: PlannedLimits) -> Conversions:
    """Decides for every monitored queue whether it gets nodes, and makes the requests for them."""
    start = Conversions(inputs=inputs, limits=limits, registry=registry)
    if inputs.demand is None:
        return _all_wait(start, Objection(reason=Reason.DEMAND_UNREADABLE))
    if inputs.facts.nodes is None or inputs.queues is None:
        return _all_wait(start, limits.objection or Objection(reason=Reason.QUEUE_UNREADABLE))
    # Orders come first: their incoming nodes then count for pods that wait.
    ordered = request_for_orders(start) if registry.orders else start
    sizing = _size(inputs, inputs.demand, ordered.registry, limits)
    objections = {
        queue: refusal
        for queue in inputs.config.queues
        if (refusal := queue_objection(inputs, limits, queue)) is not None
    }
    judged = msgspec.structs.replace(
        ordered,
        verdicts={
            **sizing.verdicts,
            **{queue: waiting_verdict(queue, objection) for queue, objection in objections.items()},
        },
        errors=tuple(
            objection.detail
            for queue, objection in objections.items()
            if queue not in limits.limits and not inputs.queues.is_missing
        ),
        sizing=sizing,
    )
    if not (sizing.granted() or judged.registry.claimed):
        return judged
    return request_for_queues(judged, sizing, registry)


def _size(inputs: Inputs, demand: Demand, registry: Registry, limits: PlannedLimits) -> Sizing:
    """Returns how many nodes the queues need. Without any need, it does not look at nodes."""
    config = inputs.config
    at_rest = size_without_demand(config, demand, limits.limits)
    if at_rest is not None:
        return at_rest
    budget = conversion_budget(config, registry, inputs.facts)
    return size_with_demand(config, demand, limits.limits, node_supply(inputs, registry), budget)


def _all_wait(start: Conversions, objection: Objection) -> Conversions:
    """Returns the result if no queue could be evaluated: every queue waits, with this reason."""
    verdicts = {queue: waiting_verdict(queue, objection) for queue in start.inputs.config.queues}
    return msgspec.structs.replace(start, verdicts=verdicts)
