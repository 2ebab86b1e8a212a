"""Values that dnm reads from the cluster: ConfigMaps, Events, queues, and pods to evict."""

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
    """A queue and its configured limits. A limit is empty if it allows everything."""

    path: str  # lower case, from root
    parent: str | None  # None for root
    is_leaf: bool
    max: Resources = {}
    guaranteed: Resources = {}
    fixed: frozenset[str] = frozenset()  # resources of max that an administrator fixed for nodes


class SchedulerView(Value):
    """The answers of a scheduler's API: the queue path of each pod by its UID, and the allocated
    and pending resources by queue path. `user_limited` has the UIDs of pods that wait for a limit
    of their user or group, `not_started` those of pods that wait until their queue may start
    another application. `release` is the scheduler's version if it is reported, e.g. (1, 8)."""

    queue_of_pod: Mapping[str, str]
    allocated: Mapping[str, Resources]
    pending: Mapping[str, Resources]
    max: Mapping[str, Resources] = {}
    user_limited: frozenset[str] = frozenset()
    not_started: frozenset[str] = frozenset()
    release: tuple[int, int] | None = None
    counts_sidecars_twice: bool = False


class RefusedPods(Value):
    """Equal pods that quotas keep `owner`, a Job, StatefulSet or ReplicaSet, from creating. If the
    quotas admit them now, the controller of `owner` tries again before `retry_until` (RFC 3339).
    `is_invalid`: no quota admits them. `is_unhelped`: lent nodes do not help them.

    With Kueue, `workload` is the Workload of the pods. At least `least` must be admitted together.
    `is_strict`: its queue admits no later Workload before this one."""

    pod: Pod  # one of them, as their template describes it
    count: int
    retry_until: str = ""
    is_invalid: bool = False
    is_unhelped: bool = False
    owner: str = ""
    workload: str = ""
    least: int = 0
    is_strict: bool = False


class QueueFacts(Value):
    """The facts about queues that a run has read. Each queue system adds its own in a subclass,
    which only its package reads. `unread` explains why no limits could be read, `unread_queues` why
    those of some queues could not be. `unread_ledgers` has the queues with an unknown ledger.
    `view` is None if it was not read. `used` has the usage of each queue, if the queue system
    reports that. If `is_use_complete`, it replaces the sum of bound pods: not all count."""

    unread: Unreadable | None = None
    unread_queues: Mapping[str, Unreadable] = {}
    unread_ledgers: frozenset[str] = frozenset()
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
    """An unfinished pod on a node, with the facts that decide whether dnm may evict it."""

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
    """The way in which a run read pods and nodes: `way` is `list` (all) or `changes` (by a watch).
    `reason` is the code of the reason why it listed them (`kube/watching.py`). `compared` is the
    result of a comparison of that list with dnm's stored copy: `equal`, `different` or `unproved`;
    it is empty without one. `trouble` is a sentence for an administrator."""

    way: str = "list"
    reason: str = ""
    sentence: str = ""  # the reason in words
    changes: int = 0
    waited: float = 0.0  # seconds until the server reported that there were no more changes
    compared: str = ""
    trouble: str = ""
