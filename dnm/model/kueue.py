"""ClusterQueues, Cohorts, flavors, LocalQueues and Workloads as values. Resources have dnm's names;
`ResourceGroup.covered` has those of the API, in its order."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.node_type import Taint
from dnm.model.pod import PodShape, Toleration
from dnm.model.quantity import format_amount, kube_resources
from dnm.model.value import Resources, Value

FLAVOR = "lent"
"""The ResourceFlavor of lent nodes."""
COHORT_PREFIX = "dnm-"
LEDGER = "dynamic-node-manager/ledger"
MANAGER = "dnm"
"""The field manager of the Cohorts that dnm writes."""
KUEUE_API = "kueue.x-k8s.io/v1beta2"


def resource_of(api_name: str) -> str:
    """Returns dnm's name of a resource of the API."""
    return next(iter(kube_resources({api_name: "0"})))


def quantity_of(api_name: str, amount: int) -> str:
    """Returns a quantity of Kubernetes, in the largest exact unit."""
    return format_amount(resource_of(api_name), amount)


class Flavor(Value):
    """A ResourceFlavor: the labels and taints of its nodes, and the tolerations that Kueue adds to
    pods."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


class FlavorQuota(Value):
    """The quota of a flavor in a ClusterQueue or Cohort. A limit that is not set is missing."""

    name: str
    nominal: Resources = {}
    borrowing: Resources = {}
    lending: Resources = {}


class ResourceGroup(Value):
    covered: tuple[str, ...]
    flavors: tuple[FlavorQuota, ...]

    @property
    def resources(self) -> tuple[str, ...]:
        """Returns the covered resources under dnm's names."""
        return tuple(map(resource_of, self.covered))

    def quota_of(self, flavor: str) -> FlavorQuota | None:
        """Returns the quota of a flavor, if it is listed."""
        return next((quota for quota in self.flavors if quota.name == flavor), None)


class ClusterQueue(Value):
    """`inactive`: why it admits nothing, as Kueue reports it. `reclaims`: it takes quota back from
    its cohort by preemption. `is_steered`: its quotas come from a DynamicQuotaOrchestrator."""

    name: str
    cohort: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    is_strict: bool = False
    inactive: str = ""
    reclaims: bool = False
    is_steered: bool = False

    @property
    def own_cohort(self) -> str:
        """Returns the name of the Cohort that dnm writes for it."""
        return COHORT_PREFIX + self.name

    @property
    def group(self) -> ResourceGroup | None:
        """Returns the resource group with the flavor of lent nodes."""
        return next((group for group in self.groups if group.quota_of(FLAVOR)), None)

    @property
    def own_quota(self) -> FlavorQuota:
        """Returns its own quota of lent nodes, which is usually 0."""
        return (self.group and self.group.quota_of(FLAVOR)) or FlavorQuota(name=FLAVOR)


class Cohort(Value):
    """A Cohort, of dnm or not. `ledger`: the text of dnm's annotation. `writer`: the field manager
    of its quotas, if that is another one than dnm."""

    name: str
    version: str = ""
    parent: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    ledger: str = ""
    writer: str = ""

    @property
    def quota(self) -> FlavorQuota:
        """Returns the quota of lent nodes."""
        quotas = (group.quota_of(FLAVOR) for group in self.groups)
        return next((quota for quota in quotas if quota), FlavorQuota(name=FLAVOR))


class LocalQueue(Value):
    namespace: str
    name: str
    cluster_queue: str
    is_stopped: bool = False


class PodSet(Value):
    """Equal pods of a Workload. `least`: the number with which Kueue admits it, if it may be
    partial; otherwise their number."""

    name: str
    count: int
    least: int
    shape: PodShape


class KueueWorkload(Value):
    """A Workload that waits for quota. `message`: the reason that Kueue reports, for people."""

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
    """The quota that an admitted Workload has reserved: flavor -> amounts."""

    cluster_queue: str
    amounts: Mapping[str, Resources]
