"""The checks of node types that only the pods of one namespace may use. Where no quota keeps the
pods of other namespaces from a lent node, a taint of its type must."""

from __future__ import annotations

from collections.abc import Iterator

from dnm.checks.findings import Finding, fine, wrong
from dnm.model.config import Config
from dnm.model.node_type import NodeType, fill_namespace

_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")
_EXAMPLE = "example.org/lent={namespace}"


def check_node_types(config: Config, namespaces: frozenset[str]) -> Iterator[Finding]:
    """Checks that the node types of these namespaces have a taint and a label for the namespace."""
    for name in sorted(namespaces):
        types = [config.node_types[kind] for kind in config.namespaces[name].node_types]
        open_types = [item for item in types if not _excludes_foreign_pods(config, item)]
        unlabelled = [item for item in types if not _is_labelled(config, item)]
        check = f"queue of {name}"
        for item in open_types:
            yield wrong(
                f"node type {item.name} has no taint for its namespace, so that pods of any "
                "namespace would use its lent nodes",
                f"write taints = {_EXAMPLE}:NoSchedule, and give the pods of {name} that "
                "toleration (etc/admission-policy.yaml)",
                check,
            )
        for item in unlabelled:
            yield wrong(
                f"node type {item.name} has no label for its namespace, so that its pods cannot "
                "select its lent nodes",
                f"write labels = {_EXAMPLE}",
                check,
            )
        if not (open_types or unlabelled):
            kinds = ", ".join(item.name for item in types)
            yield fine(
                f"the taint of {kinds} keeps away pods without its toleration, which "
                "etc/admission-policy.yaml refuses to other namespaces",
                check,
            )


def _users(config: Config, node_type: NodeType) -> list[str]:
    policies = config.namespaces.values()
    return [policy.name for policy in policies if node_type.name in policy.node_types]


def _excludes_foreign_pods(config: Config, node_type: NodeType) -> bool:
    """Returns whether a taint of the type keeps pods of other namespaces away. If several
    namespaces use the type, the taint must contain the name of the namespace."""
    is_shared = len(_users(config, node_type)) > 1
    return any(
        not is_shared or _names_namespace(taint.key, taint.value)
        for taint in node_type.taints
        if taint.effect in _KEEPS_PODS_AWAY
    )


def _is_labelled(config: Config, node_type: NodeType) -> bool:
    is_shared = len(_users(config, node_type)) > 1
    pairs = node_type.labels.items()
    return any(not is_shared or _names_namespace(key, value) for key, value in pairs)


def _names_namespace(*texts: str) -> bool:
    return any(fill_namespace(text, "a") != fill_namespace(text, "b") for text in texts)
