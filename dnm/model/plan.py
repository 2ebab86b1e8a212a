"""The snapshot, the plan and the outcome of a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from dnm.model.batch import BatchNode, WaitingJobs
from dnm.model.calendar import EventReservation
from dnm.model.close_look import CloseLook
from dnm.model.cluster import QueueFacts
from dnm.model.history import Decision, HistoryLine, NodeRoom, PodKind
from dnm.model.lease import Lease, Place
from dnm.model.lent import ConversionRequest, Ended
from dnm.model.lent_state import ConverterProcess
from dnm.model.node import Mark, Node
from dnm.model.node_type import Taint
from dnm.model.opening import PodOrder
from dnm.model.orders import Pause
from dnm.model.pod import Claim, DaemonSet, PodList
from dnm.model.pod_waits import PodWaits
from dnm.model.queue_edit import LimitNews, QueueEdit, QueueWants
from dnm.model.registry import NodePods, QueueStatus, Registry
from dnm.model.value import Unreadable, Value
from dnm.model.verdict import NodeVerdict, QueueVerdict


class Snapshot(Value):
    """All facts that a run has read, each of them once. `taken_at` is the time of the run."""

    taken_at: datetime
    pods: PodList | Unreadable
    nodes: tuple[Node, ...] | Unreadable
    queue_facts: QueueFacts
    batch: Mapping[str, BatchNode] | Unreadable | None = None  # None: not read
    waiting_jobs: tuple[WaitingJobs, ...] | Unreadable | None = None  # None: not reported
    claims: tuple[Claim, ...] | Unreadable = ()
    running_converters: frozenset[ConverterProcess] = frozenset()
    # The subset that other hosts started; each counts until its time limit.
    converters_elsewhere: frozenset[ConverterProcess] = frozenset()
    unread_zones: Unreadable | None = None  # why the free capacity of NUMA nodes is unknown
    waits: PodWaits | None = None  # None: no pod waits for devices or with a group
    place: Place = Place()  # of this dnm
    lease: Lease | Unreadable | None = None  # of this instance; None: the cluster does not answer
    can_reserve: bool = False  # the converter can reserve nodes before an event
    leaves_out: bool = False  # the converter accepts a list of nodes that it must not choose
    charges: bool = False  # the converter can charge lent nodes to an account
    daemon_sets: tuple[DaemonSet, ...] | Unreadable | None = None  # None: nothing depends on them
    # Lent nodes without work if the pods on them are DaemonSets', which could not be verified.
    unverified_nodes: frozenset[str] = frozenset()
    unseen_nodes: frozenset[str] = frozenset()  # nodes with pods that the list may lack
    events_at: datetime | None = None  # the time for which events count; None: `taken_at`
    close: Mapping[str, CloseLook | Unreadable] = {}  # facts of the nodes that a rule reads
    ended: Mapping[str, Ended] = {}  # calls of earlier runs, by key; a running one has only names


class WaitingPods(Value):
    """Equal pods for which dnm will not lend a node; `sentence` has the reason. `name` and `uid`
    are those of one of the pods. `is_new` means that no Kubernetes Event reports the reason yet."""

    kind: str  # the group's fingerprint
    queue: str
    namespace: str
    name: str
    uid: str
    count: int
    sentence: str
    is_new: bool = False


class MarkNode(Value, tag=True):
    """The action that writes dnm's annotations on the Node of a lent node that serves its queue."""

    node: str
    mark: Mark


class Fence(Value, tag=True):
    """The action that cordons a Node in dnm's name, after the limit of its queue was reduced."""

    node: str


class Unfence(Value, tag=True):
    """The action that uncordons a Node that dnm has cordoned."""

    node: str


class EvictPods(Value, tag=True):
    """The action that evicts the pods of a cordoned node, on an administrator's command."""

    node: str


class RelabelNode(Value, tag=True):
    """The action that moves a cordoned Node to another namespace: it changes labels, taints and
    annotations at once, after a last check. A label of None is removed. `is_back` undoes a move."""

    node: str
    mark: Mark
    labels: Mapping[str, str | None]
    off: tuple[Taint, ...] = ()
    on: tuple[Taint, ...] = ()
    is_back: bool = False


class SetQueueLimits(Value, tag=True):
    """The action that sets each queue's limit to its baseline plus its serving nodes. `edit`
    changes the document as it was read. If it has changed, dnm computes a new edit from `wants`."""

    wants: QueueWants
    edit: QueueEdit


class StartConversion(Value, tag=True):
    """The action that starts the converter for a request for nodes that the registry contains."""

    request: ConversionRequest


class ReturnNode(Value, tag=True):
    """The action that starts the converter to return a node to Slurm, after a last check."""

    node: str


class HoldClosed(Value, tag=True):
    """The action that sets (`is_closed`) or removes the taint that keeps pods off a new Node."""

    node: str
    is_closed: bool


class StartPod(Value, tag=True):
    """The action that starts a pod of dnm on a joining node, to perform a readiness check."""

    node: str
    pod: PodOrder


class DropPods(Value, tag=True):
    """The action that deletes the pods that dnm started on a joining node for readiness checks."""

    node: str


class ReserveNodes(Value, tag=True):
    """The action that reserves nodes in Slurm for a planned event, before it begins."""

    reservation: EventReservation


class UnreserveNodes(Value, tag=True):
    """The action that deletes an event's reservations in Slurm, except those of `leave_out`."""

    name: str
    reason: str
    leave_out: str = ""


class EndConverter(Value, tag=True):
    """The action that ends a converter that hangs after its run. `key`: request id or node name."""

    key: str
    process: ConverterProcess


Action: TypeAlias = (
    EndConverter
    | MarkNode
    | Fence
    | Unfence
    | EvictPods
    | RelabelNode
    | SetQueueLimits
    | StartConversion
    | ReturnNode
    | HoldClosed
    | StartPod
    | DropPods
    | ReserveNodes
    | UnreserveNodes
)


class Plan(Value):
    """The actions and decisions of a run. `registry` is saved before the first action."""

    registry: Registry
    actions: tuple[Action, ...] = ()
    nodes: tuple[NodeVerdict, ...] = ()
    queues: tuple[QueueVerdict, ...] = ()
    notes: tuple[str, ...] = ()  # reports that are no errors, e.g. a manifest applied again
    news: tuple[str, ...] = ()  # the notes that the last run did not have
    errors: tuple[str, ...] = ()  # failed reads, and questions to an administrator
    other_errors: tuple[str, ...] = ()  # those of `errors` that are not of nodes in phase failed
    request_errors: Mapping[str, str] = {}  # those of `errors` about requests, by their ids
    limit_news: tuple[LimitNews, ...] = ()
    status: dict[str, QueueStatus] = {}  # by monitored queue, after the run
    seen: dict[str, QueueStatus] = {}  # the same, before the run
    decisions: dict[str, Decision] = {}  # by monitored queue: the numbers behind its verdict
    diff: str = ""  # of the queue document, unified
    needs_person: bool = False
    is_refused: bool = False  # another registry acts for this instance: nothing was decided
    backs_up: bool = False  # the Lease has other names than this registry
    run: str = ""  # the name of this run, from its start time
    pause: Pause | None = None  # that applies now
    waiting: tuple[WaitingPods, ...] = ()  # pods that wait in vain
    pods: Mapping[str, NodePods] = {}  # lent node -> the pods on it
    uids: Mapping[str, str] = {}  # of the recorded Nodes
    adopted: tuple[str, ...] = ()  # nodes that are recorded again by their mark
    kinds: Mapping[str, tuple[PodKind, ...]] = {}  # by monitored queue, if demand is recorded
    node_capacities: tuple[NodeRoom, ...] = ()  # of permanent nodes, likewise
    waiting_jobs: tuple[WaitingJobs, ...] | None = None  # as last read; None: not reported


class Outcome(Value):
    """The result of executing a plan. `actions` has a log line for each action, `done` the
    completed ones. `errors` has all errors, `new_errors` those reported for the first time, `over`
    those that have ended. `history` has the new history lines, `notes` reports that are no errors.
    `unwritten` has the queues with limits that could not be written."""

    registry: Registry
    actions: tuple[str, ...] = ()
    done: tuple[Action, ...] = ()
    errors: tuple[str, ...] = ()
    history: tuple[HistoryLine, ...] = ()
    new_errors: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()


class Pass(Value):
    """The result of `dnm run` or `dnm plan`. `outcome` is None if the run executed no action."""

    plan: Plan
    exit_code: int
    outcome: Outcome | None = None
