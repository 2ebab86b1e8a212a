"""Nodes of Kubernetes, reduced to the fields that decisions need."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.kubelet import Amounts
from dnm.model.node_type import Taint
from dnm.model.slinky import BRIDGE_NODE, EXTERNAL_NODE, MANAGED_TAINT, WORKER_TAINT
from dnm.model.value import Resources, Value


class Mark(Value):
    """dnm's annotations on a Node: its instance and the namespace that it serves."""

    instance: str
    node_type: str
    namespace: str
    queue: str
    fenced: bool = False  # dnm cordoned it; an administrator may have uncordoned it since


BATCH_TAINT = "dynamic-node-manager/batch"
"""With NoSchedule, on a Node of a machine that Slurm uses; only the pods of slurmd tolerate it."""


class Node(Value):
    """A Kubernetes Node. `allocatable` has Kubernetes' names and includes `pods`.

    `unreadable` names the field that could not be read. Such a Node exists without other facts: it
    has no free capacity, and dnm neither adopts nor returns it."""

    name: str
    allocatable: Resources
    uid: str = ""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resource_version: str = ""
    is_ready: bool = True
    is_cordoned: bool = False
    is_deleting: bool = False
    mark: Mark | None = None
    capacity: Resources = {}  # read only if its type sets reserved amounts of kubelets
    conditions: Mapping[str, str] = {}  # of a Node with a mark
    zones: tuple[Amounts, ...] = ()  # free capacity of each NUMA node, if its exporter is read
    unreadable: str = ""

    @property
    def is_with_batch(self) -> bool:
        """Returns whether Slurm has the machine, so that it takes no pods. With slurm-bridge,
        machines are always Nodes, and a label shows those in Slurm. On a lent Node this label has
        no meaning."""
        is_bridged = EXTERNAL_NODE in self.labels or BRIDGE_NODE in self.labels
        return (self.mark is None and is_bridged) or any(
            taint.key == BATCH_TAINT and taint.effect == "NoSchedule" for taint in self.taints
        )

    @property
    def is_managed(self) -> bool:
        """Returns whether the Node has the taint that slurm-bridge sets."""
        return any(taint.key == MANAGED_TAINT for taint in self.taints)

    @property
    def evicting_taint(self) -> Taint | None:
        """Returns a taint of Slinky that makes Kubernetes evict the Node's pods, or None."""
        for taint in self.taints:
            if taint.key in (MANAGED_TAINT, WORKER_TAINT) and taint.effect == "NoExecute":
                return taint
        return None

    def is_marked_by(self, instance: str) -> bool:
        """Returns whether the mark names this instance. A kubelet could have written it, too."""
        return self.mark is not None and self.mark.instance == instance

    def is_free_for(self, instance: str) -> bool:
        """Returns whether the Node is without the mark of another instance of dnm."""
        return self.mark is None or self.mark.instance in ("", instance)

    @property
    def carries_fence(self) -> bool:
        """Returns whether the mark records dnm's cordon, even if the Node is uncordoned now."""
        return self.mark is not None and self.mark.fenced

    @property
    def is_fenced(self) -> bool:
        """Returns whether the Node is cordoned by dnm."""
        return self.is_cordoned and self.carries_fence

    @property
    def is_cordoned_by_another(self) -> bool:
        """Returns whether the Node is cordoned without dnm's mark: by an administrator, who also
        uncordons it."""
        return self.is_cordoned and not self.carries_fence
