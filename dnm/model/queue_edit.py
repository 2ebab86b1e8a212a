"""The input and the result of an edit that changes the limits of queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dnm.model.cluster import QueueLimits
from dnm.model.value import Resources, Value


class QueueWants(Value):
    """The nodes that the limits of queues must include for one dnm instance.

    `nodes` maps each queue to the nodes that serve it now, with their recorded sizes. `floors` has
    each queue's and ancestor's smallest allowed max (allocated now, the largest gang application).
    `remembered` is the ledger (dnm's record of its additions) of this instance's last run, or None.
    It is used only if this instance's part of the stored ledger is lost or older."""

    instance_id: str
    nodes: Mapping[str, Mapping[str, Resources]] = {}
    floors: Mapping[str, Resources] = {}
    remembered: str | None = None
    adjust_guaranteed: bool = True


class LimitChange(Value):
    """A change of one number among the limits. `why` is the reason, for the log and the history."""

    queue: str
    kind: str  # max | guaranteed
    resource: str
    before: str
    after: str
    why: str = ""


class LimitNews(Value):
    """A change of limits by another client. `is_reset`: the limits are back at their baselines."""

    queue: str
    text: str
    is_reset: bool = False

    @property
    def note(self) -> str:
        return f"{self.queue}: {self.text}"


class QueueNumbers(Value):
    """The numbers of a queue's limit after an edit. Each limit is its baseline plus the nodes lent
    by this and other instances. `QueueEdit.held` explains exceptions."""

    limit: Mapping[str, int] = {}
    baseline: Mapping[str, int] = {}
    lent: Mapping[str, int] = {}  # by this instance, including the queues below


class DocumentVersion(NamedTuple):
    """A key of a ConfigMap at one version. The API gives every write a new resourceVersion."""

    namespace: str
    name: str
    key: str
    resource_version: str


class QueueEdit(Value):
    """The next text of the queue document, its ledger (the record of dnm's additions), and reasons.
    `noted` is the ledger for the registry. If nothing is lent, only `noted` has the checksum.

    `is_answer`: the edit has an administrator's answer, and the registry must record `noted`.
    `reset_by`: the client that removed the lent nodes from limits; the edit adds them again.
    `planned_on`: the version that the edit may replace (None: none). `is_changed`: there is
    something to write. `refusal`: why nothing may be written, and the fix. `refused`: the same for
    one queue. `held`: queue -> why its limit is not the computed one. `blocked`: the part of `held`
    that an administrator must fix, so that nodes count or the limit changes. `uncounted`: queue ->
    why its new nodes do not count. `news`: changes by other clients. `limits`: queue -> its next
    limits."""

    text: str
    ledger: str
    noted: str | None = None
    is_answer: bool = False
    reset_by: str = ""
    planned_on: DocumentVersion | None = None
    is_changed: bool = False
    changes: tuple[LimitChange, ...] = ()
    notes: tuple[str, ...] = ()
    news: tuple[LimitNews, ...] = ()
    held: Mapping[str, str] = {}
    blocked: Mapping[str, str] = {}
    uncounted: Mapping[str, str] = {}
    refusal: str | None = None
    refused: Mapping[str, str] = {}
    numbers: Mapping[str, QueueNumbers] = {}
    limits: Mapping[str, QueueLimits] = {}


class Projection(Value):
    """An edit of limits that is computed, but not yet checked. Decisions use its `edit.limits`."""

    wants: QueueWants
    edit: QueueEdit


class QueueOutcome(Value):
    """The result of writing limits. `edit` is in the cluster now, except for the queues in
    `failed`, with the reasons. `is_confirmed` is True if the scheduler reports the checksum of the
    written text, and None if it was not asked or did not answer."""

    edit: QueueEdit
    is_written: bool = False
    is_confirmed: bool | None = None
    failed: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
