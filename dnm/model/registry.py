"""What dnm remembers between runs: the registry, the one state file, and all that is in it."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import msgspec

from dnm.model.calendar import CalendarEvent, KeptCalendar
from dnm.model.cluster import Mark, WaitingJobs
from dnm.model.history import Memory
from dnm.model.lease import Lease
from dnm.model.printable import count_of
from dnm.model.value import Value


class Phase(Enum):
    """The recorded, durable state of a lent node."""

    JOINING = "joining"
    SERVING = "serving"
    RELEASING = "releasing"
    RETURNING = "returning"
    MOVING = "moving"
    FAILED = "failed"


class Leaving(Enum):
    """Why a node that serves is fenced, to go back as soon as it is empty."""

    FOR_JOBS = "for-jobs"  # of an older dnm: the fence comes off
    OVERDUE = "overdue"
    SPENT = "spent"
    KEPT_OUT = "kept-out"
    BY_HAND = "by-hand"


class Emptying(Value):
    """The pods of a node that a person returns are asked to go, from then on."""

    since: datetime
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


class LentNode(Value):
    """A node that dnm converted and has not yet forgotten."""

    node_type: str
    namespace: str
    queue: str
    owner: str
    phase: Phase
    since: datetime
    counted: dict[str, int] = {}  # what the queue grew by; empty before it serves
    idle_since: datetime | None = None
    was_used: bool = False
    is_needed: bool = False  # idle for its time, and pods elsewhere use the quota that it brings
    attempts: int = 0  # converter calls of this phase that did not end it
    is_handed_over: bool = False  # the last of them ended with exit code 0
    retry_after: datetime | None = None
    error: str = ""
    converter: ConverterProcess | None = None
    leaves: Leaving | None = None  # None: its queue keeps it for as long as it wants it
    emptying: Emptying | None = None  # None: its pods run on, whether it leaves or not
    lent_since: datetime | None = None  # kept where something depends on it
    asked_at: datetime | None = None  # when its request was written; None: not known
    is_unjudged: bool = False  # it came, and nothing could tell yet whether it is kept out
    order: str = ""  # the person's that it was lent for
    stays_until: datetime | None = None  # by a person's word, idle or not; None: nobody said so
    move: Move | None = None  # in phase `moving`, and after one that has failed
    moved_at: datetime | None = None  # since when it serves this namespace; None: since it is lent

    def is_kept_at(self, now: datetime) -> bool:
        """Whether a person has lent it, or extended it, for a time that is not over."""
        told_to_go = self.leaves in (Leaving.BY_HAND, Leaving.KEPT_OUT)
        return self.stays_until is not None and now < self.stays_until and not told_to_go

    @property
    def lent_from(self) -> datetime:
        """Since when it is lent, as far as that is known."""
        return self.lent_since or self.since

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
    since: datetime
    known_nodes: tuple[str, ...]  # Nodes of this type that existed before: never adopted
    node: str = ""  # the one whose interrupted conversion is to be gone on with; else any
    known_out: tuple[str, ...] = ()  # of this type, that Slurm did not have in service before
    names: tuple[str, ...] = ()  # named by the converter
    ended: bool = False  # the converter is known to have ended; `since` is that moment then
    asked_at: datetime | None = None  # when it was written; None: not known
    is_given_up: bool = False  # failed, named none: nobody waits for it, late nodes are adopted
    converter: ConverterProcess | None = None
    error: str = ""
    leave_out: str = ""  # a host list: nodes that the converter may not choose
    order: str = ""  # the person's that it is for
    stays_until: datetime | None = None  # what comes of it stays so long, idle or not


class ClaimedNode(Value):
    """A node that is claimed for this instance and is neither lent nor held by a request: whoever
    converted it has died, or was no run of dnm. It counts under the caps."""

    node_type: str
    namespace: str
    since: datetime | None = None
    why: str = ""  # what becomes of it, and when
    can_resume: bool = False  # its conversion was interrupted, and its converter can go on with it


class Backoff(Value):
    """After failed conversions of a node type."""

    failures: int
    until: datetime
    ask_at_most: int
    last_error: str = ""
    since: datetime | None = None  # the last failure; None: not known


class Breaker(Value):
    """Of one queue: conversions in a row that went unused; tripped until its demand changes."""

    strikes: int = 0  # less than none: so many unused nodes are forgiven (`dnm reset`)
    tripped_at: datetime | None = None
    demand: str = ""  # fingerprint of the pending pods when it tripped
    trips: int = 0  # so far, without a node that was used in between


class StalledPods(Value):
    """Equal pods that stayed pending beside an idle node with room and quota for them: they wait
    for something else. They count for nothing while exactly these pods are still pending."""

    count: int
    until: str  # the youngest of them was created then, RFC 3339 as the API prints it


class IdleGaps(Value):
    """For how long nodes of a queue were without work before they were wanted again, in seconds,
    the latest last; `open`: since when those are idle that went and are not wanted again yet;
    `pods`: how many waited for each node, whenever some were asked for."""

    recent: tuple[int, ...] = ()
    open: tuple[datetime, ...] = ()
    pods: tuple[int, ...] = ()


class LendTimes(Value):
    """How long nodes of a type took, in seconds, the latest last: `lends` from being asked for to
    serving, `returns` from the converter's call to being back."""

    lends: tuple[int, ...] = ()
    returns: tuple[int, ...] = ()


class BookingTry(Value):
    """When `missing` nodes were last to be booked of the `wanted` of one occurrence of an event."""

    at: datetime
    missing: int
    wanted: int


class SpentHours(Value):
    """What nodes that have gone back have used of a namespace's budget, in the week that began
    then."""

    week: datetime
    seconds: float


class Way(Enum):
    """One of the two ways in which nodes go."""

    LENDING = "lending"
    RETURNING = "returning"


LOST = "dnm, since its registry was lost"
"""Who pauses lending until a person has seen that."""


class Pause(Value):
    since: datetime
    until: datetime | None = None
    reason: str = ""
    who: str = ""  # gave the verb, on which host
    half: Way | None = None  # what alone is paused; None: both

    def stops(self, half: Way | None, now: datetime) -> bool:
        """Whether it holds now, for one way or for any."""
        is_meant = half is None or self.half in (None, half)
        return is_meant and (self.until is None or now < self.until)

    @property
    def detail(self) -> str:
        """What alone is paused, and why."""
        alone = f"{self.half.value} alone" if self.half else ""
        return ": ".join(filter(None, (alone, self.reason)))


class Keeping(Value):
    """A node that a person keeps where it is, or out of lending."""

    since: datetime
    until: datetime | None = None
    reason: str = ""
    who: str = ""  # gave the verb, on which host

    def is_in_force(self, now: datetime) -> bool:
        return self.until is None or now < self.until


class LendOrder(Value):
    """What a person has asked for: nodes of a type for a namespace, for a time.

    `nodes`: these, and no others. `why`: what it waits for, as the last run found it.
    """

    id: str
    node_type: str
    namespace: str
    count: int
    since: datetime
    until: datetime
    nodes: tuple[str, ...] = ()
    who: str = ""  # gave the verb, on which host
    reason: str = ""
    is_forced: bool = False
    why: str = ""


class NodePods(Value, omit_defaults=True):
    """Who holds a lent node: how many pods that count, in all and of the namespaces with the most,
    the first three by age, since when the oldest is there, and how many of DaemonSets and mirrors,
    which hold none."""

    count: int = 0
    namespaces: dict[str, int] = {}
    names: tuple[str, ...] = ()
    oldest: str = ""  # RFC 3339, as the API prints it
    apart: int = 0

    @property
    def text(self) -> str:
        """As people are told."""
        count = self.count
        first = sorted(self.namespaces.items(), key=lambda one: (-one[1], one[0]))
        shown = ", ".join(f"{number} of {name}" for name, number in first[:_MOST_NAMES])
        others = len(first) - _MOST_NAMES
        more = f" and {count_of(others, 'more namespace')}" if others > 0 else ""
        rest = f" and {count - len(self.names)} more" if count > len(self.names) else ""
        apart = f"{count_of(self.apart, 'pod')} of DaemonSets or static"
        if not count:
            return f"no pod holds it; {apart}" if self.apart else "no pod holds it"
        return (
            f"{count_of(count, 'pod')} on it: {shown}{more}; {', '.join(self.names)}{rest}; the "
            f"oldest since {self.oldest}" + (f"; beside them {apart}" if self.apart else "")
        )


_MOST_NAMES = 3


class QueueStatus(Value):
    """One queue as the last run saw it, for `dnm status`."""

    limit: dict[str, int]
    baseline: dict[str, int]
    lent: dict[str, int]
    used: dict[str, int]
    pending: dict[str, int]
    pending_pods: int
    verdict: str
    reason: str
    is_judged: bool = True  # False: no run could tell yet what of the limit is lent
    code: str = ""  # of the reason
    is_demand_known: bool = True  # False: its pods could not be read
    waits_since: str = ""  # when the oldest of its pending pods was created
    floor: int = 0  # nodes that its namespaces are to have at least, now


class RunRecord(Value):
    """What the last run saw and did. When it began and ended are the times of the lock file and of
    the state file, so that a run without a change rewrites nothing."""

    exit_code: int = 0
    failed_nodes_alone: bool = False  # its errors are those of nodes that wait for a person
    acted_at: datetime | None = None
    actions: tuple[str, ...] = ()  # of the last run that did something, at `acted_at`
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    queues: dict[str, QueueStatus] = {}
    ledger: str | None = None  # as the run wrote it, in case the annotation is lost; None: unknown
    nodes: dict[str, str] = {}  # lent node -> sentence
    pods: dict[str, NodePods] = {}  # lent node -> who holds it
    pods_seen: int = 0  # an earlier dnm's; nothing rests on it
    attended: tuple[str, ...] = ()  # lent and some other nodes with pods that stay on them
    pods_doubted_since: datetime | None = None  # the list of pods contradicts the record
    succeeded_at: datetime | None = None  # when a run last did, before those that failed since
    waiting_jobs: tuple[WaitingJobs, ...] | None = None  # when last asked; None: nobody says

    @property
    def has_succeeded(self) -> bool:
        """Whether it did what it could: a failed node is an error of each run, and stops none."""
        return self.exit_code == 0 or self.failed_nodes_alone


def run_name(began: datetime) -> str:
    """Returns the name of the run, or of the verb, that began then."""
    return f"{began:%Y%m%dT%H%M%S.%fZ}"


class Registry(Value):
    """dnm's own record; the one state file."""

    version: int = 1
    nodes: dict[str, LentNode] = {}
    requests: tuple[ConversionRequest, ...] = ()
    claimed: dict[str, ClaimedNode] = {}
    last_conversion: datetime | None = None
    backoffs: dict[str, Backoff] = {}  # by node type
    breakers: dict[str, Breaker] = {}  # by queue path
    # By fingerprint of a group of equal pending pods; the file has always called it `waiting`.
    stalled: dict[str, StalledPods] = msgspec.field(default_factory=dict, name="waiting")
    idle_gaps: dict[str, IdleGaps] = {}  # by queue path
    lend_times: dict[str, LendTimes] = {}  # by node type
    events: dict[str, CalendarEvent] = {}  # by name: those of `dnm event add`
    calendars: dict[str, KeptCalendar] = {}  # by path: the configuration is one
    booking_tries: dict[str, BookingTry] = {}  # by the booking's name
    spent_hours: dict[str, SpentHours] = {}  # by namespace
    pause: Pause | None = None
    held: tuple[str, ...] = ()  # nodes that `dnm hold` keeps: lent ones stay, others are not taken
    holds: dict[str, Keeping] = {}  # what is known of those: until when, by whom
    by_hand: tuple[str, ...] = ()  # Nodes that an administrator has converted, and nobody recorded
    orders: tuple[LendOrder, ...] = ()  # whose time is not over
    excluded: dict[str, Keeping] = {}  # that `dnm exclude` keeps out of lending, by node
    last_run: RunRecord = RunRecord()
    memory: Memory = Memory()
    leases: tuple[Lease, ...] = ()  # by which it may act; one is being written
    others_lease: Lease | None = None  # by which this one was refused last

    def is_paused(self, now: datetime, way: Way | None = None) -> bool:
        """Whether a pause is in force that stops lending, or returning, or either."""
        return self.pause is not None and self.pause.stops(way, now)

    def nodes_of(self, instance: str, *phases: Phase) -> dict[str, LentNode]:
        """The nodes of an instance that are in one of these phases, sorted by name."""
        return {
            name: entry
            for name, entry in sorted(self.nodes.items())
            if entry.phase in phases and entry.owner == instance
        }

    @property
    def failed_nodes(self) -> dict[str, str]:
        """The nodes that wait for a person, and what each waits for, sorted by name."""
        return {
            name: entry.error
            for name, entry in sorted(self.nodes.items())
            if entry.phase is Phase.FAILED
        }

    @property
    def open_calls(self) -> dict[str, ConverterProcess | None]:
        """Calls of the converter whose end is not written down, by key: the request's id, or the
        node that returns."""
        calls = {request.id: request.converter for request in self.requests if not request.ended}
        returning = {
            name: entry.converter
            for name, entry in self.nodes.items()
            if entry.phase is Phase.RETURNING and entry.converter is not None
        }
        return {**calls, **returning}


class Ended(Value):
    """How a converter ended, as far as it can be told."""

    exit_code: int | None = None  # None: it is still at work, was ended, or nobody wrote it down
    names: tuple[str, ...] = ()  # nodes it named on stdout, a line each
    last_lines: tuple[str, ...] = ()
    failures: tuple[
        str, ...
    ] = ()  # lines that name a node and say that it failed; each node's last
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
        said = "; ".join(one[:LONGEST_REASON] for one in self.failures[:_MOST_REASONS])
        return f"{said}; and {more} more" if more > 0 else said


LONGEST_REASON, _MOST_REASONS = 500, 2  # characters of a line, and lines
