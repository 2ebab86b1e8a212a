"""The keys there are: key -> (the field of the model it fills, how its text is read).

A key without a field is used to build another one. The defaults stand on the fields of the models;
the four below belong to keys that have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dnm.config import kubelet_values, names, numbers, shares, values
from dnm.config.opening_values import opening_steps, sick_signs
from dnm.config.values import path_text

DEFAULT_NODE_TYPES = ("a",)
DEFAULT_NODE_CPU = "128"
DEFAULT_NODE_MEMORY = "256G"
DEFAULT_QUEUE_MAP = Path("/etc/dynamic-node/namespace_queue_paths.json")

_YEAR = 31_536_000  # seconds

Parser = Callable[[str], Any]
Keys = Mapping[str, tuple[str, Parser]]


# [settings] -> Config
SETTINGS: Keys = {
    "kubeconfig_path": ("kubeconfig_path", path_text),
    "monitored_namespaces": ("", values.namespaces),
    "reversion_idle_seconds": ("", values.seconds(0, _YEAR)),
    "pod_minute_worth": ("pod_minute_worth", numbers.amount(0, 1_000)),
    "check_interval_seconds": ("check_interval", values.seconds(1, 86_400)),
    "max_converted_nodes": ("max_converted_nodes", numbers.cap),
    "yunikorn_cm_namespace": ("yunikorn_cm_namespace", values.namespace),
    "node_cpu_capacity": ("", values.quantity("vcore")),
    "node_memory_capacity": ("", values.quantity("memory")),
    "global_cooldown_seconds": ("global_cooldown", values.seconds(0, _YEAR)),
    "namespace_queue_paths": ("", path_text),
    "state": ("state", names.state_place),
    "state_namespace": ("state_namespace", values.namespace),
    "state_dir": ("state_dir", path_text),
    "converted_nodes_path": ("converted_nodes_path", path_text),
    "node_convert_path": ("node_convert_path", path_text),
    "batch_list_command": ("batch_list_command", path_text),
    "node_type": ("", names.node_type_names),
    "exclude_nodes": ("exclude_nodes", names.host_list),
    "exclude_partitions": ("exclude_partitions", names.partition_names),
    "exclude_features": ("exclude_features", names.feature_names),
    "exclude_reservations": ("exclude_reservations", names.reservation_names),
    "instance_id": ("instance_id", names.label_value),
    "allowed_queue_prefixes": ("allowed_queue_prefixes", values.queue_prefixes),
    "slurm_reservation_name": ("slurm_reservation_name", names.slurm_name),
    "allow_preempt": ("allow_preempt", values.boolean),
    "charge_account": ("charge_account", names.charged_account),
    "charge_user_label": ("charge_user_label", names.label_key),
    "shutdown_grace_seconds": ("shutdown_grace", values.seconds(0, 86_400)),
    "max_conversions_per_run": ("max_conversions_per_run", numbers.whole_number(0, 100_000)),
    "max_reversions_per_run": ("max_reversions_per_run", numbers.whole_number(0, 100_000)),
    "headroom": ("headroom", shares.share),
    "pending_grace_seconds": ("pending_grace", values.seconds(0, 86_400)),
    "join_timeout_seconds": ("join_timeout", values.seconds(1, _YEAR)),
    "convert_timeout_seconds": ("convert_timeout", values.seconds(1, _YEAR)),
    "relist_minutes": ("relist_interval", numbers.minutes(0, 1_440)),
    "watch_from_pods": ("watch_from_pods", numbers.whole_number(0, 10_000_000)),
    "request_timeout_seconds": ("request_timeout", values.seconds(0.1, 3_600)),
    "batch_floor": ("batch_floor", shares.floor),
    "max_lend_hours": ("max_lend", numbers.hours(0, 8_760)),
    "events_zone": ("events_zone", names.time_zone),
    "events_dir": ("events_dir", path_text),
    "calendar": ("calendar", path_text),
    "event_reservations": ("book_ahead", numbers.booked_ahead),
    "breaker_strikes": ("breaker_strikes", numbers.whole_number(1, 1_000)),
    "adjust_guaranteed": ("adjust_guaranteed", values.boolean),
    "sick_when": ("sick_when", sick_signs),
    "move_in_place": ("move_in_place", values.boolean),
    "yunikorn_url": ("yunikorn_url", names.url),
    "events": ("events", values.boolean),
    "node_conditions": ("node_conditions", values.boolean),
    "metrics_file": ("metrics_file", path_text),
    "history_days": ("history_keep", numbers.days(0, 36_500)),
    "demand_days": ("demand_keep", numbers.days(0, 36_500)),
    "read_node_topology": ("read_node_topology", values.boolean),
    "pass_environment": ("pass_environment", names.variable_names),
    "state_group": ("state_group", names.group_name),
}

# [namespace:NAME] -> NamespacePolicy
NAMESPACE_KEYS: Keys = {
    "node_type": ("node_types", names.node_type_names),
    "max_nodes": ("max_nodes", numbers.cap),
    "min_nodes": ("min_nodes", numbers.whole_number(0, 100_000)),
    "node_hours_per_week": ("node_hours_per_week", numbers.amount(0, 10_000_000)),
    "priority": ("priority", numbers.whole_number(-1_000_000, 1_000_000)),
    "reversion_idle_seconds": ("reversion_idle", values.seconds(0, _YEAR)),
    "pod_minute_worth": ("pod_minute_worth", numbers.amount(0, 1_000)),
    "charge_account": ("charge_account", names.charged_account),
}

# [node_type:NAME] -> NodeType; a key that looks like RESOURCE is an amount of it
NODE_TYPE_KEYS: Keys = {
    "cpu": ("", values.quantity("vcore")),
    "memory": ("", values.quantity("memory")),
    "name_prefix": ("name_prefix", names.node_prefix),
    "max_nodes": ("max_nodes", numbers.cap),
    "labels": ("labels", names.labels),
    "taints": ("taints", names.taints),
    "batch_floor": ("batch_floor", shares.floor),
    "opens_when": ("opens_when", opening_steps),
}

# [partition:NAME] -> Floor
PARTITION_KEYS: Keys = {
    "batch_floor": ("", shares.floor),
}

# [node_type:NAME] too -> KubeletSettings
KUBELET_KEYS: Keys = {
    "memory_manager_policy": (
        "memory_manager_policy",
        kubelet_values.one_of(kubelet_values.MEMORY_POLICIES),
    ),
    "kube_reserved_memory": ("kube_reserved_memory", kubelet_values.memory_amount),
    "system_reserved_memory": ("system_reserved_memory", kubelet_values.memory_amount),
    "eviction_hard_memory_available": (
        "eviction_hard_memory_available",
        kubelet_values.eviction_threshold,
    ),
    "reserved_memory": ("reserved_memory", kubelet_values.reserved_memory),
    "cpu_manager_policy": (
        "cpu_manager_policy",
        kubelet_values.one_of(kubelet_values.CPU_POLICIES),
    ),
    "reserved_system_cpus": ("reserved_system_cpus", kubelet_values.cpu_list),
    "kube_reserved_cpu": ("kube_reserved_cpu", kubelet_values.cpu_amount),
    "system_reserved_cpu": ("system_reserved_cpu", kubelet_values.cpu_amount),
    "topology_manager_policy": (
        "topology_manager_policy",
        kubelet_values.one_of(kubelet_values.TOPOLOGY_POLICIES),
    ),
    "topology_manager_scope": (
        "topology_manager_scope",
        kubelet_values.one_of(kubelet_values.TOPOLOGY_SCOPES),
    ),
    "max_allowable_numa_nodes": ("max_allowable_numa_nodes", numbers.whole_number(8, 1024)),
    "max_pods": ("max_pods", numbers.whole_number(1, 1_000)),
    "numa_memory": ("numa_memory", kubelet_values.numa_memory),
    "hugepages_2mi": ("hugepages_2mi", kubelet_values.huge_pages("2Mi")),
    "hugepages_1gi": ("hugepages_1gi", kubelet_values.huge_pages("1Gi")),
    "kubelet_version": ("kubelet_minor", kubelet_values.kubelet_minor),
}

# [node_convert] -> the settings of the shipped node-convert
NODE_CONVERT_KEYS: Keys = {
    "slurmrestd_url": ("slurmrestd_url", names.slurmrestd_url),
    "slurmrestd_token_file": ("slurmrestd_token_file", path_text),
    "min_idle_seconds": ("min_idle_seconds", values.seconds(0, _YEAR)),
    "res_lookahead_seconds": ("res_lookahead_seconds", values.seconds(0, _YEAR)),
    "protect_largest_pending": ("protect_largest_pending", values.boolean),
    "mark_reason": ("mark_reason", names.slurm_reason),
    "order_file": ("order_file", path_text),
    "node_search_domain": ("node_search_domain", names.search_domain),
    "preempt_user": ("preempt_user", names.account_name),
    "preempt_account": ("preempt_account", names.account_name),
    "preempt_mode": ("preempt_mode", names.preempt_mode),
    "preempt_grace_seconds": ("preempt_grace_seconds", values.seconds(0, 86_400)),
    "preempt_max_runtime_seconds": ("preempt_max_runtime_seconds", values.seconds(0, _YEAR)),
    "state_dir": ("state_dir", path_text),
    "hooks_dir": ("hooks_dir", path_text),
    "nodeset_label": ("nodeset_label", names.one_label),
    "parallel": ("parallel", numbers.whole_number(1, 256)),
    "poll_seconds": ("poll_seconds", values.seconds(0.1, 60)),
    "verify_seconds": ("verify_seconds", values.seconds(0, 600)),
    "stage_timeout_seconds": ("stage_timeout_seconds", values.seconds(1, 86_400)),
    "drain_timeout_seconds": ("drain_timeout_seconds", values.seconds(1, 86_400)),
    "boot_timeout_seconds": ("boot_timeout_seconds", values.seconds(1, 86_400)),
}

# Keys that an older dnm knew, by the kind of their section, with what took their place: read, told,
# and without effect.
_NO_FORECAST = dict.fromkeys(
    ("forecast", "forecast_share", "forecast_except"),
    "there are no forecasts any more; min_nodes or an event keeps nodes ready",
)
_FLOOR = {"batch_idle_floor": "batch_floor keeps nodes in service, max_nodes caps what is lent"}
RETIRED: Mapping[str, Mapping[str, str]] = {
    "settings": {
        **_NO_FORECAST,
        "reversion_idle_at_most_seconds": "a node is idle for as long as pays: pod_minute_worth",
        "headroom_idle_seconds": "a headroom below 1 is a share that is always warm",
        "when_batch_waits": "max_nodes and batch_floor bound what is lent, while jobs wait too",
        "batch_reclaim_minutes": "max_lend_hours ends what is lent, while jobs wait too",
        **_FLOOR,
        "batch_pressure_command": "the converter's list says it, as `waiting_jobs`",
        "status_page": "`dnm report --html` writes a page, `dnm status -o json` has all of now",
        "log_console": "start dnm with --log-console, or with DNM_LOG_CONSOLE=1 in its environment",
        "yunikorn_cm_name": "YuniKorn itself reads no ConfigMap but yunikorn-configs",
        "lead_minutes": "before it is known what lending takes, an event's nodes get half an hour",
        "size_tolerance": "a node may offer a tenth more than its type declares",
        "yunikorn_queue_annotation": "YuniKorn's own, yunikorn.apache.org/queue, is read",
        "default_cpu_request_m": "a pod that names no CPU counts as a core; a LimitRange names it",
        "default_mem_request": "a pod that names no memory counts as 2Gi; a LimitRange names it",
    },
    "namespace": _NO_FORECAST,
    "node_type": _FLOOR,
    "partition": _FLOOR,
    "node_convert": {
        "command_timeout_seconds": "a command of Slurm may take 30 seconds",
        "reach_timeout_seconds": "a machine may take 30 seconds to answer",
        "slurm_access": "with slurmrestd_url it is slurmrestd that is asked, else Slurm's commands",
        "roll_back": "a conversion that fails is undone as far as is safe",
        "slurm_patience_seconds": "a controller of Slurm that is away is waited for two minutes",
        "preempt_drain_timeout": "a preempted node has five minutes to become free",
        **{
            f"{stage}_timeout_seconds": "stage_timeout_seconds is of all stages but drain and boot"
            for stage in ("prepare", "join", "ready", "reset", "health", "return")
        },
    },
}

# Keys whose text is read as another's of [settings].
MOVED: Mapping[str, Mapping[str, str]] = {
    "settings": {"book_days": "event_reservations"},
    "node_convert": {
        "res_name": "slurm_reservation_name",
        "preempt_enabled": "allow_preempt",
        "pass_environment": "pass_environment",
    },
}

PLAIN_SECTIONS = ("settings", "node_convert", "DEFAULT")
NAMED_SECTIONS = ("namespace", "node_type", "partition", "event")
# What a person may take over from slurm.conf, and how it is said here.
ELSEWHERE = {
    "gres": "; write a resource as Kubernetes names it, with its number, e.g. nvidia.com/gpu = 4",
}
RESOURCE = re.compile(
    r"(?!gres/)[a-z0-9.-]+/[A-Za-z0-9._-]+|hugepages-[A-Za-z0-9]+|ephemeral-storage|pods"
)
# What a key means that stands there without a value; None: the same as one that is left out
MAY_BE_EMPTY: Mapping[str, Any] = {
    "pass_environment": (),
    **dict.fromkeys(
        (
            "kubeconfig_path",
            "node_convert_path",
            "batch_list_command",
            "events_dir",
            "calendar",
            "converted_nodes_path",
            "slurm_reservation_name",
            "allowed_queue_prefixes",
            "exclude_nodes",
            "exclude_partitions",
            "exclude_features",
            "exclude_reservations",
            "yunikorn_url",
            "metrics_file",
            "state_group",
        )
    ),
}
NODE_CONVERT_MAY_BE_EMPTY: Mapping[str, Any] = dict.fromkeys(
    (
        "slurmrestd_url",
        "slurmrestd_token_file",
        "mark_reason",
        "order_file",
        "node_search_domain",
        "preempt_user",
        "preempt_account",
        "nodeset_label",
        "state_dir",
        "hooks_dir",
    )
)
