"""Kueue's ClusterQueues, Cohorts, flavors, LocalQueues and Workloads as values."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.node_type import Taint
from dnm.model.pod import PodShape, Toleration
from dnm.model.value import Resources, Value

FLAVOR = "lent"
"""The ResourceFlavor of lent nodes."""
COHORT_PREFIX = "dnm-"
LEDGER = "dynamic-node-manager/ledger"
IN_QUEUE = ("dynamic-node-manager/lent-quota-in", "cluster-queue")
IN_PROVIDER = (IN_QUEUE[0], "capacity-provider")
"""The annotation of a ClusterQueue that has its lent quota itself, or in a CapacityProvider."""
MANAGER = "dnm"
"""The field manager of the Cohorts that dnm writes."""
KUEUE_API = "kueue.x-k8s.io/v1beta2"
CAPACITY_API = "kueue.x-k8s.io/v1alpha1"


class Flavor(Value):
    """A ResourceFlavor: labels and taints of its nodes, and tolerations that Kueue adds to pods."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


class FlavorQuota(Value):
    """The quota of a flavor in a ClusterQueue or Cohort. A resource without a limit is missing."""

    name: str
    nominal: Resources = {}
    borrowing: Resources = {}
    lending: Resources = {}


class ResourceGroup(Value):
    resources: tuple[str, ...]  # `coveredResources`, in its order
    flavors: tuple[FlavorQuota, ...]

    def quota_of(self, flavor: str) -> FlavorQuota | None:
        """Returns the group's quota of a flavor, or None if the group does not list this flavor."""
        return next((quota for quota in self.flavors if quota.name == flavor), None)


class ClusterQueue(Value):
    """A ClusterQueue of Kueue. `inactive` is Kueue's reason for admitting nothing. `reclaims`: it
    takes quota back from its cohort by preemption. `effective`: the quotas that a
    DynamicQuotaOrchestrator has set. `is_provided`: its lent quota is in a CapacityProvider.
    `has_namespaces`: it has a namespaceSelector; without one it admits no Workload.
    `held`: the object with its quotas, version and ledger, if it may have lent quota itself."""

    name: str
    cohort: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    is_strict: bool = False
    inactive: str = ""
    reclaims: bool = False
    effective: tuple[ResourceGroup, ...] | None = None
    is_provided: bool = False
    has_namespaces: bool = True
    held: Cohort | None = None

    @property
    def own_cohort(self) -> str:
        """Returns the name of the Cohort through which dnm gives this ClusterQueue more quota."""
        return COHORT_PREFIX + self.name

    @property
    def group(self) -> ResourceGroup | None:
        """Returns the resource group that contains the flavor of lent nodes, or None."""
        return next((group for group in self.groups if group.quota_of(FLAVOR)), None)

    @property
    def own_quota(self) -> FlavorQuota:
        """Returns the quota of lent nodes that the ClusterQueue itself sets, usually 0."""
        return (self.group and self.group.quota_of(FLAVOR)) or FlavorQuota(name=FLAVOR)


class Cohort(Value):
    """A Cohort, made by dnm or by another client, or a CapacityProvider, which is synchronized
    `since` then. `ledger` is dnm's text in it. `writer` is the field manager that set its quotas,
    or why dnm must not write the CapacityProvider; empty if dnm may."""

    name: str
    version: str = ""
    parent: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    ledger: str = ""
    writer: str = ""
    since: str = ""

    @property
    def quota(self) -> FlavorQuota:
        """Returns the Cohort's quota of the ResourceFlavor of lent nodes."""
        quotas = (group.quota_of(FLAVOR) for group in self.groups)
        return next((quota for quota in quotas if quota), FlavorQuota(name=FLAVOR))


class LocalQueue(Value):
    namespace: str
    name: str
    cluster_queue: str
    is_stopped: bool = False


class PodSet(Value):
    """Equal pods of a Workload. `least` is the smallest number that Kueue may admit. It is less
    than `count` only if the Workload allows partial admission."""

    name: str
    count: int
    least: int
    shape: PodShape


class KueueWorkload(Value):
    """A Workload of Kueue that waits for quota. `message` is Kueue's reason, for people."""

    namespace: str
    name: str
    local_queue: str
    created: str
    priority: int = 0
    pod_sets: tuple[PodSet, ...] = ()
    message: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Usage(Value):
    """The quota that an admitted Workload has reserved, as amounts by flavor."""

    cluster_queue: str
    amounts: Mapping[str, Resources]
