"""The registry, the one document of dnm's state between runs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dnm.model.batch import WaitingJobs
from dnm.model.calendar import CalendarEvent, KeptCalendar
from dnm.model.history import Memory
from dnm.model.lease import ActingElsewhere
from dnm.model.lent import ClaimedNode, ConversionRequest, ConverterProcess, LentNode, Phase
from dnm.model.observed import (
    Backoff,
    BookingTry,
    Breaker,
    DocumentResets,
    LendTimes,
    LentAgain,
    Sitting,
    SpentHours,
    StalledPods,
)
from dnm.model.orders import Keeping, LendOrder, Pause, Way
from dnm.model.reason import Reason
from dnm.model.value import Moment, Value
from dnm.model.verdict import Objection


class NodePods(Value, omit_defaults=True):
    """Who holds a lent node: how many pods that count, in all and of the namespaces with the most,
    the first three by age, since when the oldest is there, and how many of DaemonSets and mirrors,
    which hold none."""

    count: int = 0
    namespaces: dict[str, int] = {}
    names: tuple[str, ...] = ()
    oldest: str = ""  # RFC 3339, as the API prints it
    apart: int = 0


class QueueStatus(Value):
    """A queue in the last run, for `dnm status`."""

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
    young_pods: int = 0  # pending too, and not yet for as long as counts


class RunRecord(Value):
    """The facts and actions of the last run. The times of the lock file and of the state file are
    its begin and end, so that a run without a change rewrites nothing."""

    exit_code: int = 0
    failed_nodes_alone: bool = False  # its errors are those of nodes that wait for a person
    acted_at: Moment | None = None
    actions: tuple[str, ...] = ()  # of the last run that did something, at `acted_at`
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    queues: dict[str, QueueStatus] = {}
    ledger: str | None = None  # as the run wrote it, in case the annotation is lost; None: unknown
    nodes: dict[str, str] = {}  # lent node -> sentence
    pods: dict[str, NodePods] = {}  # lent node -> who holds it
    attended: tuple[str, ...] = ()  # lent and some other nodes with pods that stay on them
    pods_doubted_since: Moment | None = None  # the list of pods contradicts the record
    succeeded_at: Moment | None = None  # when a run last did, before those that failed since
    waiting_jobs: tuple[WaitingJobs, ...] | None = None  # when last asked; None: nobody says
    resets: DocumentResets | None = None  # of the queue document; None: never
    batch_nodes: dict[str, int] = {}  # of each type, where a cap is a share of them; when last read

    @property
    def has_succeeded(self) -> bool:
        """Returns whether the run succeeded. Failed nodes are errors of each run but do not stop
        it."""
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
    last_conversion: Moment | None = None
    backoffs: dict[str, Backoff] = {}  # by node type
    breakers: dict[str, Breaker] = {}  # by queue path
    # By fingerprint of a group of equal pending pods; the file has always called it `waiting`.
    stalled: dict[str, StalledPods] = msgspec.field(default_factory=dict, name="waiting")
    lent_again: dict[str, LentAgain] = {}  # by queue path
    lend_times: dict[str, LendTimes] = {}  # by node type
    events: dict[str, CalendarEvent] = {}  # by name: those of `dnm event add`
    calendars: dict[str, KeptCalendar] = {}  # by path: the configuration is one
    booking_tries: dict[str, BookingTry] = {}  # by the booking's name
    spent_hours: dict[str, SpentHours] = {}  # by namespace
    spare_nodes: dict[str, Moment] = {}  # half-empty nodes, since when
    sitting: dict[str, Sitting] = {}  # by queue path
    pause: Pause | None = None
    held: tuple[str, ...] = ()  # nodes that `dnm hold` keeps: lent ones stay, others are not taken
    holds: dict[str, Keeping] = {}  # what is known of those: until when, by whom
    by_hand: tuple[str, ...] = ()  # Nodes that an administrator has converted, and nobody recorded
    orders: tuple[LendOrder, ...] = ()  # whose time is not over
    excluded: dict[str, Keeping] = {}  # that `dnm exclude` keeps out of lending, by node
    last_run: RunRecord = RunRecord()
    memory: Memory = Memory()
    lease_words: tuple[str, ...] = ()  # by which a Lease names it; the last may not be written yet
    elsewhere: ActingElsewhere | None = None  # the registry by which this one was refused last

    def paused(self, now: datetime, way: Way | None = None) -> Objection | None:
        """Returns the current pause that stops lending, or returning, or either."""
        if self.pause is None or not self.pause.stops(way, now):
            return None
        return Objection(reason=Reason.PAUSED, detail=self.pause.detail)

    def nodes_of(self, instance: str, *phases: Phase) -> dict[str, LentNode]:
        """Returns the nodes of an instance that are in one of these phases, sorted by name."""
        return {
            name: entry
            for name, entry in sorted(self.nodes.items())
            if entry.phase in phases and entry.owner == instance
        }

    @property
    def failed_nodes(self) -> dict[str, str]:
        """Returns the nodes that wait for an administrator, with their errors, sorted by name."""
        return {
            name: entry.error
            for name, entry in sorted(self.nodes.items())
            if entry.phase is Phase.FAILED
        }

    @property
    def open_calls(self) -> dict[str, ConverterProcess | None]:
        """Returns calls of the converter without a recorded end, by key: the request's id, or the
        node that returns."""
        calls = {request.id: request.converter for request in self.requests if not request.ended}
        returning = {
            name: entry.converter
            for name, entry in self.nodes.items()
            if entry.phase is Phase.RETURNING and entry.converter is not None
        }
        return {**calls, **returning}
