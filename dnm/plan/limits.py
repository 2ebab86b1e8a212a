"""The limits as this run will write them: baseline plus what serves now, fences counted. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from dnm.model.cluster import QueueLimits
from dnm.model.plan import SetQueueLimits
from dnm.model.value import Value
from dnm.plan.fences import Fenced
from dnm.plan.queue_wants import queue_wants, set_queue_limits, with_fixed
from dnm.queues.document import parse_document
from dnm.queues.edit import QueueEdit, plan_queue_edit


class PlannedLimits(Value):
    """`limits` as `edit` leaves them. `edit` None: it is not known what to ask of the document.
    `refusal`: why nothing of it can be changed."""

    fenced: Fenced
    limits: Mapping[str, QueueLimits]
    refusal: str = ""
    action: SetQueueLimits | None = None
    edit: QueueEdit | None = None

    @property
    def is_changed(self) -> bool:
        """Whether the document has to be written."""
        return self.edit is not None and self.edit.is_changed

    @property
    def diff(self) -> str:
        """Of the queue document, unified; empty where it stays as it is."""
        source = self.fenced.known.source
        if self.edit is None or source is None or not self.edit.is_changed:
            return ""
        old, new = (text.splitlines(keepends=True) for text in (source.text, self.edit.text))
        return "".join(difflib.unified_diff(old, new, "queues.yaml", "queues.yaml (planned)"))


def plan_limits(fenced: Fenced) -> PlannedLimits:
    """What the document must become for the nodes that serve now; planned anew only where
    something else is wanted than before the fences."""
    known, standing = fenced.known, fenced.standing
    if known.source is None or known.demand is None:
        return PlannedLimits(fenced=fenced, limits=standing.limits, refusal=standing.refusal)
    action = set_queue_limits(known.config, fenced.registry, known.demand)
    edit = standing.edit
    if edit is None or action != standing.action:
        edit = plan_queue_edit(known.source, queue_wants(known.config, known.registry, action))
    limits = parse_document(edit.text).queues if edit.is_changed else standing.limits
    return PlannedLimits(
        fenced=fenced,
        limits=with_fixed(limits, edit.frozen),
        refusal=edit.refusal,
        action=action,
        edit=edit,
    )
