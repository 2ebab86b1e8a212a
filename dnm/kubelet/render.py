"""Settings -> the file that a kubelet reads, one to one: only what is named appears, in the very
spelling in which it was named. Nothing named, nothing rendered. The same settings, the same bytes.

Nothing is judged here; that is the business of `check.py`.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from dnm.model.kubelet import KubeletSettings, ReservedMemory

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


class Format(StrEnum):
    """What the file is for."""

    kubelet = "kubelet"  # a file of its own: --config
    dropin = "dropin"  # a file *.conf in the directory of --config-dir
    kubeadm_patch = "kubeadm-patch"  # kubeletconfiguration+merge.yaml in the directory of --patches


def render(kubelet: KubeletSettings | None, form: Format = Format.dropin) -> str:
    """Returns the file's text, which is YAML; empty where nothing is named."""
    fields = kubelet_fields(kubelet) if kubelet is not None else {}
    if not fields:
        return ""
    head = {} if form is Format.kubeadm_patch else HEAD
    return "".join(f"{line}\n" for line in _lines({**head, **fields}))


def cautions(kubelet: KubeletSettings, form: Format) -> tuple[str, ...]:
    """Returns what is to be known of a file of this form, whatever the settings are worth."""
    found = []
    if form is not Format.dropin and kubelet.eviction_hard_memory_available is not None:
        found.append(
            "evictionHard is set with memory.available alone: in a file that names no other signal "
            "the kubelet has no threshold for nodefs and imagefs any more; name them in the base "
            "file, or set mergeDefaultEvictionSettings there (1.33 and later)"
        )
    return tuple(found)


def kubelet_fields(kubelet: KubeletSettings) -> dict[str, Any]:
    """Returns the fields of KubeletConfiguration v1beta1 that are named, sorted."""
    fields: dict[str, Any] = {
        "cpuManagerPolicy": kubelet.cpu_manager_policy,
        "evictionHard": _named({"memory.available": kubelet.eviction_hard_memory_available}),
        "kubeReserved": _named(
            {"cpu": kubelet.kube_reserved_cpu, "memory": kubelet.kube_reserved_memory}
        ),
        "memoryManagerPolicy": kubelet.memory_manager_policy,
        "reservedMemory": _reserved(kubelet.reserved_memory),
        "systemReserved": _named(
            {"cpu": kubelet.system_reserved_cpu, "memory": kubelet.system_reserved_memory}
        ),
        "topologyManagerPolicy": kubelet.topology_manager_policy,
        "topologyManagerScope": kubelet.topology_manager_scope,
    }
    return _named(fields)


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, {}, [])}


def _reserved(entries: tuple[ReservedMemory, ...]) -> list[dict[str, Any]]:
    """One entry a NUMA node, in the order in which they are written. What is written twice stays
    twice, for the kubelet to refuse."""
    found: list[dict[str, Any]] = []
    for entry in entries:
        last = found[-1] if found else None
        if last and last["numaNode"] == entry.numa_node and entry.resource not in last["limits"]:
            last["limits"][entry.resource] = entry.amount
        else:
            found.append({"numaNode": entry.numa_node, "limits": {entry.resource: entry.amount}})
    return found


def _lines(fields: dict[str, Any], indent: str = "") -> list[str]:
    """Block YAML; every text is quoted as JSON, so that none is taken for something else."""
    lines = []
    for key, value in fields.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", *_lines(value, f"{indent}  ")]
        elif isinstance(value, list):
            lines.append(f"{indent}{key}:")
            for entry in value:
                first, *rest = _lines(entry, f"{indent}  ")
                lines += [f"{indent}- {first.strip()}", *rest]
        else:
            lines.append(f"{indent}{key}: {json.dumps(value)}")
    return lines
