"""What a run sees: pods, nodes, queues and the batch side, reduced to what decisions need."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dnm.model.config import Taint
from dnm.model.kubelet import Amounts
from dnm.model.slinky import EXTERNAL_NODE
from dnm.model.slurm_state import parse_state
from dnm.model.value import Resources, Unreadable, Value


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
    (`kube/pod_shapes.py` interns them), so a group-by may use the identity, and equality else.

    The constraints are only filled for unbound pods: a bound pod needs none.
    """

    request: Resources  # effective, as YuniKorn computes it, with `pods: 1`; no default applied
    request_before_1_9: Resources = {}  # as YuniKorn before 1.9 does, where that is another
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_affinity: tuple[NodeSelectorTerm, ...] = ()  # required; alternatives; empty: none
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    spread_keys: tuple[str, ...] = ()  # topology keys of DoNotSchedule spread constraints
    host_ports: tuple[int, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()  # only where pod_affinity or spread_keys need them
    # What of its largest container, and of all of it, a kubelet may align to one NUMA node; only
    # read where the kubelets of a node type do.
    aligned: tuple[Amounts, Amounts] | None = None
    is_cut: bool = False  # it asks for more than is counted of a pod, and the rest was cut off

    @property
    def rules(self) -> int:
        """How much there is to compare with a node: its rules, where ten values count as one."""
        terms = [one for term in self.node_affinity for one in (*term.expressions, *term.fields)]
        terms += [one for affinity in self.pod_affinity for one in affinity.expressions]
        plain = (self.node_selector, self.tolerations, self.node_affinity, self.pod_affinity,
                 self.spread_keys, self.host_ports)  # fmt: skip
        values = sum(len(one.values) for one in terms) + len(self.labels)
        return sum(map(len, plain)) + len(terms) + values // 10


class TaskGroup(Value):
    """One entry of the annotation yunikorn.apache.org/task-groups."""

    name: str
    min_member: int
    min_resource: Resources  # per member, with `pods: 1`


class Pod(Value, gc=False, kw_only=False):
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
    fenced: bool = False  # dnm has cordoned it; a person may have lifted that since


BATCH_TAINT = "dynamic-node-manager/batch"
"""With NoSchedule, on a Node of a machine that Slurm has: only what slurmd needs tolerates it."""


class ShownState(Value):
    """What a Node shows of its state in Slurm: `states` are the conditions, without their prefix
    and sorted, `text` is the annotation beside them, with Reason and time."""

    states: tuple[str, ...] = ()
    text: str = ""


class Node(Value):
    """A Kubernetes Node. `allocatable` in YuniKorn's names; `pods` is among them.

    `unreadable` says what of it could not be read: it is there, and nothing else is known of it, so
    it offers no room, and is neither taken up nor returned."""

    name: str
    allocatable: Resources
    uid: str = ""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    created: str = ""
    resource_version: str = ""
    is_ready: bool = True
    is_cordoned: bool = False
    is_deleting: bool = False
    mark: Mark | None = None
    capacity: Resources = {}  # only read where a node type says what its kubelets keep back
    zones: tuple[Amounts, ...] = ()  # what is free on each NUMA node, where its exporter is read
    unreadable: str = ""
    shown: ShownState | None = None  # None: dnm shows nothing on it

    @property
    def is_with_batch(self) -> bool:
        """Whether it is the Node of a machine that Slurm has, and so none for pods: its converter
        moves machines that are always Nodes. slurm-bridge's own are told by their label; one that
        is put on a lent Node makes it no less lent."""
        is_bridged = EXTERNAL_NODE in self.labels and self.mark is None
        return is_bridged or any(
            one.key == BATCH_TAINT and one.effect == "NoSchedule" for one in self.taints
        )

    def is_marked_by(self, instance: str) -> bool:
        """Whether its annotations name this instance of dnm; its own kubelet can write them too."""
        return self.mark is not None and self.mark.instance == instance

    @property
    def carries_fence(self) -> bool:
        """Whether its annotations say that dnm has cordoned it, cordoned or not by now."""
        return self.mark is not None and self.mark.fenced

    @property
    def is_fenced(self) -> bool:
        """Whether it is cordoned, and that is dnm's own cordon."""
        return self.is_cordoned and self.carries_fence

    @property
    def is_cordoned_by_another(self) -> bool:
        """Whether it is cordoned without dnm's mark on it: an administrator's, not ours to take."""
        return self.is_cordoned and not self.carries_fence


class PodList(Value):
    """All unfinished pods that could be read; `cluster_wide` is False where the permissions allow
    only namespaces, and then room on nodes is not known exactly."""

    pods: tuple[Pod, ...]
    cluster_wide: bool = True
    unreadable: Mapping[str, str] = {}  # namespace -> why


class FieldOwner(Value):
    """One entry of managedFields: who last set these keys of data and annotations, and how (`Apply`
    or `Update`)."""

    manager: str
    operation: str
    keys: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()


class ConfigMap(Value):
    namespace: str
    name: str
    resource_version: str
    data: Mapping[str, str] = {}
    binary_data: Mapping[str, str] = {}  # base64 text, as the API has it
    annotations: Mapping[str, str] = {}
    immutable: bool = False
    owners: tuple[FieldOwner, ...] = ()
    read_at: datetime | None = None  # by the server's clock; None: it did not say


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
    fixed: frozenset[str] = frozenset()  # of max: as a person has set it, no node moves it


class BatchClaim(Value):
    """What a converter says of a node that it has claimed: for which instance, and how far it is.

    `instance` empty: a reservation of its kind that nobody has marked. `direction`: of a conversion
    that has not ended, `k8s` or `batch`; empty: it has, or nothing is known of it here.
    `is_at_work`: a living converter has the node. `error`: why it stopped, a person's to read.
    """

    instance: str
    direction: str = ""
    namespace: str = ""
    node_type: str = ""
    request: str = ""  # dnm's, if it was begun for one
    since: datetime | None = None
    is_at_work: bool = False
    error: str = ""

    @property
    def is_interrupted(self) -> bool:
        """Whether a conversion has stopped in the middle and nobody goes on with it."""
        return bool(self.direction) and not self.is_at_work


class SlurmReason(Value):
    """Why a node is drained, down or failed, as Slurm's Reason says it: who wrote that, and when.
    `instance`: the dnm whose mark it is; empty: an administrator's, a health check's, Slurm's."""

    text: str
    by: str = ""
    since: datetime | None = None
    instance: str = ""

    @property
    def line(self) -> str:
        """As scontrol prints it, in UTC."""
        when = f"@{self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since else ""
        return f"{self.text} [{self.by}{when}]" if self.by else self.text


class BatchNode(Value):
    """A node as the batch side has it (`node-convert --list`). `in_service`: None is unknown.
    `tells_claim` False: the converter does not say what it has claimed. `slurm_reason` None: there
    is none, or the converter does not say."""

    name: str
    state: str  # Slurm's words, e.g. IDLE+DRAIN
    verdict: str  # OK | PREEMPT | SKIP
    reason: str = ""
    in_service: bool | None = None
    claim: BatchClaim | None = None
    tells_claim: bool = False
    partitions: tuple[str, ...] = ()  # none: it is in none, or the converter does not say
    features: tuple[str, ...] | None = None  # None: the converter does not say
    reservations: tuple[str, ...] | None = None  # that name it, now or later; None: as above
    reservations_begin: Mapping[str, datetime] = {}  # those of them of which it says when
    slurm_reason: SlurmReason | None = None

    @property
    def is_idle(self) -> bool:
        """Whether Slurm has it and nothing runs on it or is planned for it."""
        state = parse_state(self.state)
        return self.in_service is True and state.base == "IDLE" and not state.flags

    @property
    def is_drained(self) -> bool:
        """Whether it answers, idle, and takes no jobs: somebody has drained it."""
        state = parse_state(self.state)
        return state.base == "IDLE" and state.flags & {"DRAIN", "NOT_RESPONDING"} == {"DRAIN"}

    @property
    def others_drain(self) -> SlurmReason | None:
        """The drain of somebody who is no dnm, which no return lifts; None: none is told."""
        is_drained = "DRAIN" in parse_state(self.state).flags
        said = self.slurm_reason
        return said if is_drained and said is not None and not said.instance else None

    @property
    def is_reserved(self) -> bool:
        """Whether a reservation holds it, perhaps its converter's."""
        return "RESERVED" in parse_state(self.state).flags


class WaitingJobs(Value):
    """Counts the pending jobs of a partition that would start now if there were more nodes of a
    type. `nodes`: those that they ask for together. `since`: the first was submitted then."""

    partition: str
    node_type: str
    jobs: int
    nodes: int
    since: datetime | None = None


class BatchList(Value):
    """The batch side as its converter tells it. `waiting` None: it does not say what jobs wait
    for, and nobody else does."""

    nodes: Mapping[str, BatchNode]
    waiting: tuple[WaitingJobs, ...] | Unreadable | None = None
    books: bool = False  # it says that it can reserve nodes ahead of time
    leaves_out: bool = False  # it says that it can be told which nodes not to choose


class YunikornView(Value):
    """What the scheduler itself says: pod UID -> queue path; allocated and pending by path; and the
    UIDs of pods that wait for their user's or group's limit (`user_limited`), or until their queue
    may run another application (`not_started`). `release`: e.g. (1, 8); None: it tells none."""

    queue_of_pod: Mapping[str, str]
    allocated: Mapping[str, Resources]
    pending: Mapping[str, Resources]
    max: Mapping[str, Resources] = {}
    user_limited: frozenset[str] = frozenset()
    not_started: frozenset[str] = frozenset()
    release: tuple[int, int] | None = None
