"""The tables of all keys: the field of Config that a key fills, and the parser of its text.

A key without a field is used to compute another field; `*` means several fields. The models have
the defaults of fields. Defaults of keys without a field are below or in `dnm/config/load.py`; that
of `reversion_idle_seconds` is in `dnm/plan/idle_times.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dnm.config import kubelet_values, names, numbers, values
from dnm.config.node_checks import parse_fault_conditions, parse_readiness_checks
from dnm.config.values import path_text

DEFAULT_NODE_TYPES = ("a",)
DEFAULT_NODE_CPU = "128"
DEFAULT_NODE_MEMORY = "256G"
DEFAULT_QUEUE_MAP = Path("/etc/dynamic-node/namespace_queue_paths.json")

YEAR = 31_536_000  # seconds
_YUNIKORN = ("YuniKorn's REST service", "http://yunikorn-service.yunikorn:9080")

Parser = Callable[[str], Any]
Keys = Mapping[str, tuple[str, Parser]]


class RuleKey(NamedTuple):
    """A key that belongs to one rule of the planner. If it is set, its value is in `options` of the
    Config or of the namespace, under the name of the key."""

    parse: Parser
    about: str  # its meaning in docs/configuration.md
    change: str  # when to change it
    heading: str  # of its table there


# The keys of rules by kind of section
OF_RULES: Mapping[str, Mapping[str, RuleKey]] = {
    "settings": {
        "max_lend_hours": RuleKey(
            numbers.span("hours", 0, 8_760),
            "the longest lend; then dnm fences the node and returns it once empty; 0: none",
            "if nodes must be rebooted",
            "When a node goes back",
        ),
    },
    "namespace": {
        "node_hours_per_week": RuleKey(
            numbers.amount(0, 10_000_000),
            "the budget of its lent nodes in hours, from Monday, 00:00 UTC",
            "with budgets",
            "One namespace",
        ),
    },
}


def _of_rules(kind: str) -> Keys:
    return {key: ("options", declared.parse) for key, declared in OF_RULES[kind].items()}


# [settings] -> Config
SETTINGS: Keys = {
    "kubeconfig_path": ("kubeconfig_path", path_text),
    "monitored_namespaces": ("", values.namespaces),
    "reversion_idle_seconds": ("", values.seconds(0, YEAR)),
    "check_interval_seconds": ("check_interval", values.seconds(1, 86_400)),
    "max_converted_nodes": ("max_converted_nodes", numbers.cap),
    "queue_system": ("", values.queue_system),
    "wake_workloads": ("annotate_workloads", values.boolean),
    "yunikorn_cm_namespace": ("yunikorn_cm_namespace", values.namespace),
    "yunikorn_cm_name": ("yunikorn_cm_name", names.object_name),
    "yunikorn_queue_annotation": ("yunikorn_queue_annotation", names.label_key),
    "node_cpu_capacity": ("", values.quantity("cpu")),
    "node_memory_capacity": ("", values.quantity("memory")),
    "global_cooldown_seconds": ("global_cooldown", values.seconds(0, YEAR)),
    "default_cpu_request_m": ("", numbers.integer(0, 10**9)),
    "default_mem_request": ("", values.quantity("memory")),
    "namespace_queue_paths": ("", path_text),
    "registry": ("*", names.registry_place),
    "state_dir": ("state_dir", path_text),
    "node_convert_path": ("node_convert_path", path_text),
    "node_type": ("", names.node_type_names),
    "exclude_nodes": ("*", names.exclusions),
    "instance_id": ("instance_id", names.label_value),
    "allow_preempt": ("*", names.preemption),
    "max_conversions_per_run": ("max_conversions_per_run", numbers.integer(0, 100_000)),
    "headroom": ("headroom", numbers.share),
    "join_timeout_seconds": ("join_timeout", values.seconds(1, YEAR)),
    "convert_timeout_seconds": ("convert_timeout", values.seconds(1, YEAR)),
    "batch_floor": ("*", numbers.floors),
    "events_zone": ("events_zone", names.time_zone),
    "calendar": ("events_dir", path_text),
    "event_reservations": ("reserve_ahead", numbers.reserved_ahead),
    "adjust_guaranteed": ("adjust_guaranteed", values.boolean),
    "fault_conditions": ("fault_conditions", parse_fault_conditions),
    "consolidate": ("consolidate", values.boolean),
    "move_in_place": ("move_in_place", values.boolean),
    "yunikorn_url": ("yunikorn_url", names.address(*_YUNIKORN)),
    "metrics_file": ("metrics_file", path_text),
    "demand_days": ("demand_keep", numbers.span("days", 0, 36_500)),
    "pass_environment": ("pass_environment", names.variable_names),
    **_of_rules("settings"),
}

# [namespace:NAME] -> NamespacePolicy
NAMESPACE_KEYS: Keys = {
    "node_type": ("node_types", names.node_type_names),
    "max_nodes": ("max_nodes", numbers.cap),
    "min_nodes": ("min_nodes", numbers.integer(0, 100_000)),
    "priority": ("priority", numbers.integer(-1_000_000, 1_000_000)),
    "queue_system": ("queue_system", values.queue_system),
    "charge_account": ("charge_account", names.charged_account),
    **_of_rules("namespace"),
}

# [node_type:NAME] -> NodeType; a key that matches RESOURCE is an amount of that resource
NODE_TYPE_KEYS: Keys = {
    "cpu": ("", values.quantity("cpu")),
    "memory": ("", values.quantity("memory")),
    "name_prefix": ("name_prefix", names.node_prefix),
    "max_nodes": ("max_nodes", numbers.cap),
    "labels": ("labels", names.labels),
    "taints": ("taints", names.taints),
    "readiness_checks": ("readiness_checks", parse_readiness_checks),
}

# [node_type:NAME] too -> KubeletSettings
KUBELET_KEYS: Keys = {
    "memory_manager_policy": ("memory_manager_policy", kubelet_values.memory_policy),
    "eviction_hard_memory_available": (
        "eviction_hard_memory_available",
        kubelet_values.eviction_threshold,
    ),
    "reserved_memory": ("reserved_memory", kubelet_values.reserved_memory),
    "kube_reserved": ("*", kubelet_values.kept_back("kube")),
    "system_reserved": ("*", kubelet_values.kept_back("system")),
    "cpu_manager_policy": ("cpu_manager_policy", kubelet_values.cpu_policy),
    "topology_manager_policy": ("topology_manager_policy", kubelet_values.topology_policy),
    "topology_manager_scope": ("topology_manager_scope", kubelet_values.topology_scope),
    "numa_memory": ("numa_memory", kubelet_values.numa_memory),
}

# [node_convert] -> the settings of the shipped node-convert
NODE_CONVERT_KEYS: Keys = {
    "slurmrestd_url": ("slurmrestd_url", names.slurmrestd_url),
    "slurmrestd_token_file": ("slurmrestd_token_file", path_text),
    "min_idle_seconds": ("min_idle_seconds", values.seconds(0, YEAR)),
    "res_lookahead_seconds": ("res_lookahead_seconds", values.seconds(0, YEAR)),
    "hooks_dir": ("hooks_dir", path_text),
    "nodeset_label": ("nodeset_label", names.single_label),
}

BY_KIND: Mapping[str, Keys] = {
    "settings": SETTINGS,
    "namespace": NAMESPACE_KEYS,
    "node_type": {**NODE_TYPE_KEYS, **KUBELET_KEYS},
    "node_convert": NODE_CONVERT_KEYS,
}
PLAIN_SECTIONS = ("settings", "node_convert", "DEFAULT", "lab")
NAMED_SECTIONS = ("namespace", "node_type", "event")
# Common names of a GPU that are not keys, and the correct form.
ELSEWHERE = dict.fromkeys(
    ("gres", "gpu", "gpus", "nvidia_gpu", "gpu_count"),
    "; write a resource as Kubernetes names it, with its number, e.g. nvidia.com/gpu = 4",
)
RESOURCE = re.compile(
    r"(?!gres/)[a-z0-9.-]+/[A-Za-z0-9._-]+|hugepages-[A-Za-z0-9]+|ephemeral-storage|pods"
)
# Values of keys with an empty text; None: the same as a missing key
MAY_BE_EMPTY: Mapping[str, Any] = {
    "pass_environment": (),
    **dict.fromkeys((
        "kubeconfig_path", "node_convert_path", "calendar",
        "exclude_nodes", "yunikorn_url", "metrics_file",
        "slurmrestd_url", "slurmrestd_token_file",
        "nodeset_label", "hooks_dir",
    )),
}  # fmt: skip
