"""The interface of a queue system. Each queue system is a package below this one.

A `QueueSystem` reads facts before any decision and writes limits after it. It makes a value of type
`Queues` from these facts. The planner uses only this value and imports no queue system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dnm.model.cluster import ConfigMap, QueueFacts, QueueLimits
from dnm.model.config import Config
from dnm.model.pod import PodIdentity
from dnm.model.queue_edit import Projection, QueueEdit, QueueNumbers, QueueOutcome, QueueWants
from dnm.model.value import Resources
from dnm.model.verdict import Objection

if TYPE_CHECKING:  # a site imports the values of its own queue system only
    from dnm.model.kueue import ClusterQueue, Cohort, Flavor, KueueWorkload, LocalQueue, Usage
    from dnm.model.quota import ResourceQuota
    from dnm.model.workload import LackingPods, PriorityClass


class KubeObjects(Protocol):
    """A client for kinds of object that only some queue systems need. Methods raise KubeError."""

    def read_quotas(self, namespace: str) -> list[ResourceQuota]:
        """Returns the ResourceQuotas of a namespace."""

    def patch_object(
        self, kind: str, namespace: str, name: str, patch: Mapping[str, object]
    ) -> None:
        """Sends a merge patch of an object. Raises KubeConflict if its version has changed."""

    def read_lacking(self, namespace: str) -> list[LackingPods]:
        """Returns a namespace's workloads that have too few pods, the longest waiting first."""

    def read_priority_classes(self) -> list[PriorityClass]:
        """Returns the PriorityClasses of the cluster."""


class KueueObjects(Protocol):
    """A client for the objects of Kueue. All methods raise KubeError."""

    def list_cluster_queues(self) -> list[ClusterQueue]: ...

    def list_cohorts(self) -> list[Cohort]: ...

    def list_capacity_providers(self) -> list[Cohort]: ...

    def list_flavors(self) -> list[Flavor]: ...

    def list_local_queues(self) -> list[LocalQueue]: ...

    def list_kueue_workloads(self) -> list[KueueWorkload | Usage]:
        """Returns the Workloads that wait for quota, and the quota that other Workloads hold."""

    def create_object(self, manifest: Mapping[str, Any]) -> None:
        """Creates an object. Raises KubeConflict if it already exists."""

    def apply_object(
        self, manifest: Mapping[str, Any], manager: str, dry_run: bool = False
    ) -> None:
        """Applies an object server-side with a field manager, which becomes the owner of the
        fields. Raises KubeConflict if the object has another resourceVersion than the manifest."""

    def change_object(self, kind: str, name: str, patch: object, query: str = "") -> None:
        """Sends a merge patch, or a JSON patch if it is a list. Raises KubeConflict if the patch
        has another resourceVersion than the object."""


class ConfigMaps(Protocol):
    """The methods of the Kubernetes client that queue systems use."""

    @property
    def typed_objects(self) -> KubeObjects: ...

    @property
    def kueue_objects(self) -> KueueObjects: ...

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None: ...

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap: ...


class PodReading(Protocol):
    """The reader of the labels and annotations by which pods name their queue."""

    scheduler: str  # spec.schedulerName of its pods, in any namespace; empty: none
    namespaces: frozenset[str]  # pods of these count whatever their scheduler, by its verdict
    labels: tuple[str, ...]  # the keys that `identify` needs
    annotations: tuple[str, ...]

    def identify(
        self,
        key: tuple[str, str],
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        is_managed: bool,
    ) -> PodIdentity:
        """Returns application, queue and gang of a pod, from its labels and annotations. `key`: its
        namespace and uid. `is_managed`: the queue system's scheduler schedules the pod."""

    def label(self, application: str, queue: str) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the labels and annotations that put a new pod into this application and queue."""


class Queues(Protocol):
    """The queues of a run with their limits and ledgers, as an immutable value."""

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        """Returns the limits of every queue, by path."""

    @property
    def lenders(self) -> Mapping[str, str] | None:
        """Returns node -> instance that lends it, from readable ledgers. None: there is none."""

    @property
    def is_missing(self) -> bool:
        """Returns whether the cluster has none of the objects that define this system's queues."""

    def is_counted(self, node: str, queue: str, instance_id: str) -> bool:
        """Returns whether a limit still contains this lent node of this instance. Returns True if
        that cannot be read for `queue`, which the node has served."""

    def numbers_of(self, instance_id: str) -> Mapping[str, QueueNumbers]:
        """Returns limit, baseline and lent amounts of each queue; none without a valid ledger."""

    def project(self, wants: QueueWants) -> Projection:
        """Returns a cheap, unchecked draft of limits for the nodes in `wants`, for `plan`."""

    def plan(self, wants: QueueWants, projected: Projection | None) -> QueueEdit:
        """Returns the checked edit of limits for the nodes in `wants`. May reuse `projected`."""

    def shrink_objection(self, projected: Projection) -> Objection | None:
        """Returns why even the limits of a site without lent nodes cannot be written, or None."""

    def growth_objection(
        self, wants: QueueWants, queue: str, sizes: Sequence[Resources]
    ) -> Objection | None:
        """Returns why the queue's limits could not contain more nodes of these sizes, or None."""

    def show_difference(self, edit: QueueEdit) -> str:
        """Returns the changes of an edit as a unified diff."""


class QueueSystem(Protocol):
    """The client that reads and writes the limits of one queue system."""

    def pod_reading(self, config: Config) -> PodReading:
        """Returns the reader that finds the queue of each pod."""

    def collect(self, config: Config, kube: ConfigMaps) -> QueueFacts:
        """Reads the facts about queues for a snapshot. A failed read is one of these facts."""

    def read_queues(self, config: Config, facts: QueueFacts) -> Queues:
        """Returns the queues that these facts describe. Raises QueueError for invalid facts."""

    def names_instance(self, facts: QueueFacts, instance_id: str) -> bool:
        """Returns whether the ledger beside the limits has lent nodes of this instance."""

    def exclude_earlier_writes(
        self, config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
    ) -> Mapping[str, str]:
        """Writes `text` beside the limits. Their new version makes the API server refuse a write of
        an earlier run. Returns queue -> why that failed. Raises KubeError if it did for all."""

    def write(
        self,
        config: Config,
        kube: ConfigMaps,
        wants: QueueWants,
        planned: QueueEdit | None,
        before_write: Callable[[], None],
    ) -> QueueOutcome:
        """Writes limits and ledger for the nodes in `wants`, if another client has not changed
        them. Uses `planned` if nothing has changed since the plan. Raises QueueError or KubeError
        if no limit could be written; failures of single queues are in the outcome."""
