"""The limits of the queue document: as they stand before anything is fenced, and as this run will
write them, baseline plus what serves then. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from dnm.demand.demand import Demand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.plan import SetQueueLimits
from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Resources, Value
from dnm.model.verdict import Objection
from dnm.plan.breaker import note_used_quota
from dnm.plan.inputs import Inputs
from dnm.queues.document import QueueDocument
from dnm.queues.edit import ForeseenEdit, edit_document, foresee_edit, why_no_shrink, why_refused


class StandingLimits(Value):
    """The limits before anything is fenced. `objection`: why no limit can be changed.
    `foreseen`: what would become of the document if nothing were fenced; None: it is not known
    what to ask of it."""

    registry: Registry
    limits: Mapping[str, QueueLimits]
    objection: Objection | None = None
    foreseen: ForeseenEdit | None = None


class PlannedLimits(Value):
    """`limits` as `edit` leaves them. `edit` None: it is not known what to ask of the document.
    `objection`: why nothing of it can be changed."""

    limits: Mapping[str, QueueLimits]
    objection: Objection | None = None
    action: SetQueueLimits | None = None
    edit: QueueEdit | None = None

    @property
    def is_changed(self) -> bool:
        """Whether the document has to be written."""
        return self.edit is not None and self.edit.is_changed

    @property
    def questions(self) -> list[str]:
        """What only a person can mend in the queue document."""
        if self.edit is None:
            return []
        if self.edit.refusal:
            return [self.edit.refusal]
        return [f"{queue}: {why}" for queue, why in self.edit.blocked.items()]


def judge_limits(inputs: Inputs, registry: Registry) -> StandingLimits:
    """Tells whether limits can be changed, before anything is decided that needs it."""
    if inputs.document is None or inputs.demand is None:
        return StandingLimits(registry=registry, limits=inputs.limits, objection=inputs.objection)
    wants = wants_of(inputs, registry, inputs.demand)
    foreseen = foresee_edit(inputs.document, wants)
    limits = foreseen.edit.limits
    if registry.nodes:
        counted = _counted(inputs)
        registry = note_used_quota(registry, counted, inputs.demand, limits)
    return StandingLimits(
        registry=registry,
        limits=limits,
        objection=why_no_shrink(inputs.document, foreseen),
        foreseen=foreseen,
    )


def plan_limits(inputs: Inputs, registry: Registry, standing: StandingLimits) -> PlannedLimits:
    """What the document must become for the nodes that serve now; planned anew only where
    something else is wanted than before the fences."""
    if inputs.document is None or inputs.demand is None:
        return PlannedLimits(limits=standing.limits, objection=standing.objection)
    wants = wants_of(inputs, registry, inputs.demand)
    edit = edit_document(inputs.document, wants, standing.foreseen)
    return PlannedLimits(
        limits=standing.limits if edit.refusal else edit.limits,
        objection=why_refused(edit),
        action=SetQueueLimits(wants=wants, edit=edit),
        edit=edit,
    )


def diff_of(document: QueueDocument | None, limits: PlannedLimits) -> str:
    """Returns what changes in the queue document, unified; empty where it stays as it is."""
    if limits.edit is None or document is None or not limits.is_changed:
        return ""
    texts = (document.source.text, limits.edit.text)
    old, new = (text.splitlines(keepends=True) for text in texts)
    return "".join(difflib.unified_diff(old, new, "queues.yaml", "queues.yaml (planned)"))


def why_unjudged(inputs: Inputs, limits: PlannedLimits, queue: str) -> Objection | None:
    """Why nothing that is known of the queue's pods and limits may be acted on."""
    if queue not in limits.limits and inputs.document and inputs.document.is_built_in:
        return limits.objection  # the queues are missing because the document is
    if queue not in limits.limits:
        close = difflib.get_close_matches(queue, limits.limits, n=1)
        hint = (
            f", did you mean {close[0]}?" if close else "; `dnm queues show` lists those there are"
        )
        detail = f"the queue document has no queue {queue}{hint}"
        return Objection(reason=Reason.QUEUE_UNREADABLE, detail=detail)
    if unread := inputs.unreadable_namespaces(queue):
        detail = f"namespace {', '.join(unread)}"
        return Objection(reason=Reason.DEMAND_UNREADABLE, detail=detail)
    return None


def _counted(inputs: Inputs) -> frozenset[str]:
    """Our nodes that the document in force counts already."""
    lenders, instance = inputs.facts.lenders or {}, inputs.config.instance_id
    return frozenset(name for name, lender in lenders.items() if lender == instance)


# --- what this instance asks of the queue document ----------------------------------------------


def wants_of(inputs: Inputs, registry: Registry, demand: Demand) -> QueueWants:
    """Returns what is asked while the nodes of this record serve."""
    nodes = serving_sizes(inputs.config, registry)
    return queue_wants(inputs.config, inputs.registry, nodes, floors(demand))


def queue_wants(
    config: Config,
    remembered: Registry,
    nodes: Mapping[str, Mapping[str, Resources]],
    floors: Mapping[str, Resources] | None = None,
) -> QueueWants:
    """Returns what this instance asks while `nodes` serve (`serving_sizes`). `remembered` has the
    ledger as the last run left it, in case it is lost."""
    return QueueWants(
        instance_id=config.instance_id,
        nodes=nodes,
        floors=floors or {},
        remembered=remembered.last_run.ledger,
        adjust_guaranteed=config.adjust_guaranteed,
    )


def serving_sizes(config: Config, registry: Registry) -> dict[str, dict[str, dict[str, int]]]:
    """Queue -> node -> recorded size, of exactly the nodes of this instance that serve now."""
    queues: dict[str, dict[str, dict[str, int]]] = {}
    for name, entry in registry.nodes_of(config.instance_id, Phase.SERVING).items():
        queues.setdefault(entry.queue, {})[name] = dict(entry.counted)
    return queues


def floors(demand: Demand) -> dict[str, dict[str, int]]:
    """What no limit may shrink below: allocated now, and the largest gang application."""
    return {
        path: {
            name: max(queue.used.get(name, 0), queue.largest_gang.get(name, 0))
            for name in {*queue.used, *queue.largest_gang}
        }
        for path, queue in demand.queues.items()
    }
