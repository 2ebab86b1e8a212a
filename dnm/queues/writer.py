"""The writer of the queue document: reads, lets a plan decide, writes text and ledger, and
verifies.

Each update changes text and ledger, under the resourceVersion that the plan used. Every number is
absolute. After a lost answer dnm reads the object. No step relies on an earlier call having
returned; each call reads the current state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from msgspec.structs import replace

from dnm.host.fault_points import waiting
from dnm.model.cluster import ConfigMap
from dnm.model.errors import KubeConflict, KubeError, QueueError, StoppedError, YunikornError
from dnm.model.queue_edit import QueueEdit
from dnm.model.value import Value
from dnm.queues.source import (
    SourceDocument,
    read_config_maps,
    resolve_document,
    with_document,
)
from dnm.queues.yunikorn_rest import YunikornClient, checksum_of

_TRIES = 5  # if other clients write at the same time
_UPTAKE = timedelta(seconds=30)  # YuniKorn reloads a changed ConfigMap within a second
_LOOK_EVERY = timedelta(milliseconds=200)


class ConfigMaps(Protocol):
    """The part of the Kubernetes client that the writer needs."""

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None: ...

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap: ...


class QueueOutcome(Value):
    """The result of a write; `edit` is now in the ConfigMap. `is_confirmed`: the scheduler's
    checksum matches. None: the scheduler was not asked or did not answer."""

    edit: QueueEdit
    is_written: bool = False
    is_confirmed: bool | None = None
    notes: tuple[str, ...] = ()


def read_source(kube: ConfigMaps, place: tuple[str, str]) -> SourceDocument:
    """Reads the current document. Raises KubeError, and QueueError for a broken gzip."""
    maps = read_config_maps(kube.read_config_map, place)
    return resolve_document(*maps, place)


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
        notes = _prove(yunikorn, edit) if yunikorn and has_new_text else ()
        try:
            kube.write_config_map(with_document(source, edit.text, edit.ledger))
        except KubeConflict:
            continue
        except KubeError as error:
            if not _is_in_place(kube, place, edit):
                raise
            notes = (*notes, f"the write took effect although its answer was lost: {error}")
        outcome = QueueOutcome(edit=edit, is_written=True, notes=notes)
        if yunikorn is None or not has_new_text:
            return outcome
        return _confirm(kube, place, yunikorn, (source, outcome), uptake)
    raise KubeConflict(
        f"cannot write ConfigMap {'/'.join(place)}: other clients changed it {_TRIES} times in a "
        "row. The next run tries again"
    )


def _prove(yunikorn: YunikornClient, edit: QueueEdit) -> tuple[str, ...]:
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


def _is_in_place(kube: ConfigMaps, place: tuple[str, str], edit: QueueEdit) -> bool:
    found = read_source(kube, place)
    return found.text == edit.text and found.ledger_text == edit.ledger


def _confirm(
    kube: ConfigMaps,
    place: tuple[str, str],
    yunikorn: YunikornClient,
    step: tuple[SourceDocument, QueueOutcome],
    uptake: timedelta,
) -> QueueOutcome:
    before, outcome = step
    edit = outcome.edit
    if not before.is_hot_refreshed:
        return _unconfirmed(outcome, before.warnings[0])
    wanted, old = checksum_of(edit.text), checksum_of(before.text)

    def is_over(seen: str) -> bool:
        """Returns whether YuniKorn runs our document, or one that another client wrote since."""
        return seen == wanted or (seen != old and not _is_in_place(kube, place, edit))

    try:
        with waiting():
            seen, problem = _wait_for(yunikorn, is_over, uptake)
    except StoppedError as error:
        return _unconfirmed(outcome, f"{error}. `dnm check` asks YuniKorn")
    if seen is None:
        return _unconfirmed(outcome, problem)
    if seen == wanted:
        return replace(outcome, is_confirmed=True)
    if not _is_in_place(kube, place, edit):
        return _unconfirmed(outcome, "another client changed the document before YuniKorn answered")
    _restore(kube, place, before, edit)
    raise QueueError(
        f"YuniKorn did not reload the edited queue document within {uptake.total_seconds():.0f} s "
        f"(it runs one with checksum {seen[:12] or 'none'}…). dnm restored the old document. See "
        "`reload configuration failed` in YuniKorn's log"
    )


def _unconfirmed(outcome: QueueOutcome, why: str) -> QueueOutcome:
    return replace(outcome, notes=(*outcome.notes, f"not confirmed by YuniKorn: {why}"))


def _wait_for(
    yunikorn: YunikornClient, is_over: Callable[[str], bool], uptake: timedelta
) -> tuple[str | None, str]:
    """Returns the checksum last read (None: YuniKorn never answered) and the last problem."""
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
    kube: ConfigMaps, place: tuple[str, str], before: SourceDocument, edit: QueueEdit
) -> None:
    """Restores the old document, unless another client has changed it since."""
    for _ in range(_TRIES):
        now = read_source(kube, place)
        if now.text != edit.text or now.ledger_text != edit.ledger:
            return
        try:
            kube.write_config_map(with_document(now, before.text, before.ledger_text))
        except KubeConflict:
            continue
        except KubeError:
            if not _is_in_place(kube, place, edit):
                return
            raise
        return
