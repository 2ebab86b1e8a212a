"""What is lent, asked for or claimed: nodes, requests, their phases, and how a converter ended."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Annotated

import msgspec

from dnm.model.node import Mark
from dnm.model.opening import Opening
from dnm.model.value import Moment, Value

MAX_ATTEMPTS = 3  # to return a node, before a person is asked


class Phase(Enum):
    """The recorded, durable state of a lent node."""

    JOINING = "joining"
    SERVING = "serving"
    RELEASING = "releasing"
    RETURNING = "returning"
    MOVING = "moving"
    FAILED = "failed"


class Leaving:
    """Why a node that serves is fenced, to go back as soon as it is empty, whatever a person has
    said before. Rules have words of their own; that of a rule that is off holds no more."""

    KEPT_OUT = "kept-out"
    NOT_OPENED = "not-opened"
    SICK = "sick"
    BY_HAND = "by-hand"


TOLD_TO_GO = (Leaving.KEPT_OUT, Leaving.NOT_OPENED, Leaving.SICK, Leaving.BY_HAND)
"""No time for which a person has lent a node keeps one that leaves for these."""


class Emptying(Value):
    """The pods of a node that a person returns are asked to go, from then on."""

    since: Moment
    asked: int = 0  # pods so far
    why: str = ""  # what the last run was told of those that did not go


class ConverterProcess(Value):
    """A converter that was started; the start time tells it from a later process of the same id,
    the boot from one that got both after the host was restarted."""

    pid: int
    start_ticks: int
    boot: str = ""  # empty: not known
    host: str = ""  # its name; empty: this one


class Move(Value):
    """A lent node changes its queue: to the namespace it is to serve, or back after all. Until it
    serves that one, its entry names the namespace that it comes from."""

    to: str
    goes_back: bool = False


class Charge(Value):
    """The account that a lent node is charged to, and what its pods requested: resource -> amount
    since then (`rate`), and before, times seconds (`used`)."""

    account: str
    since: Moment
    rate: dict[str, int] = {}
    used: dict[str, float] = {}

    def used_until(self, now: datetime) -> dict[str, float]:
        """Returns what the pods have requested until then, times seconds."""
        seconds = max((now - self.since).total_seconds(), 0.0)
        names = {**self.used, **self.rate}
        return {name: self.used.get(name, 0) + self.rate.get(name, 0) * seconds for name in names}


class LentNode(Value):
    """A node that dnm converted and has not yet forgotten."""

    node_type: str
    namespace: str
    queue: str
    owner: str
    phase: Phase
    since: Moment
    counted: dict[str, int] = {}  # what the queue grew by; empty before it serves
    idle_since: Moment | None = None
    was_used: bool = False
    is_needed: bool = False  # idle for its time, and pods elsewhere use the quota that it brings
    attempts: int = 0  # converter calls of this phase that did not end it
    is_handed_over: bool = False  # the last of them ended with exit code 0
    retry_after: Moment | None = None
    error: str = ""
    converter: ConverterProcess | None = None
    # Why it leaves; None: its queue keeps it for as long as it wants it.
    leaves: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    emptying: Emptying | None = None  # None: its pods run on, whether it leaves or not
    lent_since: Moment | None = None  # kept where something depends on it
    asked_at: Moment | None = None  # when its request was written; None: not known
    is_unjudged: bool = False  # it came, and nothing could tell yet whether it is kept out
    order: str = ""  # the person's that it was lent for
    stays_until: Moment | None = None  # by a person's word, idle or not; None: nobody said so
    move: Move | None = None  # in phase `moving`, and after one that has failed
    opening: Opening | None = None  # kept where its type has a list of what it opens by
    sick: str = ""  # by which sign of sick_when; it stays drained when it is back
    charge: Charge | None = None  # None: it is charged to nobody
    moved_at: Moment | None = None  # since when it serves this namespace; None: since it is lent

    def is_kept_at(self, now: datetime) -> bool:
        """Whether a person has lent it, or extended it, for a time that is not over."""
        is_in_time = self.stays_until is not None and now < self.stays_until
        return is_in_time and self.leaves not in TOLD_TO_GO

    @property
    def failed_attempts(self) -> str:
        """Returns how many attempts to return it have failed, and why the last one did; empty:
        none has."""
        is_under_way = self.converter is not None or self.is_handed_over
        failed = self.attempts - is_under_way if self.phase is Phase.RETURNING else 0
        if failed <= 0:
            return ""
        why = self.error or "the node has not come back"
        return f"{failed} of {MAX_ATTEMPTS} attempts failed: {why}"

    @property
    def account(self) -> str:
        """Whom it is charged to; empty: nobody."""
        return self.charge.account if self.charge else ""

    @property
    def lent_from(self) -> datetime:
        """Since when it is lent, as far as that is known."""
        return self.lent_since or self.since

    @property
    def took(self) -> dict[str, int]:
        """How many seconds each step took by which its type opens; empty: it has none."""
        return self.opening.took(self.asked_at or self.since) if self.opening else {}

    @property
    def heads_for(self) -> str:
        """The namespace that it serves, or is to serve next."""
        move = self.move if self.phase is Phase.MOVING else None
        return self.namespace if move is None or move.goes_back else move.to

    @property
    def mark(self) -> Mark:
        """What its Node carries."""
        return Mark(
            instance=self.owner,
            node_type=self.node_type,
            namespace=self.namespace,
            queue=self.queue,
        )


class ConversionRequest(Value):
    """Phase `requested`: written before the converter is started, gone when all nodes are named or
    the deadline has passed."""

    id: str
    node_type: str
    namespace: str
    queue: str
    owner: str
    count: int  # nodes that have not shown up yet
    since: Moment
    known_nodes: tuple[str, ...]  # Nodes of this type that existed before: never adopted
    node: str = ""  # the one whose interrupted conversion is to be gone on with; else any
    known_out: tuple[str, ...] = ()  # of this type, that Slurm did not have in service before
    names: tuple[str, ...] = ()  # named by the converter
    ended: bool = False  # the converter is known to have ended; `since` is that moment then
    asked_at: Moment | None = None  # when it was written; None: not known
    is_given_up: bool = False  # failed, named none: nobody waits for it, late nodes are adopted
    converter: ConverterProcess | None = None
    error: str = ""
    leave_out: str = ""  # a host list: nodes that the converter may not choose
    order: str = ""  # the person's that it is for
    account: str = ""  # whom what comes of it is charged to; empty: nobody
    stays_until: Moment | None = None  # what comes of it stays so long, idle or not


class ClaimedNode(Value):
    """A node that is claimed for this instance and is neither lent nor held by a request: whoever
    converted it has died, or was no run of dnm. It counts under the caps."""

    node_type: str
    namespace: str
    since: Moment | None = None
    why: str = ""  # what becomes of it, and when
    can_resume: bool = False  # its conversion was interrupted, and its converter can go on with it


class Ended(Value):
    """How a converter ended, as far as it can be told."""

    exit_code: int | None = None  # None: it is still at work, was ended, or nobody wrote it down
    names: tuple[str, ...] = ()  # nodes it named on stdout, a line each
    last_lines: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()  # each node's last line that names it and says that it failed
    timed_out: bool = False
    left_running: bool = False
    not_started: str = ""  # why

    @property
    def error(self) -> str:
        """What went wrong; empty where it simply succeeded, or nothing is known."""
        if self.not_started:
            return self.not_started
        last = f": {self._reason}" if self.failures or self.last_lines else ""
        if self.timed_out:
            return f"the converter ran out of its time and was ended{last}"
        if self.exit_code not in (0, None):
            return f"the converter ended with exit code {self.exit_code}{last}"
        return ""

    @property
    def _reason(self) -> str:
        """What it said of a node, rather than what it said last: that only counts, or says goodbye.
        Cut, since it is told by record, mail and pages."""
        if not self.failures:
            return self.last_lines[-1][:LONGEST_REASON]
        more = len(self.failures) - _MOST_REASONS
        said = "; ".join(failure[:LONGEST_REASON] for failure in self.failures[:_MOST_REASONS])
        return f"{said}; and {more} more" if more > 0 else said


LONGEST_REASON, _MOST_REASONS = 500, 2  # characters of a line, and lines
