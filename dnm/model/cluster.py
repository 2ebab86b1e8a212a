"""Values of the cluster besides Nodes and pods: ConfigMaps, Events, pods as eviction sees them, and
queues as their document and the scheduler report them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dnm.model.pod import Pod
from dnm.model.printable import printable
from dnm.model.value import Resources, Unreadable, Value


class FieldOwner(Value):
    """An entry of managedFields: the last writer of these keys of data and annotations, and its
    operation (`Apply` or `Update`)."""

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
    """A configured queue. A limit that allows everything is empty here."""

    path: str  # lower case, from root
    parent: str | None  # None for root
    is_leaf: bool
    max: Resources = {}
    guaranteed: Resources = {}
    fixed: frozenset[str] = frozenset()  # resources of max that an administrator fixed for nodes


class SchedulerView(Value):
    """The data of a scheduler that knows queues: pod UID -> queue path, and allocated and pending
    resources by path. `user_limited` and `not_started` are UIDs of pods that wait for a limit of
    their user or group, or until their queue may start another application. `release`: e.g. (1, 8),
    if reported."""

    queue_of_pod: Mapping[str, str]
    allocated: Mapping[str, Resources]
    pending: Mapping[str, Resources]
    max: Mapping[str, Resources] = {}
    user_limited: frozenset[str] = frozenset()
    not_started: frozenset[str] = frozenset()
    release: tuple[int, int] | None = None
    counts_sidecars_twice: bool = False


class RefusedPods(Value):
    """Pods that do not exist because the API server refuses them for lack of quota. `retry_until`
    (RFC 3339): the quota admits them since, and their controller tries again before this time."""

    pod: Pod  # one of them, as their template describes it
    count: int
    retry_until: str = ""


class QueueFacts(Value):
    """The facts of a snapshot about the queues. Each queue system adds its own in a subclass, which
    only its package reads. `unread`: why the limits could not be read. `view` None: not read.
    `used`: queue -> the use that the queue system itself reports, if it does.
    `is_use_complete`: bound pods add nothing to it, because the limits count a part of them."""

    unread: Unreadable | None = None
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
        """Returns the name to show."""
        return printable(f"{self.namespace}/{self.name}")


class Reading(Value):
    """The way in which a run read pods and nodes. `way` is `list` or `changes`. `reason` is the
    code of the reason for a list (see `kube/watching.py`). `compared` is the result of comparing a
    list with the stored objects, if it was done: `equal`, `different` or `unproved`. `trouble` is a
    sentence for an administrator."""

    way: str = "list"
    reason: str = ""
    sentence: str = ""  # the reason in words
    changes: int = 0
    waited: float = 0.0  # seconds until the server reported that there were no more changes
    compared: str = ""
    trouble: str = ""
