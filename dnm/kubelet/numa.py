"""What a pod can get on one NUMA node, where its kubelet aligns pods to one.

With single-numa-node a pod that fits on no NUMA node is rejected by the kubelet, and its controller
makes it again and again. Devices count of every pod; whole CPUs with the static CPU manager, and
memory and huge pages with the static memory manager, of Guaranteed pods alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dnm.kubelet.reservation import reserved_cpu
from dnm.model.kubelet import KubeletSettings, NumaRoom
from dnm.model.quantity import parse_kubernetes
from dnm.model.value import Resources

_CORE = 1000  # millicores


def numa_room(kubelet: KubeletSettings | None, size: Resources) -> NumaRoom | None:
    """Returns what the NUMA nodes of an empty machine of this declared size have for pods; None
    where pods are not aligned to one, or the machine's NUMA nodes are not named. CPUs, devices and
    huge pages are taken as spread evenly."""
    if kubelet is None or not kubelet.aligns_pods or not kubelet.numa_memory:
        return None
    count = len(kubelet.numa_memory)
    everywhere = {name: -(-amount // count) for name, amount in size.items() if "/" in name}
    if kubelet.cpu_manager_policy == "static" and "vcore" in size:
        cores = -(-(size["vcore"] + (reserved_cpu(kubelet) or 0)) // _CORE)
        everywhere["vcore"] = -(-cores // count) * _CORE
    by_zone: Mapping[int, Resources] = _memory(kubelet) if kubelet.is_static else {}
    zones = tuple(
        tuple(sorted({**everywhere, **by_zone.get(zone, {})}.items()))
        for zone in sorted(kubelet.numa_memory)
    )
    return NumaRoom(zones=zones, by_pod=kubelet.topology_manager_scope == "pod")


def _memory(kubelet: KubeletSettings) -> Mapping[int, Resources]:
    reserved: Counter[int] = Counter()
    for one in kubelet.reserved_memory:
        if one.resource == "memory":
            reserved[one.numa_node] += parse_kubernetes("memory", one.amount)
    count = len(kubelet.numa_memory)
    pages = {}
    for name, total, page in (
        ("hugepages-2Mi", kubelet.hugepages_2mi, 2 * 2**20),
        ("hugepages-1Gi", kubelet.hugepages_1gi, 2**30),
    ):
        if total is not None:
            pages[name] = -(-total // page // count) * page
    taken = kubelet.huge_pages // count
    return {
        node: {"memory": max(0, size - reserved[node] - taken), **pages}
        for node, size in kubelet.numa_memory.items()
    }
