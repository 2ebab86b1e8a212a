"""Reads the queue document, lets a plan decide, writes it with its ledger in one update, proves it.

Exactly once by construction: text and ledger change together under the resourceVersion they were
decided on, every number is absolute, and after a lost answer the object itself is asked. Nothing
depends on a step having returned; the next call finds out by looking.
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

_TRIES = 5  # against others who write at the same time
_UPTAKE = timedelta(seconds=30)  # YuniKorn takes a changed ConfigMap up within a second
_LOOK_EVERY = timedelta(milliseconds=200)


class ConfigMaps(Protocol):
    """The part of the Kubernetes client that is needed here."""

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None: ...

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap: ...


class QueueOutcome(Value):
    """`edit` is what stands there now. `is_confirmed`: the scheduler's checksum says so; None: it
    was not asked, or could not be."""

    edit: QueueEdit
    is_written: bool = False
    is_confirmed: bool | None = None
    notes: tuple[str, ...] = ()


def read_source(kube: ConfigMaps, place: tuple[str, str]) -> SourceDocument:
    """Returns the document in force. Raises KubeError, and QueueError for a broken gzip."""
    maps = read_config_maps(kube.read_config_map, place)
    return resolve_document(*maps, place)


def apply_queue_edit(
    kube: ConfigMaps,
    place: tuple[str, str],
    plan: Callable[[SourceDocument], QueueEdit],
    yunikorn: YunikornClient | None = None,
    uptake: timedelta = _UPTAKE,
) -> QueueOutcome:
    """Writes the document that `plan` makes of the ConfigMap `place` (namespace and name), and
    plans again if another writer was faster.

    Raises QueueError where the plan refuses, YuniKorn refuses, or it does not take the document up
    in time (the old one is put back); KubeError where it can't be read or written.
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
            if not _stands_there(kube, place, edit):
                raise
            notes = (*notes, f"the write took effect although its answer was lost: {error}")
        outcome = QueueOutcome(edit=edit, is_written=True, notes=notes)
        if yunikorn is None or not has_new_text:
            return outcome
        return _confirm(kube, place, yunikorn, (source, outcome), uptake)
    raise KubeConflict(
        f"ConfigMap {'/'.join(place)} was changed by others {_TRIES} times in a row while "
        "dnm wanted to write; the next run tries again"
    )


def _prove(yunikorn: YunikornClient, edit: QueueEdit) -> tuple[str, ...]:
    try:
        reason = yunikorn.validate(edit.text)
    except YunikornError as error:
        return (f"{error}; the edit was checked by dnm's own rules only",)
    if reason:
        raise QueueError(
            f"YuniKorn refuses the edited queue document: {reason}; nothing was changed, the old "
            "document stands"
        )
    return ()


def _stands_there(kube: ConfigMaps, place: tuple[str, str], edit: QueueEdit) -> bool:
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
        """Ours is taken up, or another one is, which somebody has written over ours."""
        return seen == wanted or (seen != old and not _stands_there(kube, place, edit))

    try:
        with waiting():
            seen, problem = _wait_for(yunikorn, is_over, uptake)
    except StoppedError as error:
        return _unconfirmed(outcome, f"{error}; `dnm check` asks it")
    if seen is None:
        return _unconfirmed(outcome, problem)
    if seen == wanted:
        return replace(outcome, is_confirmed=True)
    if not _stands_there(kube, place, edit):
        return _unconfirmed(outcome, "somebody changed the document before YuniKorn was asked")
    _put_back(kube, place, before, edit)
    raise QueueError(
        f"YuniKorn did not take the edited queue document up within {uptake.total_seconds():.0f} s "
        f"(it runs one with checksum {seen[:12] or 'none'}…): the old document was put back; its "
        "log says why, under `reload configuration failed`"
    )


def _unconfirmed(outcome: QueueOutcome, why: str) -> QueueOutcome:
    return replace(outcome, notes=(*outcome.notes, f"not confirmed by YuniKorn: {why}"))


def _wait_for(
    yunikorn: YunikornClient, is_over: Callable[[str], bool], uptake: timedelta
) -> tuple[str | None, str]:
    """The checksum last seen (None: it never answered, and why)."""
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


def _put_back(
    kube: ConfigMaps, place: tuple[str, str], before: SourceDocument, edit: QueueEdit
) -> None:
    """The document as it was, unless somebody else has changed it by now."""
    for _ in range(_TRIES):
        now = read_source(kube, place)
        if now.text != edit.text or now.ledger_text != edit.ledger:
            return
        try:
            kube.write_config_map(with_document(now, before.text, before.ledger_text))
        except KubeConflict:
            continue
        except KubeError:
            if not _stands_there(kube, place, edit):
                return
            raise
        return
