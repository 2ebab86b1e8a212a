"""Values that dnm reads from the cluster besides Nodes and pods: ConfigMaps, Events, the pods on a
node for an eviction, and queues as their document and the scheduler report them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dnm.model.pod import Pod
from dnm.model.printable import printable
from dnm.model.value import Resources, Unreadable, Value

# These tools set all values of a chart or module, without server-side apply.
REPLACING_MANAGERS = frozenset(("helm", "helm-controller", "argocd-controller", "HashiCorp"))


class FieldOwner(Value):
    """An entry of an object's managedFields: a field manager, its operation (`Apply` or `Update`),
    and the keys of data and annotations that it wrote last."""

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


class QueueLimits(Value):
    """A configured queue and its limits. A limit that allows everything is represented as empty."""

    path: str  # lower case, from root
    parent: str | None  # None for root
    is_leaf: bool
    max: Resources = {}
    guaranteed: Resources = {}
    fixed: frozenset[str] = frozenset()  # resources of max that an administrator fixed for nodes


class SchedulerView(Value):
    """The data from a scheduler's API: the queue path of each pod by UID, and the allocated and
    pending resources by queue path. `user_limited`: UIDs of pods that wait for a limit of their
    user or group. `not_started`: UIDs of pods that wait until their queue may start another
    application. `release`: the scheduler's version if reported, e.g. (1, 8)."""

    queue_of_pod: Mapping[str, str]
    allocated: Mapping[str, Resources]
    pending: Mapping[str, Resources]
    max: Mapping[str, Resources] = {}
    user_limited: frozenset[str] = frozenset()
    not_started: frozenset[str] = frozenset()
    release: tuple[int, int] | None = None
    counts_sidecars_twice: bool = False


class RefusedPods(Value):
    """Equal pods that the API server refuses for lack of quota. If the quota admits them now, their
    controller tries again before `retry_until` (RFC 3339). `is_invalid`: no quota admits them.
    `owner`: the name of the Job, StatefulSet or ReplicaSet that lacks them.

    `workload`: the Workload whose pods the queue system admits together, at least `least` of these.
    `is_strict`: the queue system admits no later Workload of the queue before this one."""

    pod: Pod  # one of them, as their template describes it
    count: int
    retry_until: str = ""
    is_invalid: bool = False
    owner: str = ""
    workload: str = ""
    least: int = 0
    is_strict: bool = False


class QueueFacts(Value):
    """The facts of a snapshot about the queues. Each queue system adds its own in a subclass, which
    only its package reads. `unread`: why no limits could be read. `unread_queues`: queue -> why its
    limits could not be read, while others could. `view` None: not read. `used`: queue -> its use,
    if the queue system reports that. If `is_use_complete`, `used` replaces the sum of bound pods,
    since the limits count only some of them."""

    unread: Unreadable | None = None
    unread_queues: Mapping[str, Unreadable] = {}
    view: SchedulerView | Unreadable | None = None
    refused: tuple[RefusedPods, ...] = ()
    used: Mapping[str, Resources] = {}
    is_use_complete: bool = False


class KubeEvent(Value):
    """An Event of events.k8s.io/v1 about a Pod or a Node, as `kubectl describe` shows it. For a
    Node, `namespace` is empty. `reason` and `action` are in CamelCase, `note` is a sentence."""

    kind: str  # Node | Pod
    namespace: str
    name: str
    uid: str
    is_warning: bool
    reason: str
    action: str
    note: str
    time: datetime


class PodOnNode(Value, frozen=True):
    """An unfinished pod on a node."""

    namespace: str
    name: str
    uid: str
    stays: bool  # of a DaemonSet or NodeSet, or a mirror pod: never evicted
    is_terminating: bool
    loss: str = ""  # data that an eviction would destroy; empty: none
    is_work: bool = True  # False: a DaemonSet's or mirror pod; with only those, a node is idle

    @property
    def key(self) -> str:
        """Returns `namespace/name` for display."""
        return printable(f"{self.namespace}/{self.name}")


class Reading(Value):
    """The way in which a run read pods and nodes. `way` is `list` (all) or `changes` (a watch).
    `reason`: the code of the reason for a list (see `kube/watching.py`). `compared`: the result of
    comparing a list with the stored objects, if it was done: `equal`, `different` or `unproved`.
    `trouble`: a sentence for an administrator."""

    way: str = "list"
    reason: str = ""
    sentence: str = ""  # the reason in words
    changes: int = 0
    waited: float = 0.0  # seconds until the server reported that there were no more changes
    compared: str = ""
    trouble: str = ""
