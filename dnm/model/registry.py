"""The registry, the one document in which dnm stores its state between runs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dnm.model.batch import WaitingJobs
from dnm.model.calendar import CalendarEvent, KeptCalendar
from dnm.model.history import Memory
from dnm.model.lease import ActingElsewhere
from dnm.model.lent import ClaimedNode, ConversionRequest, LentNode, Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.observed import (
    Backoff,
    Breaker,
    DocumentResets,
    LendTimes,
    LentAgain,
    LowUse,
    ReservationAttempt,
    SpentHours,
    StalledPods,
)
from dnm.model.orders import Keeping, LendOrder, Pause, Way
from dnm.model.reason import Reason
from dnm.model.value import Moment, Value
from dnm.model.verdict import Objection


class NodePods(Value, omit_defaults=True):
    """The pods on a lent node. `count` is the number of pods that make it busy. `namespaces` counts
    them in the largest namespaces, `names` has the three oldest, and `oldest` is when the first was
    created. `daemon_pods` is the number of pods of DaemonSets and mirror pods."""

    count: int = 0
    namespaces: dict[str, int] = {}
    names: tuple[str, ...] = ()
    oldest: str = ""  # RFC 3339, as the API prints it
    daemon_pods: int = 0


class QueueStatus(Value):
    """A queue's numbers and decision after the last run, stored for `dnm status`."""

    limit: dict[str, int]
    baseline: dict[str, int]
    lent: dict[str, int]
    used: dict[str, int]
    pending: dict[str, int]
    pending_pods: int
    verdict: str
    reason: str
    is_judged: bool = True  # False: no run could read the lent part of the limit yet
    code: str = ""  # of the reason
    is_demand_read: bool = True  # False: its pods could not be read
    waits_since: str = ""  # creation time of the oldest pending pod
    floor: int = 0  # the current minimum of nodes of its namespaces
    young_pods: int = 0  # pending for too short a time to count


class RunRecord(Value):
    """The facts and actions of the last run. The times of its start and end are kept in two files
    (`began_path`, `ended_path`), so that a run without a change does not write the registry."""

    exit_code: int = 0
    failed_nodes_alone: bool = False  # all its errors are those of nodes in phase failed
    acted_at: Moment | None = None
    actions: tuple[str, ...] = ()  # of the last run with an action, at `acted_at`
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    queues: dict[str, QueueStatus] = {}
    ledger: str | None = None  # as the run wrote it, if the annotation is lost; None: unknown
    ledger_system: str = ""  # the queue system that this ledger belongs to; empty: unknown
    nodes: dict[str, str] = {}  # lent node -> sentence
    codes: dict[str, str] = {}  # lent node -> code of the reason
    pods: dict[str, NodePods] = {}  # lent node -> the pods on it
    attended: tuple[str, ...] = ()  # lent and some other nodes with pods that cannot be evicted
    contradicted_since: Moment | None = None  # the list of pods contradicts the record
    succeeded_at: Moment | None = None  # the last success before the failed runs since then
    waiting_jobs: tuple[WaitingJobs, ...] | None = None  # as last read; None: not reported
    resets: DocumentResets | None = None  # of the queue document; None: never
    queue_systems: dict[str, str] = {}  # namespace with lent nodes -> the one they were lent with
    batch_nodes: dict[str, int] = {}  # of each type, if a cap is a share of them; as last read
    unwritten: tuple[str, ...] = ()  # queues with limits that the run could not write

    @property
    def has_succeeded(self) -> bool:
        """Returns whether the last run succeeded. Failed nodes, which every run reports until an
        administrator resets them, do not count as errors of the run."""
        return self.exit_code == 0 or self.failed_nodes_alone


def run_name(began: datetime) -> str:
    """Returns the name of a run or command that started at this time, for logs and the history."""
    return f"{began:%Y%m%dT%H%M%S.%fZ}"


class Registry(Value):
    """The registry: dnm's record of lent nodes and of its own state."""

    version: int = 1
    nodes: dict[str, LentNode] = {}
    requests: tuple[ConversionRequest, ...] = ()
    claimed: dict[str, ClaimedNode] = {}
    last_conversion: Moment | None = None
    backoffs: dict[str, Backoff] = {}  # by node type
    breakers: dict[str, Breaker] = {}  # by queue path
    # By fingerprint of a group of equal pending pods. The stored name is `waiting`.
    stalled: dict[str, StalledPods] = msgspec.field(default_factory=dict, name="waiting")
    lent_again: dict[str, LentAgain] = {}  # by queue path
    lend_times: dict[str, LendTimes] = {}  # by node type
    events: dict[str, CalendarEvent] = {}  # by name: those of `dnm event add`
    calendars: dict[str, KeptCalendar] = {}  # by path: the configuration is one
    reservation_attempts: dict[str, ReservationAttempt] = {}  # by the reservation's name
    spent_hours: dict[str, SpentHours] = {}  # by namespace
    spare_nodes: dict[str, Moment] = {}  # half-empty nodes, since when
    low_utilization: dict[str, LowUse] = {}  # by queue path
    pause: Pause | None = None
    held: tuple[str, ...] = ()  # nodes that `dnm hold` keeps: lent ones stay, others are not taken
    holds: dict[str, Keeping] = {}  # details of those: until when, by which operator
    manual: tuple[str, ...] = ()  # Nodes that an administrator converted without a record
    orders: tuple[LendOrder, ...] = ()  # that have not ended
    excluded: dict[str, Keeping] = {}  # nodes that `dnm exclude` keeps out of lending
    last_run: RunRecord = RunRecord()
    memory: Memory = Memory()
    lease_words: tuple[str, ...] = ()  # its names in a Lease; the last may not be written yet
    elsewhere: ActingElsewhere | None = None  # the registry that last made this one refuse

    def paused(self, now: datetime, way: Way | None = None) -> Objection | None:
        """Returns an objection if `way`, lending or returning, is paused (None: if either is)."""
        if self.pause is None or not self.pause.stops(way, now):
            return None
        return Objection(reason=Reason.PAUSED, detail=self.pause.detail)

    def nodes_of(self, instance: str, *phases: Phase) -> dict[str, LentNode]:
        """Returns the lent nodes that an instance owns in any of these phases, sorted by name."""
        return {
            name: entry
            for name, entry in sorted(self.nodes.items())
            if entry.phase in phases and entry.owner == instance
        }

    @property
    def failed_nodes(self) -> dict[str, str]:
        """Returns the nodes in phase failed, with their errors, sorted by name."""
        return {
            name: entry.error
            for name, entry in sorted(self.nodes.items())
            if entry.phase is Phase.FAILED
        }

    @property
    def open_calls(self) -> dict[str, ConverterProcess | None]:
        """Returns the processes of converter calls that have not ended, by the id of the request or
        the name of the returning node. A process can be None if it is unknown."""
        calls = {request.id: request.converter for request in self.requests if not request.end}
        returning = {
            name: entry.converter
            for name, entry in self.nodes.items()
            if entry.phase is Phase.RETURNING and entry.converter is not None
        }
        return {**calls, **returning}
