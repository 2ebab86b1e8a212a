"""The reading of Kueue's objects (v1beta2): from their JSON to values of dnm's model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dnm.kube.owned_objects import OwnedObjects
from dnm.model.kueue import (
    IN_PROVIDER,
    IN_QUEUE,
    LEDGER,
    MANAGER,
    ClusterQueue,
    Cohort,
    Flavor,
    FlavorQuota,
    KueueWorkload,
    LocalQueue,
    PodSet,
    ResourceGroup,
    Usage,
)
from dnm.model.node_type import Taint
from dnm.model.pod import PodShape, Toleration
from dnm.model.printable import printable
from dnm.model.quantity import kube_resources

_STOPPED = ("Hold", "HoldAndDrain")
_LONGEST_MESSAGE = 400


class _Writer(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    fields: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")

    @property
    def has_quotas(self) -> bool:
        return "f:resourceGroups" in (self.fields.get("f:spec") or {})


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    managed_fields: list[_Writer] | None = None


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""
    message: str = ""


class _Quota(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    nominal_quota: str | int
    borrowing_limit: str | int | None = None
    lending_limit: str | int | None = None


class _FlavorQuotas(msgspec.Struct, frozen=True):
    name: str
    resources: list[_Quota] = []

    def as_value(self) -> FlavorQuota:
        def amounts(field: str) -> dict[str, int]:
            texts = {item.name: getattr(item, field) for item in self.resources}
            return kube_resources({k: str(text) for k, text in texts.items() if text is not None})

        return FlavorQuota(
            name=self.name,
            nominal=amounts("nominal_quota"),
            borrowing=amounts("borrowing_limit"),
            lending=amounts("lending_limit"),
        )


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    covered_resources: list[str] = []
    flavors: list[_FlavorQuotas] = []

    def as_value(self) -> ResourceGroup:
        flavors = tuple(flavor.as_value() for flavor in self.flavors)
        return ResourceGroup(resources=tuple(self.covered_resources), flavors=flavors)


class _Preemption(msgspec.Struct, frozen=True, rename="camel"):
    reclaim_within_cohort: str = "Never"


class _QueueSpec(msgspec.Struct, frozen=True, rename="camel"):
    resource_groups: list[_Group] = []
    cohort_name: str = ""
    parent_name: str = ""  # of a Cohort
    queueing_strategy: str = ""
    stop_policy: str | None = None
    namespace_selector: dict[str, Any] | None = None
    preemption: _Preemption | None = None

    @property
    def groups(self) -> tuple[ResourceGroup, ...]:
        return tuple(group.as_value() for group in self.resource_groups)


class _QueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[_Condition] = []
    effective_quotas: _QueueSpec | None = None


class _Queue(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _QueueSpec = _QueueSpec()
    status: _QueueStatus = _QueueStatus()

    def as_queue(self) -> ClusterQueue:
        active = next((item for item in self.status.conditions if item.type == "Active"), None)
        inactive = "Kueue has not reported it as active" if active is None else ""
        notes = self.metadata.annotations or {}
        effective = self.status.effective_quotas
        if active and active.status != "True":
            inactive = printable(active.message, _LONGEST_MESSAGE) or "Kueue gives no reason"
        if self.spec.stop_policy in _STOPPED:
            inactive = f"its stopPolicy is {self.spec.stop_policy}"
        return ClusterQueue(
            name=self.metadata.name,
            cohort=self.spec.cohort_name,
            groups=self.spec.groups,
            is_strict=self.spec.queueing_strategy == "StrictFIFO",
            inactive=inactive,
            reclaims=(self.spec.preemption or _Preemption()).reclaim_within_cohort != "Never",
            effective=effective.groups if effective else None,
            is_provided=IN_PROVIDER in notes.items(),
            has_namespaces=self.spec.namespace_selector is not None,
            held=self.as_cohort() if LEDGER in notes or IN_QUEUE in notes.items() else None,
        )

    def as_cohort(self) -> Cohort:
        metadata = self.metadata
        writers = [item.manager for item in metadata.managed_fields or () if item.has_quotas]
        return Cohort(
            name=metadata.name,
            version=metadata.resource_version,
            parent=self.spec.parent_name or self.spec.cohort_name,
            groups=self.spec.groups,
            ledger=(metadata.annotations or {}).get(LEDGER, ""),
            writer=next((name for name in writers if name != MANAGER), ""),
        )


class _Taint(msgspec.Struct, frozen=True):
    key: str
    effect: str
    value: str = ""


class _FlavorSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_labels: dict[str, str] = {}
    node_taints: list[_Taint] = []
    tolerations: list[Toleration] = []
    topology_name: str | None = None


class _Flavor(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _FlavorSpec = _FlavorSpec()

    def as_value(self) -> Flavor:
        return Flavor(
            name=self.metadata.name,
            labels=self.spec.node_labels,
            taints=tuple(
                Taint(key=taint.key, effect=taint.effect, value=taint.value)
                for taint in self.spec.node_taints
            ),
            tolerations=tuple(self.spec.tolerations),
            topology=self.spec.topology_name or "",
        )


class _LocalQueueSpec(msgspec.Struct, frozen=True, rename="camel"):
    cluster_queue: str = ""
    stop_policy: str | None = None


class _LocalQueue(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _LocalQueueSpec = _LocalQueueSpec()

    def as_value(self) -> LocalQueue:
        return LocalQueue(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            cluster_queue=self.spec.cluster_queue,
            is_stopped=self.spec.stop_policy in _STOPPED,
        )


class _Template(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _PodSet(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    count: int = 1
    min_count: int | None = None
    template: _Template = _Template()


class _WorkloadSpec(msgspec.Struct, frozen=True, rename="camel"):
    pod_sets: list[_PodSet] = []
    queue_name: str = ""
    priority: int | None = None
    active: bool | None = None


class _Assignment(msgspec.Struct, frozen=True, rename="camel"):
    flavors: dict[str, str] = {}
    resource_usage: dict[str, str | int] = {}


class _Admission(msgspec.Struct, frozen=True, rename="camel"):
    cluster_queue: str = ""
    pod_set_assignments: list[_Assignment] = []


class _WorkloadStatus(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []
    admission: _Admission | None = None


class _Workload(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()

    def as_value(self, read_shape: Callable[[bytes], PodShape]) -> KueueWorkload | Usage | None:
        """Returns the waiting pods of a Workload, or the quota that is reserved for it, or None if
        it needs no quota. Reads `Finished` first, since a finished Workload still shows reserved
        quota. Workloads without conditions, like most pending ones, are waiting."""
        state = {item.type: item for item in self.status.conditions}
        if _is_true(state.get("Finished")):
            return None
        reserved, admission = state.get("QuotaReserved"), self.status.admission
        if _is_true(reserved):
            return _usage(admission) if admission else None
        if self.spec.active is False or self.metadata.deletion_timestamp:
            return None
        return KueueWorkload(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            local_queue=self.spec.queue_name,
            created=self.metadata.creation_timestamp or "",
            priority=self.spec.priority or 0,
            pod_sets=tuple(
                PodSet(
                    name=item.name,
                    count=item.count,
                    least=item.count if item.min_count is None else item.min_count,
                    shape=read_shape(bytes(item.template.spec)),
                )
                for item in self.spec.pod_sets
                if item.count > 0
            ),
            message=printable(reserved.message, _LONGEST_MESSAGE) if reserved else "",
        )


def _is_true(condition: _Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _usage(admission: _Admission) -> Usage:
    amounts: dict[str, dict[str, int]] = {}
    for item in admission.pod_set_assignments:
        for name, text in item.resource_usage.items():
            flavor = amounts.setdefault(item.flavors.get(name, ""), {})
            for own, amount in kube_resources({name: str(text)}).items():
                flavor[own] = flavor.get(own, 0) + amount
    return Usage(cluster_queue=admission.cluster_queue, amounts=amounts)


class KueueApi(OwnedObjects):
    """The client of Kueue's objects. All methods raise KubeError."""

    def list_cluster_queues(self) -> list[ClusterQueue]:
        """Returns all ClusterQueues."""
        return self.list_all("ClusterQueue", _Queue, _Queue.as_queue)

    def list_cohorts(self) -> list[Cohort]:
        """Returns all Cohorts."""
        return self.list_all("Cohort", _Queue, _Queue.as_cohort)

    def list_capacity_providers(self) -> list[Cohort]:
        """Returns all CapacityProviders, as the Cohorts that they replace."""
        from dnm.kube.capacity import Provider

        return self.list_all("CapacityProvider", Provider, Provider.as_value)

    def list_flavors(self) -> list[Flavor]:
        """Returns all ResourceFlavors."""
        return self.list_all("ResourceFlavor", _Flavor, _Flavor.as_value)

    def list_local_queues(self) -> list[LocalQueue]:
        """Returns the LocalQueues of all namespaces."""
        return self.list_all("LocalQueue", _LocalQueue, _LocalQueue.as_value)

    def list_kueue_workloads(self) -> list[KueueWorkload | Usage]:
        """Returns the waiting Workloads of all namespaces, and the quota that is reserved for the
        others. Decodes equal pod templates once."""
        shapes: dict[bytes, PodShape] = {}

        def read_shape(spec: bytes) -> PodShape:
            if spec not in shapes:
                shapes[spec] = self.read_shape(spec)
            return shapes[spec]

        items = self.list_all("Workload", _Workload, lambda item: item.as_value(read_shape))
        return [item for item in items if item is not None]
