"""Checks whether a kubelet would start with its settings, and whether they are likely intended.

All problems are reported at once. An error is a setting that the kubelet refuses, or that it
accepts although it is impossible. dnm never lends a node of a type with an error. A warning is a
setting that dnm cannot check, or that is valid but probably a mistake. The rules and their order
are those of Kubernetes 1.28 to 1.36: pkg/kubelet/apis/config/validation, and the managers' checks
at their start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from dnm.kubelet.reservation import (
    TERMS,
    MemorySides,
    computed_allocatable,
    eviction_amount,
    holds_int64,
    in_common_unit,
    memory_sides,
    reserved_cpu,
    shown,
)
from dnm.model.kubelet import KubeletSettings, ReservedMemory
from dnm.model.node_type import NodeType
from dnm.model.quantity import format_amount, parse_kubernetes
from dnm.model.value import Value

MOST_NUMA_NODES = 8  # of the topology manager by default
_ALIGNED = ("single-numa-node", "restricted")


class KubeletProblem(Value):
    """A problem of one kubelet setting. If it is an error, dnm lends no nodes of the type."""

    key: str
    text: str
    is_error: bool = True

    @property
    def sentence(self) -> str:
        return f"{self.key}: {self.text}"


def check_node_type(node_type: NodeType) -> tuple[KubeletProblem, ...]:
    """Returns all errors and warnings, errors first; none for a type without kubelet settings."""
    kubelet = node_type.kubelet
    if kubelet is None:
        return ()
    problems = [problem for rule in _RULES for problem in rule(kubelet)]
    problems += _declared_size(node_type, kubelet)
    return tuple(sorted(problems, key=lambda problem: not problem.is_error))


def lending_error(node_type: NodeType) -> str:
    """Returns the first error and the number of others, or an empty text if there is none."""
    errors = [problem for problem in check_node_type(node_type) if problem.is_error]
    if not errors:
        return ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"[node_type:{node_type.name}] {errors[0].sentence}{more}"


def _warning(key: str, text: str) -> KubeletProblem:
    return KubeletProblem(key=key, text=text, is_error=False)


# --- reserved_memory, entry by entry ----------------------------------------------------------


def _entries(kubelet: KubeletSettings) -> Iterator[KubeletProblem]:
    """Yields entries of reserved_memory that the kubelet refuses under any policy, and negative
    amounts, which it accepts without any effect."""
    key = "reserved_memory"
    counts = Counter((item.numa_node, item.resource) for item in kubelet.reserved_memory)
    for (node, resource), count in counts.items():
        if count > 1:
            text = f"names {resource} of NUMA node {node} {count} times; give one amount"
            yield KubeletProblem(key=key, text=text)
    for reservation in kubelet.reserved_memory:
        amount = parse_kubernetes("memory", reservation.amount)
        if reservation.resource != "memory" and not reservation.resource.startswith("hugepages-"):
            text = f"{_shown(reservation)} is neither memory nor hugepages-SIZE"
            yield KubeletProblem(key=key, text=text)
        elif amount == 0:
            text = f"{_shown(reservation)}: the kubelet refuses zero; leave the NUMA node out"
            yield KubeletProblem(key=key, text=text)
        elif amount < 0:
            text = f"{_shown(reservation)} is negative: the kubelet accepts it, without any effect"
            yield KubeletProblem(key=key, text=text)
        elif kubelet.is_static and not holds_int64(reservation.amount):
            yield KubeletProblem(key=key, text=f"{_shown(reservation)}: {_other_spelling(amount)}")


def _other_spelling(amount: int) -> str:
    why = "the kubelet can't use this spelling as a whole number"
    for unit in ("Gi", "Mi", "Ki", ""):
        kubernetes = parse_kubernetes("memory", f"1{unit}")
        if amount % kubernetes == 0 and holds_int64(text := f"{amount // kubernetes}{unit}"):
            return f"{why}; write {text}"
    return f"{why}; write it in bytes"


def _shown(reserved_memory: ReservedMemory) -> str:
    resource = "" if reserved_memory.resource == "memory" else f"{reserved_memory.resource}="
    return f"{reserved_memory.numa_node}: {resource}{reserved_memory.amount}"


# --- the static memory manager ----------------------------------------------------------------


def _static(kubelet: KubeletSettings) -> Iterator[KubeletProblem]:
    if not kubelet.is_static:
        if kubelet.reserved_memory:
            text = "has no effect unless memory_manager_policy = Static: set that, or omit this key"
            yield KubeletProblem(key="reserved_memory", text=text)
        return
    if not kubelet.reserved_memory:
        text = "Static needs reserved_memory: without it the kubelet does not start"
        yield KubeletProblem(key="memory_manager_policy", text=text)
    else:
        yield from _sum_rule(kubelet)
    if kubelet.topology_manager_policy not in _ALIGNED:
        text = (
            "Static without topology_manager_policy = single-numa-node reserves by NUMA node and "
            "aligns nothing: likely a mistake"
        )
        yield _warning("memory_manager_policy", text)


def _sum_rule(kubelet: KubeletSettings) -> Iterator[KubeletProblem]:
    """Yields a problem if the reserved memory of the NUMA nodes differs from the sum of the other
    reservations. dnm cannot check this if a setting is missing, since a base file may set it."""
    key = "reserved_memory"
    for memory in kubelet.reserved_memory:
        if memory.resource.startswith("hugepages-"):
            text = f"{_shown(memory)}: with Static the kubelet compares huge pages with 0; omit it"
            yield KubeletProblem(key=key, text=text)
    sides = memory_sides(kubelet)
    eviction = kubelet.eviction_hard_memory_available or ""
    percentage = eviction.endswith("%")
    if sides.allocatable is None:
        yield _warning(
            "eviction_hard_memory_available",
            "a percentage is of a machine's own memory, and numa_memory is missing: whether "
            "the sums agree is unknown; write an amount",
        )
    elif sides.unpinned:
        yield _warning(key, _unpinned_text(sides, sides.allocatable))
    elif not sides.is_equal:
        text = _unequal_text(kubelet, sides, sides.allocatable)
        yield KubeletProblem(key=key, text=text, is_error=not percentage)
    elif sides.reserved == 0:
        text = "adds up to zero: with Static the kubelet requires some reserved memory"
        yield KubeletProblem(key=key, text=text)
    amount = eviction_amount(eviction, kubelet.memory) if percentage else None
    if amount is not None and eviction not in ("0%", "100%"):
        yield _warning(
            "eviction_hard_memory_available",
            f"a percentage makes {shown(amount)} here, but some KiB more or less elsewhere, "
            "where the kubelet does not start; write an amount",
        )


def _unpinned_text(sides: MemorySides, allocatable: int) -> str:
    keys = " and ".join(name.removesuffix("_memory") for name in sides.unpinned)
    verb = "is" if len(sides.unpinned) == 1 else "are"
    left, right = in_common_unit(sides.reserved, allocatable)
    outcome = f"{left} = {right}, and it starts" if sides.is_equal else f"{left} is not {right}"
    return (
        f"{keys} {verb} not set, so the kubelet's other files decide whether it starts; with its "
        f"defaults: {outcome}"
    )


def _unequal_text(kubelet: KubeletSettings, sides: MemorySides, allocatable: int) -> str:
    difference = sides.reserved - allocatable
    left, right, by = in_common_unit(sides.reserved, allocatable, abs(difference))
    word = "more" if difference > 0 else "less"
    terms = " + ".join(term.removesuffix("_memory") for term in TERMS)
    return (
        f"adds up to {left}, {by} {word} than {terms} = {right}: the kubelet would not "
        f"start{_corrected(kubelet, difference)}"
    )


def _corrected(kubelet: KubeletSettings, difference: int) -> str:
    """Returns a text with a reserved_memory entry that would correct the sum; empty if none can."""
    for reservation in kubelet.reserved_memory:
        amount = parse_kubernetes("memory", reservation.amount) - difference
        most = kubelet.numa_memory.get(reservation.numa_node)
        if reservation.resource == "memory" and amount > 0 and (most is None or amount < most):
            return f"; e.g. {reservation.numa_node}: {in_common_unit(amount)[0]} there"
    return ""


# --- the machine ------------------------------------------------------------------------------


def _machine(kubelet: KubeletSettings) -> Iterator[KubeletProblem]:
    count = len(kubelet.numa_memory)
    if count > MOST_NUMA_NODES and kubelet.topology_manager_policy not in (None, "none"):
        text = (
            f"the topology manager of a kubelet refuses {count} NUMA nodes, at most "
            f"{MOST_NUMA_NODES}; write none"
        )
        yield KubeletProblem(key="topology_manager_policy", text=text)
    if kubelet.is_static:
        yield from _numa_nodes(kubelet)
    sides = memory_sides(kubelet)
    if kubelet.memory is not None and sides.allocatable is not None:
        taken = sides.allocatable + kubelet.huge_pages
        if taken >= kubelet.memory:
            text = (
                f"the reservation and huge pages take {shown(taken)} of {shown(kubelet.memory)}: "
                "no memory is left for pods"
            )
            yield KubeletProblem(key="numa_memory", text=text)


def _numa_nodes(kubelet: KubeletSettings) -> Iterator[KubeletProblem]:
    """Yields reservations that exceed their NUMA node. The kubelet does not check this, and its
    unsigned subtraction gives a huge amount."""
    if not kubelet.numa_memory:
        if kubelet.reserved_memory:
            text = "is not set: whether each NUMA node has the reserved memory is unknown"
            yield _warning("numa_memory", text)
        return
    pages = kubelet.huge_pages // len(kubelet.numa_memory)  # the kernel spreads them evenly
    for memory in kubelet.reserved_memory:
        size = kubelet.numa_memory.get(memory.numa_node)
        amount = parse_kubernetes("memory", memory.amount)
        if size is None:
            text = f"{_shown(memory)}: numa_memory has no NUMA node {memory.numa_node}"
            yield KubeletProblem(key="reserved_memory", text=text)
        elif memory.resource == "memory" and amount > size:
            text = (
                f"{_shown(memory)}: the NUMA node has {shown(size)}; the kubelet does not check, "
                "and would offer a huge amount"
            )
            yield KubeletProblem(key="reserved_memory", text=text)
        elif memory.resource == "memory" and amount + pages >= size:
            text = f"{_shown(memory)}: with huge pages no memory of this NUMA node is left for pods"
            yield _warning("reserved_memory", text)


def _declared_size(node_type: NodeType, kubelet: KubeletSettings) -> Iterator[KubeletProblem]:
    """Yields a warning if more memory is declared than a node has: some pods would then not fit."""
    most, declared = computed_allocatable(kubelet), node_type.size.get("memory", 0)
    if most is not None and declared > most > 0:
        yield _warning(
            "memory",
            f"{format_amount('memory', declared)} is declared, but pods will get about "
            f"{shown(most)}: for a pod between the two, dnm lends a node that does not help",
        )


def _cpus(kubelet: KubeletSettings) -> Iterator[KubeletProblem]:
    if kubelet.cpu_manager_policy == "static" and not reserved_cpu(kubelet):
        text = (
            "static needs reserved CPUs: write cpu in kube_reserved or system_reserved; without "
            "any the kubelet does not start"
        )
        yield KubeletProblem(key="cpu_manager_policy", text=text)


_RULES: tuple[Callable[[KubeletSettings], Iterator[KubeletProblem]], ...] = (
    _entries,
    _static,
    _machine,
    _cpus,
)
