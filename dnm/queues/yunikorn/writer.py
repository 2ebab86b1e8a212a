"""The writer of the queue document: reads, lets a plan decide, writes text and ledger, and
verifies.

Each update changes text and ledger, under the resourceVersion that the plan used. Every number is
absolute. After a lost answer dnm reads the object. No step relies on an earlier call having
returned; each call reads the current state.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from dnm.model.errors import KubeConflict, KubeError, QueueError
from dnm.model.queue_edit import QueueEdit, QueueOutcome
from dnm.queues.yunikorn.source import ConfigMaps, SourceDocument, read_source, with_document

if TYPE_CHECKING:
    from dnm.queues.yunikorn.rest import YunikornClient

_TRIES = 5  # if other clients write at the same time
_UPTAKE = timedelta(seconds=30)  # YuniKorn reloads a changed ConfigMap within a second


def apply_queue_edit(
    kube: ConfigMaps,
    place: tuple[str, str],
    plan: Callable[[SourceDocument], QueueEdit],
    yunikorn: YunikornClient | None = None,
    uptake: timedelta = _UPTAKE,
) -> QueueOutcome:
    """Writes the document that `plan` makes of the ConfigMap `place` (namespace and name). It plans
    again if another writer was faster.

    Raises QueueError if the plan or YuniKorn refuses, or if YuniKorn does not reload the document
    in time (dnm restores the old one). Raises KubeError if it can't be read or written.
    """
    for _ in range(_TRIES):
        source = read_source(kube, place)
        edit = plan(source)
        if edit.refusal:
            raise QueueError(edit.refusal)
        if not edit.is_changed:
            return QueueOutcome(edit=edit)
        has_new_text = edit.text != source.text
        notes: tuple[str, ...] = ()
        if yunikorn and has_new_text:
            from dnm.queues.yunikorn.uptake import confirm, validate  # few sites set `yunikorn_url`

            notes = validate(yunikorn, edit)
        try:
            kube.write_config_map(with_document(source, edit.text, edit.ledger))
        except KubeConflict:
            continue
        except KubeError as error:
            from dnm.queues.yunikorn.uptake import is_in_place

            if not is_in_place(kube, place, edit):
                raise
            notes = (*notes, f"the write took effect although its answer was lost: {error}")
        outcome = QueueOutcome(edit=edit, is_written=True, notes=notes)
        if yunikorn is None or not has_new_text:
            return outcome
        return confirm(kube, place, yunikorn, (source, outcome), uptake)
    raise KubeConflict(
        f"cannot write ConfigMap {'/'.join(place)}: other clients changed it {_TRIES} times in a "
        "row. The next run tries again"
    )
