"""Parsers of the keys about a node type's kubelets, one value at a time, like `values.py`.

This module checks only the form. The package `kubelet` decides whether a kubelet would start with
all values together. If it would not, dnm lends no node of that type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dnm.config.values import names, suggest
from dnm.model.errors import DnmError
from dnm.model.kubelet import ReservedMemory
from dnm.model.quantity import parse_exact, parse_kubernetes

_PERCENTAGE = r"[0-9]{1,3}(\.[0-9]{1,6})?%"
_NUMA_NODE = r"[0-9]{1,4}"
_MOST = 2**60  # bytes; more is a typing error, and some parts of Kubernetes cannot count it


def _choice(*words: str) -> Callable[[str], str]:
    """Returns a parser that accepts only these words, in the spelling that the kubelet requires."""

    def parse(text: str) -> str:
        if text not in words:
            choices = f"write {', '.join(words[:-1])} or {words[-1]}, in this spelling"
            raise ValueError(f"is not known to the kubelet{suggest(text, words) or ';'} {choices}")
        return text

    return parse


memory_policy = _choice("None", "Static")
cpu_policy = _choice("none", "static")
topology_policy = _choice("none", "best-effort", "restricted", "single-numa-node")
topology_scope = _choice("container", "pod")


def memory_amount(text: str) -> str:
    """Returns the text of an amount of memory, unchanged. Raises ValueError if it is not one."""
    _byte_count(text)
    return text


def _amount(parse: Callable[[str, str], int], resource: str, text: str) -> int | None:
    """Returns the amount that `parse` reads from the text, or None if it is not an amount."""
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
    """Returns a parser of kube_reserved or system_reserved, e.g. `cpu=500m, memory=4Gi`."""

    def parse(text: str) -> dict[str, str]:
        amounts: dict[str, str] = {}
        for entry in names(text):
            resource, _, amount = (name.strip() for name in entry.partition("="))
            if resource not in ("cpu", "memory"):
                raise ValueError(f"has '{entry}'; write e.g. cpu=500m, memory=4Gi")
            if (key := f"{part}_reserved_{resource}") in amounts:
                raise ValueError(f"gives {resource} twice; give it once")
            amounts[key] = cpu_amount(amount) if resource == "cpu" else memory_amount(amount)
        return amounts

    return parse


def eviction_threshold(text: str) -> str:
    """Returns the text if it is an amount of memory, or a percentage of a machine's memory."""
    if text.endswith("%"):
        if not re.fullmatch(_PERCENTAGE, text) or float(text[:-1]) > 100:
            raise ValueError("is not a percentage; write one from 0% to 100%, or e.g. 100Mi")
    elif _byte_count(text) == 0:
        raise ValueError("is refused by the kubelet; write 0% for no threshold")
    return text


def _byte_count(text: str) -> int:
    """Returns the bytes in the text. Refuses fractions of a byte: programs round them
    differently."""
    amount = _amount(parse_exact, "memory", text)
    if amount is None or amount < 0:
        hint = " (Kubernetes spells it k)" if re.fullmatch(r"[0-9.]+K", text) else ""
        raise ValueError(f"is not a whole number of bytes{hint}; write e.g. 4Gi, 8362Mi or 0")
    if amount > _MOST:
        raise ValueError("is more memory than a machine has; write e.g. 4Gi")
    return amount


def _by_node(text: str, example: str) -> Iterator[tuple[str, int, str]]:
    """Yields the entries of e.g. `0: 512Gi`: the text, the NUMA node and the part after the
    colon."""
    for entry in names(text):
        node, colon, rest = (part.strip() for part in entry.partition(":"))
        if not colon or not re.fullmatch(_NUMA_NODE, node):
            raise ValueError(f"'{entry}' is not an entry; write e.g. {example}")
        yield entry, int(node), rest


def reserved_memory(text: str) -> tuple[ReservedMemory, ...]:
    """Returns the reservations in e.g. `0: 4300Mi, 1: hugepages-2Mi=512Mi`. The package `kubelet`
    checks the amounts further."""
    entries = []
    for entry, node, rest in _by_node(text, "0: 4300Mi, 1: 4300Mi"):
        resource, equals, amount = (part.strip() for part in rest.rpartition("="))
        if equals and not resource:
            raise ValueError(f"'{entry}' is not an entry; write e.g. 0: 4300Mi, 1: 4300Mi")
        size = _amount(parse_kubernetes, "memory", amount)
        if size is None or abs(size) > _MOST:
            raise ValueError(f"'{amount}' is not an amount of memory; write e.g. 0: 4300Mi")
        entries.append(ReservedMemory(numa_node=node, amount=amount, resource=resource or "memory"))
    if not entries:
        raise ValueError("is empty; write e.g. 0: 4300Mi, 1: 4300Mi")
    return tuple(entries)


def numa_memory(text: str) -> dict[int, int]:
    """Returns the memory of each NUMA node from e.g. `0: 512Gi, 1: 512Gi`, in bytes."""
    by_node: dict[int, int] = {}
    for entry, node, amount in _by_node(text, "0: 512Gi, 1: 512Gi"):
        if node in by_node:
            raise ValueError(f"gives NUMA node {node} twice; give it once")
        try:
            by_node[node] = _byte_count(amount)
        except ValueError as error:
            raise ValueError(f"'{entry}': {amount or 'nothing'} {error}") from error
    if not any(by_node.values()):
        raise ValueError("has no memory; write e.g. 0: 512Gi, 1: 512Gi")
    return by_node
