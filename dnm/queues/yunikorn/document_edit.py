"""The edit of YuniKorn's queue document, and its outcome, as values."""

from __future__ import annotations

from typing import NamedTuple

from dnm.model.queue_edit import QueueEdit, QueueOutcome


class DocumentVersion(NamedTuple):
    """A key of a ConfigMap at one version. The API gives every write a new resourceVersion."""

    namespace: str
    name: str
    key: str
    resource_version: str


class DocumentEdit(QueueEdit, kw_only=True):
    """The next text of the queue document, and the ledger beside it in the annotation. If nothing
    is lent, there is no annotation, and only `record` has the checksum of the text.

    `planned_on`: the version that the edit may replace (None: none). `is_answer`: the edit has an
    administrator's answer, and the registry must store `record`."""

    text: str
    ledger: str
    planned_on: DocumentVersion | None = None
    is_answer: bool = False


class DocumentOutcome(QueueOutcome, kw_only=True):
    """The result of writing the queue document."""

    edit: DocumentEdit
