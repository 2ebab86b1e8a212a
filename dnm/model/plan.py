"""The snapshot, the plan and the outcome of a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from dnm.model.batch import BatchNode, WaitingJobs
from dnm.model.calendar import Booking
from dnm.model.close_look import CloseLook
from dnm.model.cluster import ConfigMap, YunikornView
from dnm.model.history import Decision, HistoryLine, NodeRoom, PodKind
from dnm.model.lease import Lease, Place
from dnm.model.lent import ConversionRequest, ConverterProcess, Ended
from dnm.model.node import Mark, Node
from dnm.model.node_type import Taint
from dnm.model.opening import PodOrder
from dnm.model.orders import Pause
from dnm.model.pod import Claim, DaemonSet, PodList
from dnm.model.pod_waits import PodWaits
from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.model.registry import NodePods, QueueStatus, Registry
from dnm.model.value import Unreadable, Value
from dnm.model.verdict import NodeVerdict, QueueVerdict


class Snapshot(Value):
    """Everything that a run reads, each once. `now` is `taken_at`."""

    taken_at: datetime
    pods: PodList | Unreadable
    nodes: tuple[Node, ...] | Unreadable
    queue_maps: tuple[ConfigMap | None, ConfigMap | None] | Unreadable  # configs, then defaults
    batch: Mapping[str, BatchNode] | Unreadable | None = None  # None: not asked
    waiting_jobs: tuple[WaitingJobs, ...] | Unreadable | None = None  # None: nobody says
    claims: tuple[Claim, ...] | Unreadable = ()
    yunikorn: YunikornView | Unreadable | None = None
    running_converters: frozenset[ConverterProcess] = frozenset()
    # Of those, the ones that other hosts have started: for as long as they may take.
    converters_elsewhere: frozenset[ConverterProcess] = frozenset()
    unread_zones: Unreadable | None = None  # why nobody knows what is free on NUMA nodes
    waits: PodWaits | None = None  # None: no pod waits for devices or with a group
    place: Place = Place()  # of this dnm
    lease: Lease | Unreadable | None = None  # of this instance; None: the cluster does not answer
    books: bool = False  # the converter can reserve nodes ahead of an event
    leaves_out: bool = False  # the converter can be told which nodes not to choose
    charges: bool = False  # the converter can charge what it lends to an account
    daemon_sets: tuple[DaemonSet, ...] | Unreadable | None = None  # None: nothing depends on them
    # Lent nodes without work if the pods on them are DaemonSets', which could not be verified.
    unverified_nodes: frozenset[str] = frozenset()
    unseen_nodes: frozenset[str] = frozenset()  # whose pods the list can't have all
    foreseen_at: datetime | None = None  # the moment whose events count; None: that of the look
    close: Mapping[str, CloseLook | Unreadable] = {}  # at nodes that a rule asks for
    ended: Mapping[str, Ended] = {}  # calls of earlier runs by key; one at work has names alone


class WaitingPods(Value):
    """Equal pods that wait in vain: dnm will lend no node for them, and `sentence` explains why.
    `name`, `uid`: of one of them. `is_new`: their owner has no Event about it yet."""

    kind: str  # the group's fingerprint
    queue: str
    namespace: str
    name: str
    uid: str
    count: int
    sentence: str
    is_new: bool = False


class MarkNode(Value, tag=True):
    """Write dnm's annotations on a Node that serves."""

    node: str
    mark: Mark


class Fence(Value, tag=True):
    """Cordon the Node with dnm's mark; the queue has shrunk before."""

    node: str


class Unfence(Value, tag=True):
    """Remove dnm's cordon."""

    node: str


class EvictPods(Value, tag=True):
    """Evict the pods of a fenced node by the Eviction API, on an administrator's command."""

    node: str


class RelabelNode(Value, tag=True):
    """Exchange labels, taints and mark of a fenced Node for those of another namespace, in one
    change; looked at once more just before. `labels`: None goes. `is_back`: for its old one."""

    node: str
    mark: Mark
    labels: Mapping[str, str | None]
    off: tuple[Taint, ...] = ()
    on: tuple[Taint, ...] = ()
    is_back: bool = False


class SetQueueLimits(Value, tag=True):
    """Make every limit its baseline plus what serves now. `edit` does that to the document that was
    read; to any other it has to be planned anew, for the same `wants`."""

    wants: QueueWants
    edit: QueueEdit


class StartConversion(Value, tag=True):
    """Call the converter for a request that the registry holds already."""

    request: ConversionRequest


class ReturnNode(Value, tag=True):
    """Call the converter to give the node back; checked once more just before."""

    node: str


class HoldClosed(Value, tag=True):
    """Keep pods off a Node that joins by dnm's taint, or (not `is_closed`) take it off."""

    node: str
    is_closed: bool


class StartPod(Value, tag=True):
    """Start a pod of dnm's own on a node that joins."""

    node: str
    pod: PodOrder


class DropPods(Value, tag=True):
    """Delete dnm's own pods, which have done what they were for."""

    node: str


class BookNodes(Value, tag=True):
    """Have nodes reserved in Slurm ahead of an event."""

    booking: Booking


class UnbookNodes(Value, tag=True):
    """Give up the reservations of that name, but for those of a host list."""

    name: str
    why: str
    leave_out: str = ""


class EndConverter(Value, tag=True):
    """End a converter that hangs after its run has ended; `key` is its request or node."""

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
    | BookNodes
    | UnbookNodes
)


class Plan(Value):
    """The actions of a run; it does nothing else. `registry` is saved before the first action."""

    registry: Registry
    actions: tuple[Action, ...] = ()
    nodes: tuple[NodeVerdict, ...] = ()
    queues: tuple[QueueVerdict, ...] = ()
    notes: tuple[str, ...] = ()  # reported, not failed: a re-applied manifest, a floor
    news: tuple[str, ...] = ()  # those of the notes that the last run did not have
    errors: tuple[str, ...] = ()  # reads that failed, questions that wait for a person
    status: dict[str, QueueStatus] = {}  # by monitored queue, as the run leaves it
    seen: dict[str, QueueStatus] = {}  # as it is before that
    decisions: dict[str, Decision] = {}  # by monitored queue: the numbers behind its verdict
    diff: str = ""  # of the queue document, unified
    needs_person: bool = False
    is_refused: bool = False  # another acts for this instance: nothing was decided
    backs_up: bool = False  # the Lease keeps other names than this registry has
    run: str = ""  # which run this is: when it looked
    pause: Pause | None = None  # in force now
    waiting: tuple[WaitingPods, ...] = ()  # pods that wait in vain
    pods: Mapping[str, NodePods] = {}  # lent node -> who holds it
    uids: Mapping[str, str] = {}  # of the Nodes that are recorded
    kinds: Mapping[str, tuple[PodKind, ...]] = {}  # by monitored queue, where it is recorded
    rooms: tuple[NodeRoom, ...] = ()  # of permanent nodes, as well
    waiting_jobs: tuple[WaitingJobs, ...] | None = None  # as last asked; None: nobody says


class Outcome(Value):
    """What the actuator did, a line each, and what it could not do; `done`: the plan's actions that
    were carried out. `told`: the lines of history
    that the run has written; `said`: what of all errors is news, `over`: which
    of them are no more; `notes`: what else is worth a line, and no error."""

    registry: Registry
    actions: tuple[str, ...] = ()
    done: tuple[Action, ...] = ()
    errors: tuple[str, ...] = ()
    told: tuple[HistoryLine, ...] = ()
    said: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Pass(Value):
    """A finished pass; `outcome` None: it stopped before the actions."""

    plan: Plan
    exit_code: int
    outcome: Outcome | None = None
