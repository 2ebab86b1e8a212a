"""The check of a node type's kubelet settings. It reads only the configuration file (ini)."""

from __future__ import annotations

from typing import Any

from dnm.checks.findings import Finding, doubtful, fine, wrong
from dnm.kubelet.check import check_node_type
from dnm.kubelet.reservation import computed_allocatable
from dnm.model.kubelet import KubeletSettings
from dnm.model.node_type import NodeType
from dnm.model.printable import count_of
from dnm.model.quantity import format_amount

_FACTS = ("numa_memory", "hugepages_2mi", "hugepages_1gi")


def settings_of(kubelet: KubeletSettings | None) -> dict[str, Any]:
    """Returns the kubelet settings of a node type by their keys in the configuration file. Omits
    unset ones, huge pages and NUMA memory."""
    if kubelet is None:
        return {}
    named: dict[str, Any] = {
        key: getattr(kubelet, key)
        for key in kubelet.__struct_fields__
        if key not in (*_FACTS, "reserved_memory") and getattr(kubelet, key) is not None
    }
    for part in ("kube_reserved", "system_reserved"):  # one key each in the ini
        kept = {name: named.pop(f"{part}_{name}", None) for name in ("cpu", "memory")}
        if text := ", ".join(f"{name}={amount}" for name, amount in kept.items() if amount):
            named[part] = text
    if kubelet.reserved_memory:
        named["reserved_memory"] = ", ".join(
            f"{reservation.numa_node}: "
            + (
                reservation.amount
                if reservation.resource == "memory"
                else f"{reservation.resource}={reservation.amount}"
            )
            for reservation in kubelet.reserved_memory
        )
    return named


def judge(node_type: NodeType) -> list[Finding]:
    """Returns a finding for each problem of a node type's settings. Without a problem, returns one
    finding with the result ok."""
    check = f"node type {node_type.name}"
    problems = check_node_type(node_type)
    if problems:
        return [
            (wrong if problem.is_error else doubtful)(problem.sentence, check=check)
            for problem in problems
        ]
    named = len(settings_of(node_type.kubelet))
    memory = computed_allocatable(node_type.kubelet) if node_type.kubelet else None
    gets = "" if memory is None else f"; pods get about {format_amount('memory', memory)} memory"
    settings = count_of(named, "kubelet setting") if named else "no kubelet settings"
    return [fine(f"{settings}{gets}", check)]
