"""The memory that a kubelet reserves, computed like the kubelet, to the byte. Also the capacity of
one NUMA node for a pod, if the kubelet aligns pods to one.

The rules are those of Kubernetes 1.28 to 1.36, below pkg/kubelet: GetNodeAllocatableReservation in
cm/node_container_manager_linux.go, validateReservedMemory in cm/memorymanager/memory_manager.go,
and MachineInfo in nodestatus/setters.go.

With single-numa-node the kubelet rejects a pod that fits on no NUMA node, and the pod's controller
creates it again and again. Devices count for every pod. Whole CPUs with the static CPU manager, and
memory and huge pages with the static memory manager, count only for Guaranteed pods."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping

from dnm.model.kubelet import KubeletSettings, NumaRoom
from dnm.model.quantity import (
    FRACTIONS,
    INT64_MAX,
    KUBERNETES,
    UNITS,
    format_amount,
    parse_kubernetes,
    scale_up,
)
from dnm.model.value import Resources, Value

DEFAULT_EVICTION = "100Mi"  # memory.available, if a file does not set evictionHard
TERMS = ("kube_reserved_memory", "system_reserved_memory", "eviction_hard_memory_available")
_INT64_DIGITS = 18  # apimachinery: maxInt64Factors
_BINARY = ("Ti", "Gi", "Mi", "Ki")


class MemorySides(Value):
    """The two sums of bytes that the kubelet's static memory manager compares at its start.

    `allocatable` is the reservation of Node Allocatable, or None if it contains a percentage of an
    unknown memory. The keys in `unpinned` are not set: the sums contain their defaults."""

    reserved: int
    allocatable: int | None
    unpinned: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        return self.reserved == self.allocatable


def memory_sides(kubelet: KubeletSettings, memory: int | None = None) -> MemorySides:
    """Returns the two sums that the static memory manager compares. `memory` is the machine's
    memory, by default that of the settings.

    A missing key counts as the kubelet's default: no reservation, and 100Mi for eviction."""
    memory = kubelet.memory if memory is None else memory
    eviction = eviction_amount(kubelet.eviction_hard_memory_available or DEFAULT_EVICTION, memory)
    named = _named("memory", kubelet.kube_reserved_memory, kubelet.system_reserved_memory)
    return MemorySides(
        reserved=sum(
            parse_kubernetes("memory", reservation.amount)
            for reservation in kubelet.reserved_memory
            if reservation.resource == "memory"
        ),
        allocatable=None if eviction is None else sum(named) + eviction,
        unpinned=tuple(key for key in TERMS if getattr(kubelet, key) is None),
    )


def eviction_amount(text: str, memory: int | None) -> int | None:
    """Returns an eviction threshold in bytes, or None for a percentage of unknown memory. 0% and
    100% mean none. The kubelet uses single precision, so 5% is a little more than a twentieth."""
    if not text.endswith("%"):
        return parse_kubernetes("memory", text)
    if text in ("0%", "100%"):
        return 0
    if memory is None:
        return None
    return int(float(memory) * _single(_single(float(text[:-1])) / 100))


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def pinned_reservation(kubelet: KubeletSettings, memory: int | None) -> int | None:
    """Returns the memory that a kubelet reserves, or None unless all keys in `TERMS` are set."""
    sides = memory_sides(kubelet, memory)
    return None if sides.unpinned else sides.allocatable


def computed_allocatable(kubelet: KubeletSettings) -> int | None:
    """Returns the approximate memory for pods, or None if numa_memory is not configured. It is
    approximate because a machine's MemTotal is not exactly the sum of its NUMA nodes."""
    sides = memory_sides(kubelet)
    if kubelet.memory is None or sides.allocatable is None:
        return None
    return max(0, kubelet.memory - sides.allocatable - kubelet.huge_pages)


def reserved_cpu(kubelet: KubeletSettings) -> int | None:
    """Returns the CPU that the kubelet reserves, in millicores, or None if no key sets it."""
    named = _named("cpu", kubelet.kube_reserved_cpu, kubelet.system_reserved_cpu)
    return sum(named) if named else None


def _named(resource: str, *texts: str | None) -> list[int]:
    return [parse_kubernetes(resource, text) for text in texts if text is not None]


def in_common_unit(*amounts: int) -> tuple[str, ...]:
    """Returns texts of amounts of memory, in the largest binary unit in which all are whole."""
    for unit in _BINARY:
        kubernetes = parse_kubernetes("memory", f"1{unit}")
        if all(amount % kubernetes == 0 for amount in amounts) and any(amounts):
            return tuple(f"{amount // kubernetes}{unit}" for amount in amounts)
    return tuple(str(amount) for amount in amounts)


def shown(amount: int) -> str:
    """Returns an amount of memory as text: exact if that is short, else rounded in Gi."""
    exact = format_amount("memory", amount)
    if len(exact) <= 9:
        return exact
    return f"{amount / 2**30:.2f}Gi" if amount >= 2**30 else f"{amount / 2**20:.2f}Mi"


_CORE = 1000  # millicores


def numa_capacity(kubelet: KubeletSettings | None, size: Resources) -> NumaRoom | None:
    """Returns the capacity of each NUMA node of an empty machine, or None if the kubelet does not
    align pods or the NUMA nodes are not configured. CPUs, devices and huge pages count as spread
    evenly."""
    if kubelet is None or not kubelet.aligns_pods or not kubelet.numa_memory:
        return None
    count = len(kubelet.numa_memory)
    everywhere = {name: -(-amount // count) for name, amount in size.items() if "/" in name}
    if kubelet.cpu_manager_policy == "static" and "cpu" in size:
        cores = -(-(size["cpu"] + (reserved_cpu(kubelet) or 0)) // _CORE)
        everywhere["cpu"] = -(-cores // count) * _CORE
    by_zone: Mapping[int, Resources] = _memory(kubelet) if kubelet.is_static else {}
    zones = tuple(
        tuple(sorted({**everywhere, **by_zone.get(zone, {})}.items()))
        for zone in sorted(kubelet.numa_memory)
    )
    return NumaRoom(zones=zones, by_pod=kubelet.topology_manager_scope == "pod")


def _memory(kubelet: KubeletSettings) -> Mapping[int, Resources]:
    reserved: Counter[int] = Counter()
    for reservation in kubelet.reserved_memory:
        if reservation.resource == "memory":
            reserved[reservation.numa_node] += parse_kubernetes("memory", reservation.amount)
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


def holds_int64(text: str) -> bool:
    """Returns whether apimachinery (ParseQuantity and Quantity.AsInt64) reads this text as an
    integer, not as a decimal. It may read equal amounts differently: 1536Mi and 99Ti are integers,
    but 1.5Gi and 101376Gi are not. Returns False for text that is no quantity."""
    match = KUBERNETES.match(text)
    if match is None or not (match.group(2) or match.group(3)):
        return False
    _, integral, fraction, suffix = match.groups(default="")
    digits = (integral.lstrip("0") or "0") + fraction
    if suffix.endswith("i"):
        bits = 10 * ("KMGTPE".index(suffix[0]) + 1)
        return not fraction and 14 - len(digits) - bits * 3 // 10 >= 0
    if suffix in UNITS:
        scale = 3 * "kMGTPE".index(suffix) + 3 if suffix else 0
    else:
        scale = FRACTIONS[suffix] if suffix in FRACTIONS else int(suffix[1:])
    scale -= len(fraction)
    return len(digits) <= _INT64_DIGITS and scale >= 0 and scale_up(int(digits), scale) <= INT64_MAX
