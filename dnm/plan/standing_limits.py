"""The limits as they stand before anything is fenced, and whether they can be changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.cluster import QueueLimits
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.plan.advance import Advanced
from dnm.plan.breaker import note_used_quota
from dnm.plan.known import Known
from dnm.plan.queue_wants import floors, queue_wants, serving_sizes
from dnm.queues.edit import ForeseenEdit, foresee_edit, why_no_shrink


class StandingLimits(Value):
    """`refusal`: why no limit can be changed; empty: they can. `foreseen`: what would become of the
    document if nothing were fenced; None: it is not known what to ask of it."""

    advanced: Advanced
    registry: Registry
    limits: Mapping[str, QueueLimits]
    refusal: str = ""
    foreseen: ForeseenEdit | None = None


def judge_limits(advanced: Advanced) -> StandingLimits:
    """Tells whether limits can be changed, before anything is decided that needs it."""
    known = advanced.known
    if known.document is None or known.demand is None:
        return StandingLimits(
            advanced=advanced,
            registry=advanced.registry,
            limits=known.limits,
            refusal=known.refusal,
        )
    nodes = serving_sizes(known.config, advanced.registry)
    wants = queue_wants(known.config, known.registry, nodes, floors(known.demand))
    foreseen = foresee_edit(known.document, wants)
    limits = foreseen.edit.limits
    return StandingLimits(
        advanced=advanced,
        registry=note_used_quota(advanced.registry, _counted(known), known.demand, limits),
        limits=limits,
        refusal=why_no_shrink(known.document, foreseen),
        foreseen=foreseen,
    )


def _counted(known: Known) -> frozenset[str]:
    """Our nodes that the document in force counts already."""
    lenders, instance = known.facts.lenders or {}, known.config.instance_id
    return frozenset(name for name, lender in lenders.items() if lender == instance)
