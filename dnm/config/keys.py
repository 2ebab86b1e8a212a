"""The keys there are: key -> (the field of the model it fills, how its text is read).

A key without a field is used to build another one. The defaults stand on the fields of model.py;
the four below belong to keys that have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dnm.config import values

DEFAULT_NODE_TYPES = ("a",)
DEFAULT_NODE_CPU = "128"
DEFAULT_NODE_MEMORY = "256G"
DEFAULT_QUEUE_MAP = Path("/etc/dynamic-node/namespace_queue_paths.json")

_YEAR = 31_536_000  # seconds

Parser = Callable[[str], Any]
Keys = Mapping[str, tuple[str, Parser]]


def path_text(text: str) -> str:
    """A path as it is written; config.py resolves it, since that takes the file's place."""
    if "\n" in text:
        raise ValueError("runs over several lines; write one path")
    return text


# [settings] -> Config
SETTINGS: Keys = {
    "kubeconfig_path": ("kubeconfig_path", path_text),
    "monitored_namespaces": ("", values.namespaces),
    "reversion_idle_seconds": ("", values.seconds(0, _YEAR)),
    "check_interval_seconds": ("check_interval", values.seconds(1, 86_400)),
    "max_converted_nodes": ("max_converted_nodes", values.whole_number(0, 100_000)),
    "yunikorn_cm_namespace": ("yunikorn_cm_namespace", values.namespace),
    "yunikorn_cm_name": ("yunikorn_cm_name", values.object_name),
    "yunikorn_queue_annotation": ("yunikorn_queue_annotation", values.label_key),
    "node_cpu_capacity": ("", values.quantity("vcore")),
    "node_memory_capacity": ("", values.quantity("memory")),
    "global_cooldown_seconds": ("global_cooldown", values.seconds(0, _YEAR)),
    "default_cpu_request_m": ("", values.whole_number(0, 10**9)),
    "default_mem_request": ("", values.quantity("memory")),
    "namespace_queue_paths": ("", path_text),
    "state_dir": ("state_dir", path_text),
    "converted_nodes_path": ("converted_nodes_path", path_text),
    "node_convert_path": ("node_convert_path", path_text),
    "node_type": ("", values.node_type_names),
    "instance_id": ("instance_id", values.label_value),
    "allowed_queue_prefixes": ("allowed_queue_prefixes", values.queue_prefixes),
    "slurm_reservation_name": ("slurm_reservation_name", values.slurm_name),
    "allow_preempt": ("allow_preempt", values.boolean),
    "log_console": ("log_console", values.boolean),
    "shutdown_grace_seconds": ("shutdown_grace", values.seconds(0, 86_400)),
    "max_conversions_per_run": ("max_conversions_per_run", values.whole_number(0, 100_000)),
    "max_reversions_per_run": ("max_reversions_per_run", values.whole_number(0, 100_000)),
    "headroom": ("headroom", values.share),
    "pending_grace_seconds": ("pending_grace", values.seconds(0, 86_400)),
    "join_timeout_seconds": ("join_timeout", values.seconds(1, _YEAR)),
    "convert_timeout_seconds": ("convert_timeout", values.seconds(1, _YEAR)),
    "request_timeout_seconds": ("request_timeout", values.seconds(0.1, 3_600)),
    "breaker_strikes": ("breaker_strikes", values.whole_number(1, 1_000)),
    "adjust_guaranteed": ("adjust_guaranteed", values.boolean),
    "yunikorn_url": ("yunikorn_url", values.url),
}

# [namespace:NAME] -> NamespacePolicy
NAMESPACE_KEYS: Keys = {
    "node_type": ("node_types", values.node_type_names),
    "max_nodes": ("max_nodes", values.whole_number(0, 100_000)),
    "min_nodes": ("min_nodes", values.whole_number(0, 100_000)),
    "priority": ("priority", values.whole_number(-1_000_000, 1_000_000)),
    "reversion_idle_seconds": ("reversion_idle", values.seconds(0, _YEAR)),
}

# [node_type:NAME] -> NodeType; a key that looks like RESOURCE is an amount of it
NODE_TYPE_KEYS: Keys = {
    "cpu": ("", values.quantity("vcore")),
    "memory": ("", values.quantity("memory")),
    "name_prefix": ("name_prefix", values.node_prefix),
    "max_nodes": ("max_nodes", values.whole_number(0, 100_000)),
    "labels": ("labels", values.labels),
    "taints": ("taints", values.taints),
}

PLAIN_SECTIONS = ("settings", "node_convert", "DEFAULT")  # node_convert is the converter's own
NAMED_SECTIONS = ("namespace", "node_type")
RESOURCE = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9._-]+|hugepages-[A-Za-z0-9]+|ephemeral-storage|pods")
MAY_BE_EMPTY = frozenset(
    (
        "kubeconfig_path",
        "node_convert_path",
        "converted_nodes_path",
        "slurm_reservation_name",
        "allowed_queue_prefixes",
        "yunikorn_url",
    )
)
