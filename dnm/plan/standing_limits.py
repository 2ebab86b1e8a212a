"""The limits as they stand before anything is fenced, and whether they can be changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.cluster import QueueLimits
from dnm.model.plan import SetQueueLimits
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.plan.advance import Advanced
from dnm.plan.breaker import note_used_quota
from dnm.plan.queue_wants import queue_wants, set_queue_limits, with_fixed
from dnm.queues.edit import QueueEdit, plan_queue_edit


class StandingLimits(Value):
    """`refusal`: why no limit can be changed; empty: they can. `edit` is what `action` would make
    of the document; None: it is not known what to ask of it."""

    advanced: Advanced
    registry: Registry
    limits: Mapping[str, QueueLimits]
    refusal: str = ""
    action: SetQueueLimits | None = None
    edit: QueueEdit | None = None


def judge_limits(advanced: Advanced) -> StandingLimits:
    """Whether limits can be changed, before anything is decided that needs it: a document that
    refuses to grow (its ledger is full) may still shrink."""
    known = advanced.known
    if known.source is None or known.demand is None:
        return StandingLimits(
            advanced=advanced,
            registry=advanced.registry,
            limits=known.limits,
            refusal=known.refusal,
        )
    action = set_queue_limits(known.config, advanced.registry, known.demand)
    edit = plan_queue_edit(known.source, queue_wants(known.config, known.registry, action))
    refusal = edit.refusal
    if refusal:
        nothing_lent = SetQueueLimits(queues={}, floors=action.floors)
        wants = queue_wants(known.config, known.registry, nothing_lent)
        refusal = plan_queue_edit(known.source, wants).refusal
    limits = with_fixed(known.limits, edit.frozen)
    return StandingLimits(
        advanced=advanced,
        registry=note_used_quota(advanced.registry, known.config.instance_id, known.demand, limits),
        limits=limits,
        refusal=refusal,
        action=action,
        edit=edit,
    )
