"""A writer of the kubelet's configuration file. Only configured keys appear, in the configured
spelling. Without keys there is no file. Equal settings give equal bytes.

This module checks nothing; `check.py` does."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from dnm.model.kubelet import KubeletSettings, ReservedMemory

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


class Format(StrEnum):
    """The kinds of configuration file that a kubelet reads."""

    kubelet = "kubelet"  # a complete file: --config
    dropin = "dropin"  # a file *.conf in the directory of --config-dir
    kubeadm_patch = "kubeadm-patch"  # kubeletconfiguration+merge.yaml in the directory of --patches


def render(kubelet: KubeletSettings | None, form: Format = Format.dropin) -> str:
    """Returns the text of the kubelet's file as YAML; empty if no key is configured."""
    fields = kubelet_fields(kubelet) if kubelet is not None else {}
    if not fields:
        return ""
    head = {} if form is Format.kubeadm_patch else HEAD
    return "".join(f"{line}\n" for line in _lines({**head, **fields}))


def cautions(kubelet: KubeletSettings, form: Format) -> tuple[str, ...]:
    """Returns warnings about these settings in a file of this format, even if they are valid."""
    texts = []
    if form is not Format.dropin and kubelet.eviction_hard_memory_available is not None:
        texts.append(
            "evictionHard is set with memory.available alone: in a file without other signals "
            "the kubelet has no threshold for nodefs and imagefs any more; set them in the base "
            "file, or set mergeDefaultEvictionSettings there (1.33 and later)"
        )
    return tuple(texts)


def kubelet_fields(kubelet: KubeletSettings) -> dict[str, Any]:
    """Returns the configured fields of KubeletConfiguration v1beta1, sorted."""
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
    """Returns an entry for each NUMA node, in the configured order. Repeated entries stay, so that
    the kubelet refuses them."""
    by_node: list[dict[str, Any]] = []
    for entry in entries:
        last = by_node[-1] if by_node else None
        if last and last["numaNode"] == entry.numa_node and entry.resource not in last["limits"]:
            last["limits"][entry.resource] = entry.amount
        else:
            by_node.append({"numaNode": entry.numa_node, "limits": {entry.resource: entry.amount}})
    return by_node


def _lines(fields: dict[str, Any], indent: str = "") -> list[str]:
    """Returns lines of block YAML. Texts are quoted as in JSON, so that they stay texts."""
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
