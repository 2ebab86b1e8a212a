"""Nodes of Kubernetes, reduced to what decisions need."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.kubelet import Amounts
from dnm.model.node_type import Taint
from dnm.model.slinky import BRIDGE_NODE, EXTERNAL_NODE, MANAGED_TAINT, WORKER_TAINT
from dnm.model.value import Resources, Value


class Mark(Value):
    """dnm's annotations on a Node: whose it is and what it serves."""

    instance: str
    node_type: str
    namespace: str
    queue: str
    fenced: bool = False  # dnm has cordoned it; a person may have lifted that since


BATCH_TAINT = "dynamic-node-manager/batch"
"""With NoSchedule, on a Node of a machine that Slurm has: only what slurmd needs tolerates it."""


class Node(Value):
    """A Kubernetes Node. `allocatable` in YuniKorn's names; `pods` is among them.

    `unreadable` says what of it could not be read: it is there, and nothing else is known of it, so
    it offers no room, and is neither taken up nor returned."""

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
    capacity: Resources = {}  # only read where a node type says what its kubelets keep back
    conditions: Mapping[str, str] = {}  # of a Node that carries a mark
    zones: tuple[Amounts, ...] = ()  # what is free on each NUMA node, where its exporter is read
    unreadable: str = ""

    @property
    def is_with_batch(self) -> bool:
        """Whether it is the Node of a machine that Slurm has, and so none for pods: its converter
        moves machines that are always Nodes. slurm-bridge's own are told by their label; one that
        is put on a lent Node makes it no less lent."""
        is_bridged = EXTERNAL_NODE in self.labels or BRIDGE_NODE in self.labels
        return (self.mark is None and is_bridged) or any(
            taint.key == BATCH_TAINT and taint.effect == "NoSchedule" for taint in self.taints
        )

    @property
    def is_managed(self) -> bool:
        """Returns whether slurm-bridge has put its taint on it."""
        return any(taint.key == MANAGED_TAINT for taint in self.taints)

    @property
    def evicting_taint(self) -> Taint | None:
        """Returns Slinky's taint that makes Kubernetes evict pods from it."""
        for taint in self.taints:
            if taint.key in (MANAGED_TAINT, WORKER_TAINT) and taint.effect == "NoExecute":
                return taint
        return None

    def is_marked_by(self, instance: str) -> bool:
        """Returns whether its annotations name this instance of dnm; its own kubelet can write them
        too."""
        return self.mark is not None and self.mark.instance == instance

    def is_free_for(self, instance: str) -> bool:
        """Returns whether no other instance of dnm has marked it."""
        return self.mark is None or self.mark.instance in ("", instance)

    @property
    def carries_fence(self) -> bool:
        """Returns whether its annotations say that dnm has cordoned it, even if it is not any
        more."""
        return self.mark is not None and self.mark.fenced

    @property
    def is_fenced(self) -> bool:
        """Returns whether it is cordoned by dnm."""
        return self.is_cordoned and self.carries_fence

    @property
    def is_cordoned_by_another(self) -> bool:
        """Returns whether it is cordoned without dnm's mark: by an administrator, who also removes
        it."""
        return self.is_cordoned and not self.carries_fence
