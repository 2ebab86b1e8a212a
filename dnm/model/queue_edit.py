"""The input and the result of an edit that changes the limits of queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

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

    def with_more_nodes(self, queue: str, sizes: Iterable[Resources]) -> QueueWants:
        """Returns a copy with further nodes of these sizes for one queue, as if they were lent."""
        more = {f"the next {number}": size for number, size in enumerate(sizes)}
        own = {**self.nodes.get(queue, {}), **more}
        return replace(self, nodes={**self.nodes, queue: own})


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


class QueueEdit(Value):
    """The next limits of all queues, with reasons. A queue system adds fields of its own.

    `record`: the ledger (the record of dnm's additions) that the registry is to store.
    `reset_by`: the client that removed the lent nodes from limits; the edit adds them again.
    `is_changed`: there is something to write. `limit_news`: changes of limits by other clients.
    `ledger_news`: the same for the ledger beside the limits. `refusal`: why nothing may be written,
    and the fix. `refused`: the same for one queue. `held`: queue -> why its limit is not the
    computed one. `blocked`: the part of `held` that an administrator must fix, so that nodes count
    or the limit changes. `uncounted`: queue -> why its new nodes do not count. `limits`: queue ->
    its next limits."""

    record: str | None = None
    reset_by: str = ""
    is_changed: bool = False
    changes: tuple[LimitChange, ...] = ()
    limit_news: tuple[LimitNews, ...] = ()
    ledger_news: tuple[str, ...] = ()
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
