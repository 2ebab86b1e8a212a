"""Observations over many runs, of node types, queues, pods and reservations."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from dnm.model.value import Moment, Value


class Backoff(Value):
    """The back-off after failed conversions of a node type."""

    failures: int
    until: Moment
    ask_at_most: int
    last_error: str = ""
    since: Moment | None = None  # the last failure; None: not known


class Breaker(Value):
    """The circuit breaker of a queue. `unused`: how many nodes in a row stayed unused."""

    # Below zero after `dnm reset`, which forgives so many. The registry has another name for it.
    unused: int = msgspec.field(default=0, name="strikes")
    tripped_at: Moment | None = None
    demand: str = ""  # fingerprint of the pending pods when it tripped
    trips: int = 0  # since the last used node


class StalledPods(Value):
    """Equal pods that stayed pending beside an idle node with enough free capacity and quota. They
    wait for another cause and do not count as demand while exactly these pods are pending."""

    count: int
    until: str  # creation time of the youngest, RFC 3339 as the API prints it


class LentAgain(Value):
    """Measurements of how soon a queue needs idle nodes again. `pauses`: the seconds for which
    nodes were idle before they were needed again. `gone`: returned nodes that the queue may soon
    need again, each as the time since which it was idle."""

    pauses: tuple[int, ...] = ()
    gone: tuple[Moment, ...] = ()


class LendTimes(Value):
    """The durations of conversions of a node type in seconds, the latest last: `lends` from the
    request until the node serves, `returns` from the converter's call until Slurm has it again."""

    lends: tuple[int, ...] = ()
    returns: tuple[int, ...] = ()


class ReservationAttempt(Value):
    """The last try to reserve `wanted` nodes for an occurrence. `missing` were not reserved."""

    at: Moment
    missing: int
    wanted: int


class SpentHours(Value):
    """The time that returned nodes have used of a namespace's budget of node-hours in the week that
    begins at `week`."""

    week: Moment
    seconds: float


class LowUse(Value):
    """A queue with pods that use less than a tenth of its lent nodes: since when, the highest
    percentage, the number of nodes, and whether dnm reports it."""

    since: Moment
    percent: int
    nodes: int
    is_reported: bool = False


class DocumentResets(Value):
    """The record of how often another client took the lent nodes out of the document's limits."""

    manager: str
    count: int
    since: Moment
    last: Moment

    @property
    def is_news(self) -> bool:
        """Returns whether the log reports the last reset: the 3rd, 10th, 100th, 1,000th ..."""
        return self.count == _RESETS_IN_A_ROW or (
            self.count > _RESETS_IN_A_ROW and str(self.count).rstrip("0") == "1"
        )

    @property
    def sentence(self) -> str:
        """Returns a sentence that reports the resets, with the next step."""
        return (
            f"the limits were reset by {self.manager} {self.count} times since "
            f"{self.since:%Y-%m-%d %H:%M} UTC; exclude them from the manifest (docs/kubernetes.md)"
        )

    def is_repeated(self, now: datetime) -> bool:
        """Returns whether 3 or more resets came, each within an hour of the one before."""
        return self.count >= _RESETS_IN_A_ROW and now - self.last <= _RESET_PAUSE


_RESETS_IN_A_ROW = 3
_RESET_PAUSE = timedelta(hours=1)  # a longer pause begins a new row


def count_reset(last: DocumentResets | None, manager: str, now: datetime) -> DocumentResets:
    """Returns the record with one more reset; after an hour without one, a new record."""
    if last is None or now - last.last > _RESET_PAUSE:
        return DocumentResets(manager=manager, count=1, since=now, last=now)
    more: DocumentResets = replace(last, manager=manager, count=last.count + 1, last=now)
    return more
