"""The limits as this run will write them: baseline plus what serves now, fences counted. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from dnm.model.cluster import QueueLimits
from dnm.model.plan import SetQueueLimits
from dnm.model.queue_edit import QueueEdit
from dnm.model.value import Value
from dnm.plan.fences import Fenced
from dnm.plan.known import Known
from dnm.plan.queue_wants import floors, queue_wants, serving_sizes
from dnm.queues.edit import edit_document


class PlannedLimits(Value):
    """`limits` as `edit` leaves them. `edit` None: it is not known what to ask of the document.
    `refusal`: why nothing of it can be changed."""

    fenced: Fenced
    limits: Mapping[str, QueueLimits]
    refusal: str = ""
    action: SetQueueLimits | None = None
    edit: QueueEdit | None = None

    @property
    def known(self) -> Known:
        return self.fenced.known

    @property
    def is_changed(self) -> bool:
        """Whether the document has to be written."""
        return self.edit is not None and self.edit.is_changed

    @property
    def diff(self) -> str:
        """Of the queue document, unified; empty where it stays as it is."""
        document = self.known.document
        if self.edit is None or document is None or not self.edit.is_changed:
            return ""
        texts = (document.source.text, self.edit.text)
        old, new = (text.splitlines(keepends=True) for text in texts)
        return "".join(difflib.unified_diff(old, new, "queues.yaml", "queues.yaml (planned)"))


def plan_limits(fenced: Fenced) -> PlannedLimits:
    """What the document must become for the nodes that serve now; planned anew only where
    something else is wanted than before the fences."""
    known, standing = fenced.known, fenced.standing
    if known.document is None or known.demand is None:
        return PlannedLimits(fenced=fenced, limits=standing.limits, refusal=standing.refusal)
    nodes = serving_sizes(known.config, fenced.registry)
    wants = queue_wants(known.config, known.registry, nodes, floors(known.demand))
    edit = edit_document(known.document, wants, standing.foreseen)
    return PlannedLimits(
        fenced=fenced,
        limits=standing.limits if edit.refusal else edit.limits,
        refusal=edit.refusal,
        action=SetQueueLimits(wants=wants, edit=edit),
        edit=edit,
    )
