"""The input and the result of an edit of the queue document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dnm.model.cluster import QueueLimits
from dnm.model.value import Resources, Value


class QueueWants(Value):
    """The state that one instance needs in the queue document.

    `nodes`: queue -> node -> recorded size, of exactly the nodes that serve it now. `floors`: queue
    -> the smallest allowed max (allocated now, the largest gang application), also of ancestors.
    `remembered`: the ledger that the last run of this instance recorded (None: not yet). It is used
    only if the part of this instance in the ledger is lost or older."""

    instance_id: str
    nodes: Mapping[str, Mapping[str, Resources]] = {}
    floors: Mapping[str, Resources] = {}
    remembered: str | None = None
    adjust_guaranteed: bool = True


class LimitChange(Value):
    """A change of one number in the queue document. `why`: the reason, for log and history."""

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
    """A queue's limit after the edit, in numbers. The limit of each limited resource is its
    baseline plus the lends of this and of other instances; `QueueEdit.held` explains exceptions."""

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
    """The next text and ledger of the queue document, and the reasons. `noted` is the ledger for
    the registry. If nothing is lent, `ledger` is empty, but `noted` has the text's checksum.

    `is_answer`: it has an administrator's answer, and the registry must record `noted`. `reset_by`:
    the client that set limits without the lent nodes, which the edit adds again. `planned_on`: the
    version that the edit may replace (None: there is none to replace). `is_changed`: something must
    be written. `refusal`: why nothing may be written, and the fix. `refused`: queue -> why nothing
    may be written for it alone. `held`: queue -> why its limit is not the computed one. `blocked`:
    the part of `held` that an administrator must fix, so that nodes count or the limit changes.
    `uncounted`: queue -> why its new nodes do not count. `news`: changes by other clients.
    `limits`: queue -> its limits afterwards."""

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
    """An edit that is computed but not yet checked. Decisions use the `limits` of `edit`."""

    wants: QueueWants
    edit: QueueEdit


class QueueOutcome(Value):
    """The result of a write. `edit` is in the cluster now, except for the queues in `failed`: queue
    -> why its limits could not be written. `is_confirmed`: the scheduler reports the checksum of
    the written text. None: it was not asked or did not answer."""

    edit: QueueEdit
    is_written: bool = False
    is_confirmed: bool | None = None
    failed: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
