"""Pods, reduced to what decisions need."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.kubelet import Amounts
from dnm.model.value import Resources, Value


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
    (`kube/pods.py` interns them), so a group-by may use the identity, and equality else.

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


class TaskGroup(Value):
    """An entry of the annotation yunikorn.apache.org/task-groups."""

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
    app_id: str = ""  # resolved as the shim does, autogen included; empty: not YuniKorn's
    queue: str = ""  # label > annotation > label `queue`; empty: none asked
    is_yunikorn: bool = False  # spec.schedulerName == yunikorn
    is_daemonset: bool = False  # as its owner reference claims, until that is verified
    owner: str = ""  # uid of the DaemonSet or Node that it names as its controller
    is_mirror: bool = False
    is_terminating: bool = False
    is_gated: bool = False  # has schedulingGates
    devices: tuple[str, ...] = ()  # what its resourceClaims name; empty too once understood
    group: str = ""  # the PodGroup that it names, behind its API group
    is_placeholder: bool = False
    is_rejected: bool = False  # status.reason ApplicationRejected
    task_group: str = ""
    task_groups: tuple[TaskGroup, ...] = ()
    claims: tuple[str, ...] = ()  # names of PersistentVolumeClaims, unbound pods only

    @property
    def counts_as_work(self) -> bool:
        """Returns whether it keeps a node from being idle: DaemonSets' and mirror pods do not."""
        return not (self.is_daemonset or self.is_mirror)


class DaemonSet(Value):
    """A DaemonSet: the nodes that it selects and what its pod requests there are its `shape`."""

    namespace: str
    name: str
    uid: str
    shape: PodShape


class Claim(Value):
    """A PersistentVolumeClaim that a pending pod names; `node_affinity` of the bound volume."""

    namespace: str
    name: str
    phase: str  # Pending | Bound | Lost
    node_affinity: tuple[NodeSelectorTerm, ...] = ()


class PodList(Value):
    """All unfinished pods that could be read. `cluster_wide` is False if the permissions allow only
    namespaces: then the free capacity of nodes is not known exactly."""

    pods: tuple[Pod, ...]
    cluster_wide: bool = True
    unreadable: Mapping[str, str] = {}  # namespace -> why
