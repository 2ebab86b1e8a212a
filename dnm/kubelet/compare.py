"""Comparison of the kubelet of a joined node with its type's settings.

It needs only the Node: capacity minus allocatable is what the kubelet reserves, to the byte."""

from __future__ import annotations

from dnm.kubelet.check import check_node_type
from dnm.kubelet.reservation import in_common_unit, pinned_reservation, reserved_cpu
from dnm.model.kubelet import KubeletSettings
from dnm.model.node import Node
from dnm.model.node_type import NodeType
from dnm.model.quantity import format_amount

_HUGE_PAGES = "hugepages-"


def differences(node_type: NodeType, node: Node) -> tuple[str, ...]:
    """Returns the differences between a Node and its type's settings, each as a clause; none if a
    Node shows none of the settings."""
    kubelet = node_type.kubelet
    if kubelet is None or not node.capacity:
        return ()
    clauses = [*_memory(kubelet, node), *_huge_pages(kubelet, node)]
    cpu = reserved_cpu(kubelet)
    both = kubelet.kube_reserved_cpu is not None and kubelet.system_reserved_cpu is not None
    if cpu is not None and both:
        kept = node.capacity.get("cpu", 0) - node.allocatable.get("cpu", 0)
        if kept != cpu:
            left, right = format_amount("cpu", kept), format_amount("cpu", cpu)
            clauses.append(f"it reserves {left} CPU instead of {right}")
    return tuple(clauses)


def _memory(kubelet: KubeletSettings, node: Node) -> list[str]:
    """Compares the reserved memory: capacity minus allocatable minus huge pages, if positive."""
    capacity, allocatable = node.capacity.get("memory", 0), node.allocatable.get("memory", 0)
    pinned = pinned_reservation(kubelet, capacity)
    if pinned is None or capacity <= 0 or allocatable <= 0:
        return []
    pages = sum(a for name, a in node.capacity.items() if name.startswith(_HUGE_PAGES))
    kept = capacity - allocatable - pages
    if kept == pinned:
        return []
    left, right, by = in_common_unit(kept, pinned, abs(kept - pinned))
    word = "more" if kept > pinned else "less"
    return [f"it reserves {left} of its memory, {by} {word} than the configured {right}"]


def _huge_pages(kubelet: KubeletSettings, node: Node) -> list[str]:
    clauses = []
    named = {"2Mi": kubelet.hugepages_2mi, "1Gi": kubelet.hugepages_1gi}
    for size, amount in named.items():
        there = node.capacity.get(f"{_HUGE_PAGES}{size}", 0)
        if amount is not None and there != amount:
            left, right = in_common_unit(there, amount)
            clauses.append(f"it has {left} of huge pages of {size}, hugepages-{size} = {right}")
    return clauses


def difference_sentence(node_type: NodeType, name: str, clauses: tuple[str, ...]) -> str:
    """Returns a sentence about the differences of a node, with the places to check."""
    return (
        f"the kubelet of {name} differs from [node_type:{node_type.name}]: {'; '.join(clauses)}; "
        "check its files and flags, and the files that the join hook wrote"
    )


def likely_refusal(node_type: NodeType | None) -> str:
    """Returns the most likely reason why a kubelet with these settings does not start; empty if no
    setting can be the reason."""
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
            "memory_manager_state or cpu_manager_state of an earlier start remains in its root "
            "directory, or another of its files changes a term of the sum"
        )
    if not likely:
        return ""
    return f"its kubelet may refuse to start: {likely} (journalctl -u kubelet)"
