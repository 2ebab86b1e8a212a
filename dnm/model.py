"""The values of one run. Frozen, comparable, printable; no logic beyond derived properties.

Quantities are exact integers in YuniKorn's units under YuniKorn's names, everywhere past the edges:
`vcore` in millicores, `memory` and `ephemeral-storage` in bytes, any other type a plain count.
Instants are aware UTC `datetime`, durations `timedelta`. A fact that could not be read is an
`Unreadable`, never an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TypeAlias, dataclass_transform

import msgspec

Resources: TypeAlias = Mapping[str, int]
"""Resource name -> amount, e.g. {"vcore": 128000, "memory": 256000000000, "nvidia.com/gpu": 4}."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parent of every value below."""


class Unreadable(Value):
    """A read that failed: what was asked, and the sentence that says why."""

    what: str
    error: str


# --- configuration ---------------------------------------------------------------------------


class Taint(Value):
    key: str
    effect: str  # NoSchedule | PreferNoSchedule | NoExecute
    value: str = ""


class NodeType(Value):
    """A class of equal machines. `{namespace}` in labels and taints is the namespace it serves."""

    name: str
    size: Resources  # expected, used before a node has joined
    name_prefix: str = ""  # of node names, followed by digits; empty: the type's name
    max_nodes: int | None = None
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()


class NamespacePolicy(Value):
    """One monitored namespace; `node_types` in order of preference."""

    name: str
    queue: str  # full path from root, lower case
    node_types: tuple[str, ...]
    max_nodes: int | None = None
    min_nodes: int = 0
    priority: int = 0
    reversion_idle: timedelta = timedelta(seconds=600)


class Config(Value):
    """Everything a run is told. Every default stands here and nowhere else."""

    path: Path
    namespaces: Mapping[str, NamespacePolicy]
    node_types: Mapping[str, NodeType]
    kubeconfig_path: Path | None = None
    check_interval: timedelta = timedelta(seconds=60)
    max_converted_nodes: int = 30
    max_conversions_per_run: int = 4
    max_reversions_per_run: int = 4
    headroom: float = 0.95
    pending_grace: timedelta | None = None  # None: one check_interval
    global_cooldown: timedelta = timedelta(seconds=30)
    join_timeout: timedelta = timedelta(seconds=900)
    convert_timeout: timedelta = timedelta(seconds=1800)
    shutdown_grace: timedelta = timedelta(seconds=600)
    request_timeout: timedelta = timedelta(seconds=30)
    breaker_strikes: int = 3
    adjust_guaranteed: bool = True
    allow_preempt: bool = False
    log_console: bool = False
    yunikorn_cm_namespace: str = "yunikorn"
    yunikorn_cm_name: str = "yunikorn-configs"
    yunikorn_queue_annotation: str = "yunikorn.apache.org/queue"
    yunikorn_url: str = ""
    default_request: Resources = msgspec.field(
        default_factory=lambda: {"vcore": 1000, "memory": 2 * 1024**3}
    )
    state_dir: Path = Path("/etc/dynamic-node")
    converted_nodes_path: Path = Path("/etc/dynamic-node/converted_nodes.json")
    node_convert_path: Path = Path("node-convert")
    instance_id: str = "prod"
    allowed_queue_prefixes: tuple[str, ...] = ()  # lower case; empty: every queue
    slurm_reservation_name: str = ""

    @property
    def lock_path(self) -> Path:
        """Beside the registry, so that two state directories never share a lock."""
        return self.converted_nodes_path.with_suffix(".lock")

    def type_of(self, node: str) -> str | None:
        """The type whose prefix, followed by digits only, is the node's name; None if none is."""
        for node_type in self.node_types.values():
            prefix = node_type.name_prefix or node_type.name
            number = node.removeprefix(prefix)
            if node.startswith(prefix) and number.isascii() and number.isdigit():
                return node_type.name
        return None

    @property
    def queues(self) -> tuple[str, ...]:
        """The monitored queues, sorted, each once."""
        return tuple(sorted({policy.queue for policy in self.namespaces.values()}))


# --- the cluster -----------------------------------------------------------------------------


class Toleration(Value):
    key: str = ""  # empty with operator Exists: every taint
    operator: str = "Equal"  # Equal | Exists
    value: str = ""
    effect: str = ""  # empty: every effect


class Requirement(Value):
    """One matchExpression of a node selector or label selector."""

    key: str
    operator: str  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Value):
    """Requirements that all hold; terms are alternatives."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PodAffinityTerm(Value):
    """A required inter-pod (anti-)affinity term."""

    topology_key: str
    anti: bool
    expressions: tuple[Requirement, ...] = ()  # matchLabels as In with one value
    namespaces: tuple[str, ...] = ()


class PodShape(Value, gc=False):
    """What is equal among pods of one kind and decides where they fit. Equal shapes are one object
    (`kube.py` interns them), so a group-by may use the identity and fall back on equality.

    The constraints are only filled for unbound pods: a bound pod needs none.
    """

    request: Resources  # effective, as YuniKorn computes it, with `pods: 1`; no default applied
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_affinity: tuple[NodeSelectorTerm, ...] = ()  # required; alternatives; empty: none
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    spread_keys: tuple[str, ...] = ()  # topology keys of DoNotSchedule spread constraints
    host_ports: tuple[int, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()  # only where pod_affinity or spread_keys need them


class TaskGroup(Value):
    """One entry of the annotation yunikorn.apache.org/task-groups."""

    name: str
    min_member: int
    min_resource: Resources  # per member, with `pods: 1`


class Pod(Value, gc=False):
    """An unfinished pod, reduced. `queue` is what it asks for, not where YuniKorn put it."""

    namespace: str
    name: str
    shape: PodShape
    uid: str = ""
    created: str = ""  # RFC 3339 UTC as the API prints it; sorts as text
    node: str = ""  # empty: not bound
    running: bool = False  # phase Running; else Pending
    app_id: str = ""  # resolved as the shim does, autogen included; empty: not YuniKorn's
    queue: str = ""  # label > annotation > label `queue`; empty: none asked
    is_yunikorn: bool = False  # spec.schedulerName == yunikorn
    is_daemonset: bool = False
    is_mirror: bool = False
    is_terminating: bool = False
    is_gated: bool = False  # has schedulingGates
    is_placeholder: bool = False
    is_rejected: bool = False  # status.reason ApplicationRejected
    priority: int = 0
    task_group: str = ""
    task_groups: tuple[TaskGroup, ...] = ()
    claims: tuple[str, ...] = ()  # names of PersistentVolumeClaims, unbound pods only

    @property
    def counts_as_work(self) -> bool:
        """Whether it keeps a node from being idle: of no DaemonSet, no mirror pod."""
        return not (self.is_daemonset or self.is_mirror)


class Claim(Value):
    """A PersistentVolumeClaim that a pending pod names; `node_affinity` of the bound volume."""

    namespace: str
    name: str
    phase: str  # Pending | Bound | Lost
    node_affinity: tuple[NodeSelectorTerm, ...] = ()


class Mark(Value):
    """dnm's annotations on a Node: whose it is and what it serves."""

    instance: str
    node_type: str
    namespace: str
    queue: str
    fenced: bool = False  # the cordon is ours


class Node(Value):
    """A Kubernetes Node. `allocatable` in YuniKorn's names; `pods` is among them."""

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    created: str = ""
    resource_version: str = ""
    is_ready: bool = True
    is_cordoned: bool = False
    is_deleting: bool = False
    mark: Mark | None = None


class PodList(Value):
    """All unfinished pods that could be read; `cluster_wide` is False where the permissions allow
    only namespaces, and then room on nodes is not known exactly."""

    pods: tuple[Pod, ...]
    cluster_wide: bool = True
    unreadable: Mapping[str, str] = {}  # namespace -> why


class ConfigMap(Value):
    namespace: str
    name: str
    resource_version: str
    data: Mapping[str, str] = {}
    binary_data: Mapping[str, str] = {}  # base64 text, as the API has it
    annotations: Mapping[str, str] = {}
    immutable: bool = False


class Deployment(Value):
    """A Deployment of the validation load. `ready` counts its replicas that are ready."""

    namespace: str
    name: str
    replicas: int
    ready: int = 0
    created: str = ""
    labels: Mapping[str, str] = {}


class QueueLimits(Value):
    """One configured queue; an all-zero limit is no limit (YuniKorn >= 1.5) and is empty here."""

    path: str  # lower case, from root
    parent: str | None  # None for root
    is_leaf: bool
    max: Resources = {}
    guaranteed: Resources = {}
    fixed: frozenset[str] = frozenset()  # of max: set below what is lent, so no node moves it


class BatchNode(Value):
    """A node as the batch side has it (`node-convert --list`). `in_service`: None is unknown."""

    name: str
    state: str  # Slurm's words, e.g. IDLE+DRAIN
    verdict: str  # OK | PREEMPT | SKIP
    reason: str = ""
    in_service: bool | None = None


class YunikornView(Value):
    """What the scheduler itself says: pod UID -> queue path; allocated and pending by path."""

    queue_of_pod: Mapping[str, str]
    allocated: Mapping[str, Resources]
    pending: Mapping[str, Resources]
    max: Mapping[str, Resources] = {}


# --- the registry ----------------------------------------------------------------------------


class Phase(Enum):
    """The recorded, durable state of a lent node."""

    JOINING = "joining"
    SERVING = "serving"
    RELEASING = "releasing"
    RETURNING = "returning"
    FAILED = "failed"


class ConverterProcess(Value):
    """A converter that was started; the start time tells it from a later process of the same id."""

    pid: int
    start_ticks: int


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
    attempts: int = 0  # converter calls of this phase that did not end it
    is_handed_over: bool = False  # the last of them ended with exit code 0
    retry_after: datetime | None = None
    error: str = ""
    converter: ConverterProcess | None = None

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
    names: tuple[str, ...] = ()  # named by the converter
    ended: bool = False  # the converter is known to have ended; `since` is that moment then
    is_given_up: bool = False  # failed: late nodes are still adopted, but nobody counts on them
    converter: ConverterProcess | None = None
    error: str = ""


class Backoff(Value):
    """After failed conversions of a node type."""

    failures: int
    until: datetime
    ask_at_most: int
    last_error: str = ""


class Breaker(Value):
    """Of one queue: conversions in a row that went unused; tripped until its demand changes."""

    strikes: int = 0  # less than none: so many unused nodes are forgiven (`dnm reset`)
    tripped_at: datetime | None = None
    demand: str = ""  # fingerprint of the pending pods when it tripped
    trips: int = 0  # so far, without a node that was used in between


class Waiting(Value):
    """Equal pods that stayed pending beside an idle node with room and quota for them: they wait
    for something else. They count for nothing while exactly these pods are still pending."""

    count: int
    until: str  # the youngest of them was created then, RFC 3339 as the API prints it


class Pause(Value):
    since: datetime
    until: datetime | None = None
    reason: str = ""


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


class RunRecord(Value):
    """What the last run saw and did. When it began and ended are the times of the lock file and of
    the state file, so that a run without a change rewrites nothing."""

    exit_code: int = 0
    acted_at: datetime | None = None
    actions: tuple[str, ...] = ()  # of the last run that did something, at `acted_at`
    errors: tuple[str, ...] = ()
    queues: dict[str, QueueStatus] = {}
    nodes: dict[str, str] = {}  # lent node -> sentence


class Registry(Value):
    """dnm's own record; the one state file."""

    version: int = 1
    nodes: dict[str, LentNode] = {}
    requests: tuple[ConversionRequest, ...] = ()
    last_conversion: datetime | None = None
    backoffs: dict[str, Backoff] = {}  # by node type
    breakers: dict[str, Breaker] = {}  # by queue path
    waiting: dict[str, Waiting] = {}  # by fingerprint of a group of equal pending pods
    pause: Pause | None = None
    held: tuple[str, ...] = ()  # nodes that `dnm hold` keeps
    last_run: RunRecord = RunRecord()

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


# --- the snapshot and the plan ---------------------------------------------------------------


class Ended(Value):
    """How a converter ended, as far as it can be told."""

    exit_code: int | None = None  # None: it is still at work, was ended, or nobody wrote it down
    names: tuple[str, ...] = ()  # nodes it named on stdout, a line each
    last_lines: tuple[str, ...] = ()
    timed_out: bool = False
    left_running: bool = False
    not_started: str = ""  # why

    @property
    def error(self) -> str:
        """What went wrong; empty where it simply succeeded, or nothing is known."""
        if self.not_started:
            return self.not_started
        last = f": {self.last_lines[-1]}" if self.last_lines else ""
        if self.timed_out:
            return f"the converter ran out of its time and was ended{last}"
        if self.exit_code not in (0, None):
            return f"the converter ended with exit code {self.exit_code}{last}"
        return ""


class Snapshot(Value):
    """Everything a run looks at, read once. `now` is `taken_at`."""

    taken_at: datetime
    pods: PodList | Unreadable
    nodes: tuple[Node, ...] | Unreadable
    queue_maps: tuple[ConfigMap | None, ConfigMap | None] | Unreadable  # configs, then defaults
    batch: Mapping[str, BatchNode] | Unreadable | None = None  # None: not asked
    claims: tuple[Claim, ...] | Unreadable = ()
    yunikorn: YunikornView | Unreadable | None = None
    running_converters: frozenset[ConverterProcess] = frozenset()
    ended: Mapping[str, Ended] = {}  # calls of earlier runs by key; one at work has names alone


class Verdict(Enum):
    """The answer for one node or queue in this run."""

    KEEP = "keep"
    WAIT = "wait"
    CONVERT = "convert"
    REVERT = "revert"
    FAILED = "failed"


class Reason(Enum):
    """Why; the value is the sentence shown to people, details follow behind a colon."""

    # queues
    ENOUGH = "has room and quota for all its pods"
    LACKS_QUOTA = "its pods need more quota than the queue has"
    LACKS_ROOM = "its pods fit the quota but no node has room for them"
    LACKS_BOTH = "its pods need more quota and more nodes"
    NEARLY_FULL = "demand is above the headroom mark"
    MIN_NODES = "fewer nodes are ready than min_nodes asks for"
    NOTHING_HELPS = "no new node would help its pending pods"
    ON_THE_WAY = "nodes that are on their way will be enough"
    TOO_YOUNG = "its pods have not been pending for pending_grace_seconds yet"
    CAPPED = "a cap is reached"
    NO_BATCH_NODE = "no batch node can be lent now"
    BATCH_NOT_ASKED = "which batch nodes can be lent has not been asked yet"
    COOLDOWN = "the cooldown after the last conversion is not over"
    BACKOFF = "conversions of this node type failed and are backing off"
    BREAKER = "nodes that it got went unused; it waits for changed demand or `dnm reset`"
    PAUSED = "dnm is paused"
    QUEUE_UNREADABLE = "the queue document can't be used"
    DEMAND_UNREADABLE = "its pods could not be read"
    OTHERS_FIRST = "other queues come first for the nodes that can be lent"
    # nodes
    JOINING = "waits for the Node to be Ready"
    JOINED = "has joined and serves its queue from now on"
    IN_USE = "pods are running on it"
    IDLE = "is idle and waits for its idle time to pass"
    NEEDED = "is idle but its queue would need it again"
    KEPT_READY = "is kept ready by min_nodes"
    HELD = "is held by `dnm hold`"
    HELD_BY_ADMIN = "is cordoned by an administrator"
    IDLE_LONG_ENOUGH = "has been idle long enough and goes back"
    BUDGET = "may go back, but this run's reversions are used up"
    FENCED = "is fenced and looked at once more before it goes back"
    DEMAND_RETURNED = "is wanted again and serves on"
    RETURNING = "is on its way back to Slurm"
    RETURNED = "is back in Slurm and gone from Kubernetes"
    GONE = "has left Kubernetes without dnm"
    LATE = "did not join in time"
    RETRY = "will be tried again"
    GAVE_UP = "needs a person"
    NOT_OURS = "belongs to another instance"
    UNKNOWN = "can't be judged: a fact about it could not be read"


class NodeVerdict(Value):
    node: str
    verdict: Verdict
    reason: Reason
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class QueueVerdict(Value):
    queue: str
    verdict: Verdict
    reason: Reason
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class MarkNode(Value, tag=True):
    """Write dnm's annotations on a Node that serves."""

    node: str
    mark: Mark


class Fence(Value, tag=True):
    """Cordon the Node with our mark; the queue has shrunk before."""

    node: str


class Unfence(Value, tag=True):
    """Take our cordon off again."""

    node: str


class SetQueueLimits(Value, tag=True):
    """Make every limit its baseline plus what serves now (queue -> node -> recorded size), but
    none smaller than its floor (queue -> what is allocated, or a gang application asks for)."""

    queues: dict[str, dict[str, dict[str, int]]]
    floors: dict[str, dict[str, int]] = {}


class StartConversion(Value, tag=True):
    """Call the converter for a request that the registry holds already."""

    request: ConversionRequest


class ReturnNode(Value, tag=True):
    """Call the converter to give the node back; checked once more just before."""

    node: str


class EndConverter(Value, tag=True):
    """End a converter that hangs and whose run is gone; `key` is its request or node."""

    key: str
    process: ConverterProcess


Action: TypeAlias = (
    EndConverter | MarkNode | Fence | Unfence | SetQueueLimits | StartConversion | ReturnNode
)


class Plan(Value):
    """What a run will do: if it is not here it does not happen. `registry` is saved before the
    first action."""

    registry: Registry
    actions: tuple[Action, ...] = ()
    nodes: tuple[NodeVerdict, ...] = ()
    queues: tuple[QueueVerdict, ...] = ()
    notes: tuple[str, ...] = ()  # reported, not failed: a re-applied manifest, a floor
    errors: tuple[str, ...] = ()  # reads that failed, questions that wait for a person
    status: dict[str, QueueStatus] = {}  # by monitored queue
    diff: str = ""  # of the queue document, unified
    needs_person: bool = False


class Outcome(Value):
    """What the actuator did, a line each, and what it could not do."""

    registry: Registry
    actions: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


class Pass(Value):
    """One pass as it went; `outcome` None: it stopped before the actions."""

    plan: Plan
    exit_code: int
    outcome: Outcome | None = None
