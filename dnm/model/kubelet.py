"""The settings that a site requires of the kubelets of a node type, and the memory of such a
machine. A key that is not set is None or empty and requires nothing.

Amounts stay text: the kubelet reads the same text, and some spellings of an amount stop it."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.value import Value


class ReservedMemory(Value):
    """An entry of the kubelet's reservedMemory, e.g. `0: 4300Mi`."""

    numa_node: int
    amount: str
    resource: str = "memory"  # or hugepages-SIZE


class KubeletSettings(Value):
    """The required kubelet settings of a node type, named as in the ini file, with all defaults."""

    memory_manager_policy: str | None = None  # None | Static
    kube_reserved_memory: str | None = None
    system_reserved_memory: str | None = None
    eviction_hard_memory_available: str | None = None  # an amount, or a percentage
    reserved_memory: tuple[ReservedMemory, ...] = ()
    cpu_manager_policy: str | None = None  # none | static
    kube_reserved_cpu: str | None = None
    system_reserved_cpu: str | None = None
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None  # container | pod
    # facts of the machine
    numa_memory: Mapping[int, int] = {}  # NUMA node -> bytes
    hugepages_2mi: int | None = None  # bytes
    hugepages_1gi: int | None = None  # bytes

    @property
    def is_static(self) -> bool:
        """Returns whether memory_manager_policy is Static: then kubelets check reserved memory."""
        return self.memory_manager_policy == "Static"

    @property
    def aligns_pods(self) -> bool:
        """Returns whether the kubelet rejects a pod that does not fit on one NUMA node."""
        return self.topology_manager_policy == "single-numa-node"

    @property
    def memory(self) -> int | None:
        """Returns the memory of all NUMA nodes of a machine in bytes, or None if not configured."""
        return sum(self.numa_memory.values()) if self.numa_memory else None

    @property
    def huge_pages(self) -> int:
        """Returns the configured memory of huge pages, in bytes."""
        return (self.hugepages_2mi or 0) + (self.hugepages_1gi or 0)


Amounts = tuple[tuple[str, int], ...]
"""Resources in millicores, bytes and pieces, sorted, so that equal ones are the same key."""


class NumaRoom(Value):
    """The capacity of each NUMA node of a machine for pods that its kubelet aligns. `by_pod` is
    True if all containers of a pod must fit on the same NUMA node, False if each needs only one."""

    zones: tuple[Amounts, ...]
    by_pod: bool = False
