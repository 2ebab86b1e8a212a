"""How much memory a pod can get on one NUMA node, where its kubelet aligns pods to one.

With Static and single-numa-node a Guaranteed pod whose memory fits on no NUMA node is rejected by
the kubelet, and its controller makes it again and again.
"""

from __future__ import annotations

from collections import Counter

from dnm.model.kubelet import KubeletSettings, NumaRoom
from dnm.model.quantity import parse_kubernetes


def numa_room(kubelet: KubeletSettings | None) -> NumaRoom | None:
    """Returns what the largest NUMA node of an empty machine has for pods; None where pods are not
    aligned to one, or the machine's memory is not named. Huge pages are taken as spread evenly."""
    if kubelet is None or not kubelet.aligns_pods or not kubelet.numa_memory:
        return None
    reserved: Counter[int] = Counter()
    for one in kubelet.reserved_memory:
        if one.resource == "memory":
            reserved[one.numa_node] += parse_kubernetes("memory", one.amount)
    pages = kubelet.huge_pages // len(kubelet.numa_memory)
    most = max(size - reserved[node] - pages for node, size in kubelet.numa_memory.items())
    return NumaRoom(most=max(0, most), by_pod=kubelet.topology_manager_scope == "pod")
