"""Pods, reduced to the fields that dnm's decisions need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dnm.model.kubelet import Amounts
from dnm.model.value import Resources, Value

MOST_TASK_GROUPS = 32  # of one application
MOST_RESOURCES = 32  # of a pod, or of one task group; `pods` not among them
LONGEST_PATH = 1024  # characters of a queue or an application that a pod may name
LONGEST_GROUP = 253  # of a task group


class Toleration(Value, forbid_unknown_fields=False):
    key: str = ""  # empty with operator Exists: every taint
    operator: str = "Equal"  # Equal | Exists
    value: str = ""
    effect: str = ""  # empty: every effect


class Requirement(Value, forbid_unknown_fields=False):
    """A matchExpression of a node selector or label selector."""

    key: str
    operator: str  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...] = ()


class NodeSelectorTerm(
    Value,
    forbid_unknown_fields=False,
    rename={"expressions": "matchExpressions", "fields": "matchFields"},
):
    """A term of a node selector. All its requirements must hold; several terms are alternatives."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PodAffinityTerm(Value):
    """A required term of a pod's inter-pod affinity or, if `anti`, of its anti-affinity."""

    topology_key: str
    anti: bool
    expressions: tuple[Requirement, ...] = ()  # matchLabels as In with one value
    namespaces: tuple[str, ...] = ()


class PodShape(Value, gc=False):
    """The properties of a pod that decide where it fits. Pods with equal shapes share one object,
    made by `kube/pods.py`, so that grouping may compare identities. Other code compares values.

    The constraints are set only for unbound pods: a bound pod needs none."""

    request: Resources  # effective, with `pods: 1`; no default applied
    request_sidecars_twice: Resources = {}  # if that is counted, and differs
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_affinity: tuple[NodeSelectorTerm, ...] = ()  # required alternatives; empty: none
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    spread_keys: tuple[str, ...] = ()  # topology keys of DoNotSchedule spread constraints
    host_ports: tuple[int, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()  # only if pod_affinity or spread_keys need them
    # The parts of its largest container and of all containers that a kubelet may align to one NUMA
    # node; read only if the kubelets of a node type align.
    aligned: tuple[Amounts, Amounts] | None = None
    is_cut: bool = False  # dnm counts only a part of its requirements, which are too many


class TaskGroup(Value):
    """A group of equal members of a gang, as an annotation on the gang's pods announces it."""

    name: str
    min_member: int
    min_resource: Resources  # per member, with `pods: 1`


class PodIdentity(Value):
    """The application, queue and gang of a pod, from its labels and annotations. `rare` has values
    for fields of `Pod` that few pods set."""

    app_id: str
    queue: str
    rare: Mapping[str, Any] = {}


class Pod(Value, gc=False, kw_only=False):
    """An unfinished pod. `queue` is the requested queue; the queue system may have used another."""

    namespace: str
    name: str
    shape: PodShape
    uid: str = ""
    created: str = ""  # RFC 3339 UTC as the API prints it; sorts as text
    node: str = ""  # empty: not bound
    app_id: str = ""  # its first pod decides the queue; empty: not managed
    queue: str = ""  # the path that it requests; empty: none
    is_managed: bool = False  # its queue system counts it; without one, of a monitored namespace
    is_daemonset: bool = False  # by its owner reference, until that is verified
    owner: str = ""  # uid of its controller, if that is a DaemonSet or Node
    is_mirror: bool = False
    is_terminating: bool = False
    is_gated: bool = False  # has schedulingGates
    is_undecided: bool = False  # without a queue system: not reported unschedulable, or nominated
    is_nominated: bool = False  # the scheduler evicts other pods from a node for it
    devices: tuple[str, ...] = ()  # names of its resourceClaims; empty after they are understood
    group: str = ""  # its PodGroup, after the API group
    is_placeholder: bool = False
    is_rejected: bool = False  # status.reason ApplicationRejected
    task_group: str = ""
    task_groups: tuple[TaskGroup, ...] = ()
    claims: tuple[str, ...] = ()  # names of PersistentVolumeClaims, unbound pods only

    @property
    def counts_as_work(self) -> bool:
        """Returns whether the pod makes its node busy: DaemonSets' and mirror pods do not."""
        return not (self.is_daemonset or self.is_mirror)


class DaemonSet(Value):
    """A DaemonSet. `shape` describes the nodes that it selects, and the request of its pods."""

    namespace: str
    name: str
    uid: str
    shape: PodShape


class Claim(Value):
    """A PersistentVolumeClaim of a pending pod, with the node affinity of its bound volume."""

    namespace: str
    name: str
    phase: str  # Pending | Bound | Lost
    node_affinity: tuple[NodeSelectorTerm, ...] = ()


class PodList(Value):
    """The unfinished pods that dnm could read. `cluster_wide` is False if dnm may only list the
    pods of some namespaces; then the free capacity of nodes is not known exactly."""

    pods: tuple[Pod, ...]
    cluster_wide: bool = True
    unreadable: Mapping[str, str] = {}  # namespace -> error
