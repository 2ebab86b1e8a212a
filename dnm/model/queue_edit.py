"""The input and the result of an edit of the queue document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dnm.model.cluster import QueueLimits
from dnm.model.value import Resources, Value


class QueueWants(Value):
    """The state that one instance needs in the document.

    `nodes`: queue -> node -> recorded size, of exactly the nodes that serve it now. `floors`: queue
    -> the least max (allocated now, the largest gang application), for ancestors too. `remembered`:
    the ledger that the last run of this instance recorded (None: no run has recorded one). It is
    used only if this instance's part of the ledger is lost or older.
    """

    instance_id: str
    nodes: Mapping[str, Mapping[str, Resources]] = {}
    floors: Mapping[str, Resources] = {}
    remembered: str | None = None
    adjust_guaranteed: bool = True


class LimitChange(Value):
    """A number of the document before and after. `why`: the reason, for log and history."""

    queue: str
    kind: str  # max | guaranteed
    resource: str
    before: str
    after: str
    why: str = ""


class QueueNumbers(Value):
    """A queue after the edit. limit = baseline + lent + the lends of other instances, for limited
    resources; `held` explains exceptions."""

    limit: Mapping[str, int] = {}
    baseline: Mapping[str, int] = {}
    lent: Mapping[str, int] = {}  # by this instance, below it too


class DocumentVersion(NamedTuple):
    """A version of the key of a ConfigMap: the API gives every write another resourceVersion."""

    namespace: str
    name: str
    key: str
    resource_version: str


class QueueEdit(Value):
    """The next text and ledger of the document, and why. `noted`: the ledger for the record, which
    also says of which text it is that nothing is lent.

    `is_answer`: a person has answered a question, and the record has to keep `noted`.
    `reset_by`: who has written limits without what is lent, which the edit adds again.
    `planned_on`: the state it was made from (None: none that could be written), which it may be
    written over. `is_changed`: something has to be written. `refusal`: nothing may be, and what a
    person can do about it. `held`: queue -> why its limit is not where it would be. `blocked`: of
    these, queue -> what a person has to mend, for nodes to be counted or a limit to be changed.
    `uncounted`: queue -> why new nodes of it are not counted. `notes`: what others did to the
    document. `limits`: of every queue, as they are then.
    """

    text: str
    ledger: str
    noted: str | None = None
    is_answer: bool = False
    reset_by: str = ""
    planned_on: DocumentVersion | None = None
    is_changed: bool = False
    changes: tuple[LimitChange, ...] = ()
    notes: tuple[str, ...] = ()
    held: Mapping[str, str] = {}
    blocked: Mapping[str, str] = {}
    uncounted: Mapping[str, str] = {}
    refusal: str | None = None
    numbers: Mapping[str, QueueNumbers] = {}
    limits: Mapping[str, QueueLimits] = {}


class QueueOutcome(Value):
    """The result of a write; `edit` is now in the ConfigMap. `is_confirmed`: the scheduler's
    checksum matches. None: the scheduler was not asked or did not answer."""

    edit: QueueEdit
    is_written: bool = False
    is_confirmed: bool | None = None
    notes: tuple[str, ...] = ()
