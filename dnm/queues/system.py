"""The interface of a queue system. Each one is a package below this one, with a module `system`.

A `QueueSystem` reads its part of the snapshot before any decision and writes limits after it. The
`Queues` that it makes of these facts are a value: the planner asks it and imports no queue system.
"""

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
    from dnm.model.workload import LackingPods


class KubeObjects(Protocol):
    """The objects of the kinds that only some queue systems need. All methods raise KubeError."""

    def read_quotas(self, namespace: str) -> list[ResourceQuota]:
        """Returns the ResourceQuotas of a namespace."""

    def patch_object(
        self, kind: str, namespace: str, name: str, patch: Mapping[str, object]
    ) -> None:
        """Sends a merge patch. Raises KubeConflict if the object no longer has its version."""

    def read_lacking(self, namespace: str) -> list[LackingPods]:
        """Returns the workloads of a namespace that lack pods, the longest waiting first."""


class KueueObjects(Protocol):
    """The objects of Kueue. All methods raise KubeError."""

    def list_cluster_queues(self) -> list[ClusterQueue]: ...

    def list_cohorts(self) -> list[Cohort]: ...

    def list_flavors(self) -> list[Flavor]: ...

    def list_local_queues(self) -> list[LocalQueue]: ...

    def list_kueue_workloads(self) -> list[KueueWorkload | Usage]:
        """Returns the Workloads that wait for quota, and the quota of the others."""

    def create_object(self, manifest: Mapping[str, Any]) -> None:
        """Creates an object. Raises KubeConflict if it exists."""

    def apply_object(
        self, manifest: Mapping[str, Any], manager: str, dry_run: bool = False
    ) -> None:
        """Applies an object as a field manager, which takes over its fields. Raises KubeConflict if
        the object has another resourceVersion than the manifest."""

    def annotate_object(self, kind: str, name: str, annotations: Mapping[str, str]) -> None:
        """Adds annotations, whatever version the object has."""


class ConfigMaps(Protocol):
    """The part of the Kubernetes client that a queue system needs."""

    @property
    def typed_objects(self) -> KubeObjects: ...

    @property
    def kueue_objects(self) -> KueueObjects: ...

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None: ...

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap: ...


class PodReading(Protocol):
    """The pods of a queue system, and how they name their queue."""

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
        """Returns the identity of a pod; `key` has its namespace and uid. `is_managed`: it is one
        of the queue system."""

    def label(self, application: str, queue: str) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the labels and annotations that put a pod into this queue."""


class Queues(Protocol):
    """The queues of a run, as values. No method changes anything."""

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        """Returns the limits of every queue, by path."""

    @property
    def lenders(self) -> Mapping[str, str] | None:
        """Returns the instance that counts each node. None: there is no readable ledger."""

    @property
    def is_missing(self) -> bool:
        """Returns whether the queue system has no queues at all."""

    def is_counted(self, node: str, instance_id: str) -> bool:
        """Returns whether a limit still contains this node of the instance."""

    def numbers_of(self, instance_id: str) -> Mapping[str, QueueNumbers]:
        """Returns the current numbers of every queue; none if the ledger cannot be read."""

    def project(self, wants: QueueWants) -> Projection:
        """Returns the limits that these wants need, before they are proved."""

    def plan(self, wants: QueueWants, projected: Projection | None) -> QueueEdit:
        """Returns the change for the nodes that serve now. `projected`: an earlier projection."""

    def shrink_objection(self, projected: Projection) -> Objection | None:
        """Returns why no limit can be written, not even if nothing were lent."""

    def growth_objection(
        self, wants: QueueWants, queue: str, sizes: Sequence[Resources]
    ) -> Objection | None:
        """Returns why the limits could not contain more nodes of these sizes for the queue."""

    def show_difference(self, edit: QueueEdit) -> str:
        """Returns the change as a unified diff."""


class QueueSystem(Protocol):
    """The reading and writing of one queue system."""

    def pod_reading(self, config: Config) -> PodReading:
        """Returns how the pods of the cluster are read."""

    def collect(self, config: Config, kube: ConfigMaps) -> QueueFacts:
        """Reads the facts of a snapshot; a failed read is a part of them."""

    def read_queues(self, config: Config, facts: QueueFacts) -> Queues:
        """Returns the queues of these facts. Raises QueueError for facts that make no sense."""

    def names_instance(self, facts: QueueFacts, instance_id: str) -> bool:
        """Returns whether the ledger shows that this instance has lent nodes."""

    def exclude_earlier_writes(
        self, config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
    ) -> None:
        """Changes the version of the limits, so that a write which an earlier run has prepared is
        refused. `text` is written beside them. Raises KubeError."""

    def write(
        self,
        config: Config,
        kube: ConfigMaps,
        wants: QueueWants,
        planned: QueueEdit | None,
        before_write: Callable[[], None],
    ) -> QueueOutcome:
        """Writes the limits for `wants`, and the ledger with them, under the version that was read.
        `planned` is used if nothing has changed since. Raises QueueError or KubeError."""
