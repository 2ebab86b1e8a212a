"""The keys about a node type's kubelets, one value at a time: text -> value, as `values.py` does.

Only the form is judged here. Whether a kubelet would start with all of them together is the
business of the package `kubelet`: a type whose kubelets would not is not lent, and the others are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dnm.config.values import names, suggest
from dnm.model.errors import DnmError
from dnm.model.kubelet import ReservedMemory
from dnm.model.quantity import parse_kubernetes, parse_whole

_PERCENTAGE = r"[0-9]{1,3}(\.[0-9]{1,6})?%"
_NUMA_NODE = r"[0-9]{1,4}"
_MOST = 2**60  # bytes; more is a slip of the pen, and beyond what every part of Kubernetes counts


def _one_of(*known: str) -> Callable[[str], str]:
    """A parser of words that the kubelet knows in this spelling only."""

    def parse(text: str) -> str:
        if text not in known:
            choices = f"write {', '.join(known[:-1])} or {known[-1]}, in this spelling"
            raise ValueError(f"is not known to the kubelet{suggest(text, known) or ';'} {choices}")
        return text

    return parse


memory_policy = _one_of("None", "Static")
cpu_policy = _one_of("none", "static")
topology_policy = _one_of("none", "best-effort", "restricted", "single-numa-node")
topology_scope = _one_of("container", "pod")


def memory_amount(text: str) -> str:
    """What is kept back, as it is written; none of it is 0."""
    _whole_memory(text)
    return text


def _amount(parse: Callable[[str, str], int], resource: str, text: str) -> int | None:
    """What a text is an amount of; None: it is none."""
    try:
        return parse(resource, text)
    except (ValueError, DnmError):
        return None


def cpu_amount(text: str) -> str:
    amount = _amount(parse_kubernetes, "cpu", text)
    if amount is None or not 0 <= amount <= 10**9:
        raise ValueError("is not an amount of CPU; write e.g. 500m or 2")
    return text


def kept_back(part: str) -> Callable[[str], dict[str, str]]:
    """A parser of `cpu=500m, memory=4Gi`, as the kubelet's own option of this part has it."""

    def parse(text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for entry in names(text):
            resource, _, amount = (name.strip() for name in entry.partition("="))
            if resource not in ("cpu", "memory"):
                raise ValueError(f"has '{entry}'; write e.g. cpu=500m, memory=4Gi")
            if (key := f"{part}_reserved_{resource}") in found:
                raise ValueError(f"gives {resource} twice; give it once")
            found[key] = cpu_amount(amount) if resource == "cpu" else memory_amount(amount)
        return found

    return parse


def eviction_threshold(text: str) -> str:
    """An amount, or a percentage of a machine's memory."""
    if text.endswith("%"):
        if not re.fullmatch(_PERCENTAGE, text) or float(text[:-1]) > 100:
            raise ValueError("is not a percentage; write one from 0% to 100%, or e.g. 100Mi")
    elif _whole_memory(text) == 0:
        raise ValueError("is refused by the kubelet; write 0% for no threshold")
    return text


def _whole_memory(text: str) -> int:
    """Bytes, exactly: fractions of a byte round differently in different places."""
    amount = _amount(parse_whole, "memory", text)
    if amount is None or amount < 0:
        hint = " (Kubernetes spells it k)" if re.fullmatch(r"[0-9.]+K", text) else ""
        raise ValueError(f"is not a whole number of bytes{hint}; write e.g. 4Gi, 8362Mi or 0")
    if amount > _MOST:
        raise ValueError("is more memory than a machine has; write e.g. 4Gi")
    return amount


def _by_node(text: str, example: str) -> Iterator[tuple[str, int, str]]:
    """Yields each entry, its NUMA node, and what is said of that."""
    for entry in names(text):
        node, colon, rest = (part.strip() for part in entry.partition(":"))
        if not colon or not re.fullmatch(_NUMA_NODE, node):
            raise ValueError(f"'{entry}' is not an entry; write e.g. {example}")
        yield entry, int(node), rest


def reserved_memory(text: str) -> tuple[ReservedMemory, ...]:
    """`0: 4300Mi, 1: 4300Mi`, also `0: hugepages-2Mi=512Mi`. What the kubelet makes of the amounts
    is not judged here, but that they are some."""
    found = []
    for entry, node, rest in _by_node(text, "0: 4300Mi, 1: 4300Mi"):
        resource, equals, amount = (part.strip() for part in rest.rpartition("="))
        if equals and not resource:
            raise ValueError(f"'{entry}' is not an entry; write e.g. 0: 4300Mi, 1: 4300Mi")
        size = _amount(parse_kubernetes, "memory", amount)
        if size is None or abs(size) > _MOST:
            raise ValueError(f"'{amount}' is not an amount of memory; write e.g. 0: 4300Mi")
        found.append(ReservedMemory(numa_node=node, amount=amount, resource=resource or "memory"))
    if not found:
        raise ValueError("is empty; write e.g. 0: 4300Mi, 1: 4300Mi")
    return tuple(found)


def numa_memory(text: str) -> dict[int, int]:
    """`0: 512Gi, 1: 512Gi`: the memory of each NUMA node, as the kernel has it."""
    found: dict[int, int] = {}
    for entry, node, amount in _by_node(text, "0: 512Gi, 1: 512Gi"):
        if node in found:
            raise ValueError(f"gives NUMA node {node} twice; give it once")
        try:
            found[node] = _whole_memory(amount)
        except ValueError as error:
            raise ValueError(f"'{entry}': {amount or 'nothing'} {error}") from error
    if not any(found.values()):
        raise ValueError("is no memory at all; write e.g. 0: 512Gi, 1: 512Gi")
    return found
