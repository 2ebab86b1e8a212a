"""Kubernetes Nodes, reduced to the fields that dnm's decisions need."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.kubelet import Amounts
from dnm.model.node_type import Taint
from dnm.model.slinky import BRIDGE_NODE, EXTERNAL_NODE, MANAGED_TAINT, WORKER_TAINT
from dnm.model.value import Resources, Value


class Mark(Value):
    """dnm's annotations on a Node: the dnm instance that lent it, its type, and where it serves."""

    instance: str
    node_type: str
    namespace: str
    queue: str
    fenced: bool = False  # dnm cordoned it; an administrator may have uncordoned it since


BATCH_TAINT = "dynamic-node-manager/batch"
"""With NoSchedule, on a Node of a machine that Slurm uses; only the pods of slurmd tolerate it."""


class Node(Value):
    """A Kubernetes Node. `allocatable` uses the API's resource names and includes `pods`.

    `unreadable` names a field that could not be parsed. Such a Node has no other facts: dnm assumes
    no free capacity, and neither adopts nor returns it."""

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
        """Returns whether Slurm has the machine, so that the Node must get no pods. With
        slurm-bridge, a machine is always a Node, and a label shows that Slurm has it. On a lent
        Node, this label has no meaning."""
        is_bridged = EXTERNAL_NODE in self.labels or BRIDGE_NODE in self.labels
        return (self.mark is None and is_bridged) or any(
            taint.key == BATCH_TAINT and taint.effect == "NoSchedule" for taint in self.taints
        )

    @property
    def is_managed(self) -> bool:
        """Returns whether the Node has the taint by which slurm-bridge manages it."""
        return any(taint.key == MANAGED_TAINT for taint in self.taints)

    @property
    def evicting_taint(self) -> Taint | None:
        """Returns the taint of Slinky that makes Kubernetes evict pods from the Node, or None."""
        for taint in self.taints:
            if taint.key in (MANAGED_TAINT, WORKER_TAINT) and taint.effect == "NoExecute":
                return taint
        return None

    def is_marked_by(self, instance: str) -> bool:
        """Returns whether dnm's annotations name this instance. A kubelet could have set them."""
        return self.mark is not None and self.mark.instance == instance

    def is_free_for(self, instance: str) -> bool:
        """Returns whether the Node has no annotations of dnm, or those of `instance`."""
        return self.mark is None or self.mark.instance in ("", instance)

    @property
    def carries_fence(self) -> bool:
        """Returns whether dnm's annotations record its cordon, even if it was removed since."""
        return self.mark is not None and self.mark.fenced

    @property
    def is_fenced(self) -> bool:
        """Returns whether the Node is cordoned now and dnm has cordoned it."""
        return self.is_cordoned and self.carries_fence

    @property
    def is_cordoned_by_another(self) -> bool:
        """Returns whether an administrator, not dnm, has cordoned the Node. dnm does not uncordon
        such a Node."""
        return self.is_cordoned and not self.carries_fence
