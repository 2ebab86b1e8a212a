"""YuniKorn's answers about an edited queue document: validation before the write, then reload."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from dnm.host.fault_points import waiting
from dnm.model.errors import KubeConflict, KubeError, QueueError, StoppedError
from dnm.queues.system import ConfigMaps
from dnm.queues.yunikorn.document_edit import DocumentEdit, DocumentOutcome
from dnm.queues.yunikorn.errors import YunikornError
from dnm.queues.yunikorn.rest import YunikornClient, checksum_of
from dnm.queues.yunikorn.source import SourceDocument, read_source, with_document

_TRIES = 5  # if other clients write at the same time
_LOOK_EVERY = timedelta(milliseconds=200)


def validate(yunikorn: YunikornClient, edit: DocumentEdit) -> tuple[str, ...]:
    """Returns a note if YuniKorn does not answer. Raises QueueError if it refuses the edit."""
    try:
        reason = yunikorn.validate(edit.text)
    except YunikornError as error:
        return (f"{error}; the edit was checked by dnm's own rules only",)
    if reason:
        raise QueueError(
            f"YuniKorn refuses the edited queue document: {reason}. dnm changed nothing, the old "
            "document stays"
        )
    return ()


def confirm(
    kube: ConfigMaps,
    place: tuple[str, str],
    yunikorn: YunikornClient,
    step: tuple[SourceDocument, DocumentOutcome],
    uptake: timedelta,
) -> DocumentOutcome:
    """Waits until YuniKorn has reloaded the document, and returns the outcome. If YuniKorn does not
    reload it in time, dnm restores the old document and raises QueueError."""
    before, outcome = step
    edit = outcome.edit
    if not before.is_hot_refreshed:
        return _unconfirmed(outcome, before.warnings[0])
    wanted, old = checksum_of(edit.text), checksum_of(before.text)

    def is_over(seen: str) -> bool:
        """Returns whether YuniKorn uses the edited document, or another client's later one."""
        return seen == wanted or (seen != old and not is_in_place(kube, place, edit))

    try:
        with waiting():
            seen, problem = _wait_for(yunikorn, is_over, uptake)
    except StoppedError as error:
        return _unconfirmed(outcome, f"{error}. `dnm check` asks YuniKorn")
    if seen is None:
        return _unconfirmed(outcome, problem)
    if seen == wanted:
        return replace(outcome, is_confirmed=True)
    if not is_in_place(kube, place, edit):
        return _unconfirmed(outcome, "another client changed the document before YuniKorn answered")
    _restore(kube, place, before, edit)
    raise QueueError(
        f"YuniKorn did not reload the edited queue document within {uptake.total_seconds():.0f} s "
        f"(it runs one with checksum {seen[:12] or 'none'}…). dnm restored the old document. See "
        "`reload configuration failed` in YuniKorn's log"
    )


def _unconfirmed(outcome: DocumentOutcome, why: str) -> DocumentOutcome:
    return replace(outcome, notes=(*outcome.notes, f"not confirmed by YuniKorn: {why}"))


def _wait_for(
    yunikorn: YunikornClient, is_over: Callable[[str], bool], uptake: timedelta
) -> tuple[str | None, str]:
    """Waits for a reload. Returns YuniKorn's last checksum (None: no answer) and last error."""
    deadline = time.monotonic() + uptake.total_seconds()
    seen: str | None = None
    problem = ""
    while True:
        try:
            seen = yunikorn.read_checksum()
            if is_over(seen):
                return seen, problem
        except (YunikornError, KubeError) as error:
            problem = str(error)
        if time.monotonic() >= deadline:
            return seen, problem
        time.sleep(min(_LOOK_EVERY.total_seconds(), max(deadline - time.monotonic(), 0)))


def _restore(
    kube: ConfigMaps, place: tuple[str, str], before: SourceDocument, edit: DocumentEdit
) -> None:
    """Writes the old document again, unless another client has changed the edited one."""
    for _ in range(_TRIES):
        now = read_source(kube, place)
        if now.text != edit.text or now.ledger_text != edit.ledger:
            return
        try:
            kube.write_config_map(with_document(now, before.text, before.ledger_text))
        except KubeConflict:
            continue
        except KubeError:
            if not is_in_place(kube, place, edit):
                return
            raise
        return


def is_in_place(kube: ConfigMaps, place: tuple[str, str], edit: DocumentEdit) -> bool:
    """Returns whether the ConfigMap has exactly the text and the ledger of the edit."""
    source = read_source(kube, place)
    return source.text == edit.text and source.ledger_text == edit.ledger
