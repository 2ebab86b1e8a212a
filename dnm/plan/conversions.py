"""What each queue needs, and what is asked of the converter for it now. Pure.

A run in which no queue wants a node, nobody has ordered one and nothing was interrupted ends here;
all else is in `new_requests.py`.
"""

from __future__ import annotations

import msgspec

from dnm.demand.demand import Demand
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import Objection
from dnm.plan.advance import Advanced
from dnm.plan.fates import Fates
from dnm.plan.inputs import Inputs
from dnm.plan.lendable import conversion_budget, node_supply
from dnm.plan.limits import PlannedLimits, why_unjudged
from dnm.plan.new_requests import Conversions, ask_for_queues, waiting
from dnm.plan.orders import ask_for_orders
from dnm.sizing.queue_sizing import Sizing, size_at_rest
from dnm.sizing.sizing import size_wanting


class Decided(Value):
    """Everything that a plan is folded from."""

    inputs: Inputs
    seen: Advanced
    fates: Fates
    limits: PlannedLimits
    conversions: Conversions


def plan_conversions(inputs: Inputs, registry: Registry, limits: PlannedLimits) -> Conversions:
    """A verdict for every monitored queue, and the requests that follow."""
    start = Conversions(inputs=inputs, limits=limits, registry=registry)
    if inputs.demand is None:
        return _blind(start, Objection(reason=Reason.DEMAND_UNREADABLE))
    if inputs.facts.nodes is None or inputs.document is None:
        return _blind(start, limits.objection or Objection(reason=Reason.QUEUE_UNREADABLE))
    # What a person has asked for comes first: pods that wait find it on its way.
    ordered = ask_for_orders(start) if registry.orders else start
    sizing = _size(inputs, inputs.demand, ordered.registry, limits)
    objections = {
        queue: found
        for queue in inputs.config.queues
        if (found := why_unjudged(inputs, limits, queue)) is not None
    }
    judged = msgspec.structs.replace(
        ordered,
        verdicts={
            **sizing.verdicts,
            **{queue: waiting(queue, objection) for queue, objection in objections.items()},
        },
        errors=tuple(
            objection.detail
            for queue, objection in objections.items()
            if queue not in limits.limits and not inputs.document.is_built_in
        ),
        sizing=sizing,
    )
    if not (sizing.granted() or judged.registry.claimed):
        return judged
    return ask_for_queues(judged, sizing, registry)


def _size(inputs: Inputs, demand: Demand, registry: Registry, limits: PlannedLimits) -> Sizing:
    """What the queues need; what they are counted against is only made out where any needs some."""
    config = inputs.config
    at_rest = size_at_rest(config, demand, limits.limits)
    if at_rest is not None:
        return at_rest
    budget = conversion_budget(config, registry, inputs.facts)
    return size_wanting(config, demand, limits.limits, node_supply(inputs, registry), budget)


def _blind(start: Conversions, why: Objection) -> Conversions:
    """Nothing is known of any queue, so all of them wait."""
    verdicts = {queue: waiting(queue, why) for queue in start.inputs.config.queues}
    return msgspec.structs.replace(start, verdicts=verdicts)
