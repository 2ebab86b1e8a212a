"""Values of the cluster besides Nodes and pods: ConfigMaps, Events, pods as eviction sees them, and
queues as their document and the scheduler report them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dnm.model.printable import printable
from dnm.model.value import Resources, Value


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
    """A configured queue. A limit of zeros is no limit (YuniKorn >= 1.5) and is empty here."""

    path: str  # lower case, from root
    parent: str | None  # None for root
    is_leaf: bool
    max: Resources = {}
    guaranteed: Resources = {}
    fixed: frozenset[str] = frozenset()  # of max: as a person has set it, no node moves it


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


class KubeEvent(Value):
    """An Event of events.k8s.io/v1: what `kubectl describe` shows of a Node (its `namespace` is
    empty) or of a Pod. `reason` and `action` are words in CamelCase, `note` a sentence."""

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
    loss: str = ""  # what an eviction would lose for good; empty: nothing
    is_work: bool = True  # False: of a DaemonSet, or a mirror pod; it keeps no node from being idle

    @property
    def key(self) -> str:
        """Returns the name to show."""
        return printable(f"{self.namespace}/{self.name}")


class Reading(Value):
    """How a run came to know pods and nodes. `way`: `list` or `changes`; `reason`: why it was the
    list (`kube/watching.py` has them all). `compared`: what the comparison of a list with what was
    kept has shown, if there was one: `equal`, `different` or `unproved`. `trouble`: a sentence for
    a person."""

    way: str = "list"
    reason: str = ""
    sentence: str = ""  # the reason in words
    changes: int = 0
    waited: float = 0.0  # seconds for the server to say that this was all
    compared: str = ""
    trouble: str = ""
