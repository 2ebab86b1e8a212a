"""Facts that dnm collects over many runs about node types, queues, pods and reservations."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from dnm.model.value import Moment, Value


class Backoff(Value):
    """The delay before dnm lends nodes of a type again, after conversions of that type failed."""

    failures: int
    until: Moment
    ask_at_most: int
    last_error: str = ""
    since: Moment | None = None  # the last failure; None: not known


class Breaker(Value):
    """The circuit breaker that stops lends to a queue. `unused` counts unused nodes in a row."""

    # Below zero after `dnm reset`, which forgives so many. The registry has another name for it.
    unused: int = msgspec.field(default=0, name="strikes")
    tripped_at: Moment | None = None
    demand: str = ""  # fingerprint of the pending pods when it tripped
    trips: int = 0  # since the last used node


class StalledPods(Value):
    """Equal pods that stayed pending although an idle node and the quota have capacity for them, so
    they wait for something else. They do not count as demand while exactly these are pending."""

    count: int
    until: str  # creation time of the youngest, RFC 3339 as the API prints it


class LentAgain(Value):
    """Measurements of how soon a queue needs idle nodes again, which decide how long they are kept.
    `pauses`: for how many seconds nodes were idle before they were needed again. `gone`: since when
    nodes were idle that were returned, but that the queue may soon need again."""

    pauses: tuple[int, ...] = ()
    gone: tuple[Moment, ...] = ()


class LendTimes(Value):
    """The durations of the last conversions of a node type in seconds, latest last. `lends` are
    measured from the request until the node serves, `returns` until Slurm has the node again."""

    lends: tuple[int, ...] = ()
    returns: tuple[int, ...] = ()


class ReservationAttempt(Value):
    """The last attempt to reserve `wanted` nodes in Slurm for an event; `missing` were not."""

    at: Moment
    missing: int
    wanted: int


class SpentHours(Value):
    """The part of a namespace's weekly budget of node-hours that already returned nodes have used.
    `week` is the begin of the week."""

    week: Moment
    seconds: float


class LowUse(Value):
    """A queue with pods that use under a tenth of its lent nodes: since when, the highest
    percentage, the number of nodes, and whether dnm reports it already."""

    since: Moment
    percent: int
    nodes: int
    is_reported: bool = False


class DocumentResets(Value):
    """A count of how often another client has removed dnm's additions from the queues' limits."""

    manager: str
    count: int
    since: Moment
    last: Moment

    @property
    def is_news(self) -> bool:
        """Returns whether the log reports the latest reset: the 3rd, 10th, 100th, 1,000th ..."""
        return self.count == _RESETS_IN_A_ROW or (
            self.count > _RESETS_IN_A_ROW and str(self.count).rstrip("0") == "1"
        )

    @property
    def sentence(self) -> str:
        """Returns a sentence that reports the resets by another client, with the next step."""
        return (
            f"the limits were reset by {self.manager} {self.count} times since "
            f"{self.since:%Y-%m-%d %H:%M} UTC; exclude them from the manifest (docs/kubernetes.md)"
        )

    def is_repeated(self, now: datetime) -> bool:
        """Returns whether 3 or more resets occurred, each within an hour of the previous one."""
        return self.count >= _RESETS_IN_A_ROW and now - self.last <= _RESET_PAUSE


_RESETS_IN_A_ROW = 3
_RESET_PAUSE = timedelta(hours=1)  # a longer pause begins a new row


def count_reset(last: DocumentResets | None, manager: str, now: datetime) -> DocumentResets:
    """Returns the count after one more reset. It starts again after an hour without a reset."""
    if last is None or now - last.last > _RESET_PAUSE:
        return DocumentResets(manager=manager, count=1, since=now, last=now)
    more: DocumentResets = replace(last, manager=manager, count=last.count + 1, last=now)
    return more
