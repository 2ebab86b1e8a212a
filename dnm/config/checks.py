"""What no key can be blamed for alone: names that collide, caps that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dnm.config.sections import problem
from dnm.model.config import Config, NodeType, fill_namespace


def check_prefixes(types: Mapping[str, NodeType], problems: list[str]) -> None:
    """A node's name must tell its type: the prefix and digits, and of one type only."""
    prefixes = {name: node_type.name_prefix or name for name, node_type in types.items()}
    for name, prefix in prefixes.items():
        for other, longer in prefixes.items():
            is_same = longer == prefix and name < other
            if is_same or re.fullmatch(re.escape(prefix) + "[0-9]+", longer):
                problems.append(
                    f"[node_type:{other}] name_prefix = {longer}: a node name such as {longer}001 "
                    f"would also be one of the type {name} (prefix {prefix}); tell them apart"
                )


def check_together(config: Config, queue_map: Path, problems: list[str]) -> None:
    """Adds a problem for each contradiction; `queue_map` is the file of the queue map."""
    _check_caps(config, problems)
    if config.converted_nodes_path in (config.path, queue_map, config.kubeconfig_path):
        why = "is a file that dnm only reads; name one of its own"
        path = str(config.converted_nodes_path)
        problems.append(problem("settings", "converted_nodes_path", path, why))
    _check_label_lengths(config, problems)


def _check_caps(config: Config, problems: list[str]) -> None:
    for policy in config.namespaces.values():
        if policy.max_nodes is not None and policy.min_nodes > policy.max_nodes:
            why = f"is above max_nodes = {policy.max_nodes}; lower it or raise that"
            section = f"namespace:{policy.name}"
            problems.append(problem(section, "min_nodes", str(policy.min_nodes), why))
    least = sum(policy.min_nodes for policy in config.namespaces.values())
    if least > config.max_converted_nodes:
        why = f"is below the sum of all min_nodes, {least}; raise it or lower those"
        most = str(config.max_converted_nodes)
        problems.append(problem("settings", "max_converted_nodes", most, why))


def _check_label_lengths(config: Config, problems: list[str]) -> None:
    """The namespace makes a label longer: 63 characters is Kubernetes' limit."""
    longest = max(config.namespaces, key=len, default="")
    for node_type in config.node_types.values():
        texts = [*node_type.labels.items(), *((t.key, t.value) for t in node_type.taints)]
        for text in (fill_namespace(part, longest) for pair in texts for part in pair):
            if len(text.rpartition("/")[2]) > 63:
                problems.append(
                    f"[node_type:{node_type.name}] labels or taints: {text} is longer "
                    "than 63 characters; shorten it"
                )
