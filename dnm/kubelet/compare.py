"""Is the kubelet of a node that has joined as its type's settings say?

Told from the Node alone: what it does not offer of its capacity is what its kubelet keeps back, to
the byte.
"""

from __future__ import annotations

from dnm.kubelet.check import check_node_type
from dnm.kubelet.reservation import in_one_unit, pinned_reservation, reserved_cpu
from dnm.model.kubelet import KubeletSettings
from dnm.model.node import Node
from dnm.model.node_type import NodeType
from dnm.model.quantity import format_amount

_HUGE_PAGES = "hugepages-"


def differences(node_type: NodeType, node: Node) -> tuple[str, ...]:
    """Returns what of a Node contradicts its type's settings, a clause each; nothing where nothing
    is named that a Node shows."""
    kubelet = node_type.kubelet
    if kubelet is None or not node.capacity:
        return ()
    found = [*_memory(kubelet, node), *_huge_pages(kubelet, node)]
    cpu = reserved_cpu(kubelet)
    both = kubelet.kube_reserved_cpu is not None and kubelet.system_reserved_cpu is not None
    if cpu is not None and both:
        kept = node.capacity.get("vcore", 0) - node.allocatable.get("vcore", 0)
        if kept != cpu:
            left, right = format_amount("vcore", kept), format_amount("vcore", cpu)
            found.append(f"it keeps back {left} CPU instead of {right}")
    return tuple(found)


def _memory(kubelet: KubeletSettings, node: Node) -> list[str]:
    """Capacity less allocatable less huge pages is the reservation, unless nothing is left."""
    capacity, allocatable = node.capacity.get("memory", 0), node.allocatable.get("memory", 0)
    pinned = pinned_reservation(kubelet, capacity)
    if pinned is None or capacity <= 0 or allocatable <= 0:
        return []
    pages = sum(a for name, a in node.capacity.items() if name.startswith(_HUGE_PAGES))
    kept = capacity - allocatable - pages
    if kept == pinned:
        return []
    left, right, by = in_one_unit(kept, pinned, abs(kept - pinned))
    word = "more" if kept > pinned else "less"
    return [f"it keeps back {left} of its memory, {by} {word} than the {right} that are named"]


def _huge_pages(kubelet: KubeletSettings, node: Node) -> list[str]:
    found = []
    named = {"2Mi": kubelet.hugepages_2mi, "1Gi": kubelet.hugepages_1gi}
    for size, amount in named.items():
        there = node.capacity.get(f"{_HUGE_PAGES}{size}", 0)
        if amount is not None and there != amount:
            left, right = in_one_unit(there, amount)
            found.append(f"it has {left} of huge pages of {size}, hugepages-{size} = {right}")
    return found


def difference_sentence(node_type: NodeType, name: str, found: tuple[str, ...]) -> str:
    """Returns one sentence about a node that differs, with what to look at."""
    return (
        f"the kubelet of {name} differs from [node_type:{node_type.name}]: {'; '.join(found)}; "
        "look at its files and flags, and at what the join hook wrote"
    )


def likely_refusal(node_type: NodeType | None) -> str:
    """Returns what most likely keeps the kubelet of such a node from starting; empty where nothing
    is named that could."""
    kubelet = node_type.kubelet if node_type else None
    if node_type is None or kubelet is None:
        return ""
    problems = check_node_type(node_type)
    about = ("reserved_memory", "eviction_hard_memory_available", "numa_memory")
    likely = next(
        (problem.sentence for problem in problems if problem.is_error or problem.key in about), ""
    )
    if not likely and (kubelet.is_static or kubelet.cpu_manager_policy == "static"):
        likely = (
            "memory_manager_state or cpu_manager_state of an earlier start is left in its root "
            "directory, or another of its files changes a term of the sum"
        )
    if not likely:
        return ""
    return f"its kubelet may refuse to start: {likely} (journalctl -u kubelet)"
