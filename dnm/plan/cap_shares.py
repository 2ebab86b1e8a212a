"""Caps that are configured as percentages, converted to numbers of nodes. Pure.

A percentage refers to the nodes that the converter lists, including lent ones: those of the type,
of all types that a namespace may use, or of all types. If the list cannot be read, the cap stays a
percentage, and no further node is lent under it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.model.share import Share, most_of
from dnm.model.value import Unreadable, Value


class NodeCap(Value):
    """A configured cap on lent nodes, and the node types that it counts."""

    section: str  # empty: [settings]
    key: str
    cap: int | Share
    node_types: tuple[str, ...]

    @property
    def line(self) -> str:
        """Returns the cap as it is in the ini file: `[namespace:dev] max_nodes = 25%`."""
        return f"{self.section and f'[{self.section}] '}{self.key} = {self.cap}"

    def total(self, names: Iterable[str], config: Config) -> int:
        """Returns how many of the nodes `names` are of the node types that the cap counts."""
        return sum(config.type_of(name) in self.node_types for name in names)


def list_node_caps(config: Config) -> list[NodeCap]:
    """Returns every configured cap on lent nodes: of all nodes, of each type, of each namespace."""
    total_cap, of_all = config.max_converted_nodes, tuple(config.node_types)
    caps = [NodeCap(section="", key="max_converted_nodes", cap=total_cap, node_types=of_all)]
    kinds: list[tuple[str, int | Share | None, tuple[str, ...]]] = [
        (f"node_type:{node_type.name}", node_type.max_nodes, (node_type.name,))
        for node_type in config.node_types.values()
    ]
    kinds += [
        (f"namespace:{namespace.name}", namespace.max_nodes, namespace.node_types)
        for namespace in config.namespaces.values()
    ]
    return caps + [
        NodeCap(section=section, key="max_nodes", cap=cap, node_types=node_types)
        for section, cap, node_types in kinds
        if cap is not None
    ]


def resolve_shares(config: Config, batch: Mapping[str, object] | Unreadable | None) -> Config:
    """Returns the configuration with caps in percent as numbers of nodes, if `batch` was read."""
    if batch is None or isinstance(batch, Unreadable) or not config.has_shares:
        return config
    return _resolve_shares(config, Counter(config.type_of(name) for name in batch))


def record_batch_nodes(
    config: Config, registry: Registry, batch: Mapping[str, object] | Unreadable | None
) -> Registry:
    """Returns the registry with the number of nodes of each type in Slurm, which caps in percent
    need. It stays unchanged if they could not be read."""
    if batch is None or isinstance(batch, Unreadable):
        return registry
    node_types = map(config.type_of, batch)
    count = Counter(item for item in node_types if item in config.node_types)
    last_run = msgspec.structs.replace(registry.last_run, batch_nodes=dict(count))
    return msgspec.structs.replace(registry, last_run=last_run)


def resolve_recorded_shares(config: Config, registry: Registry) -> Config:
    """Returns the configuration with caps in percent as numbers, computed from the number of
    Slurm's nodes in the registry. Without a record it stays unchanged."""
    count = registry.last_run.batch_nodes
    return _resolve_shares(config, Counter(count)) if count and config.has_shares else config


def _resolve_shares(config: Config, count: Counter[Any]) -> Config:
    replace = msgspec.structs.replace
    types = {
        name: node_type if node_type.max_nodes is None
        else replace(node_type, max_nodes=most_of(node_type.max_nodes, count[name]))
        for name, node_type in config.node_types.items()
    }  # fmt: skip
    namespaces = {
        name: policy if policy.max_nodes is None
        else replace(policy, max_nodes=most_of(
            policy.max_nodes, sum(count[of] for of in policy.node_types)))
        for name, policy in config.namespaces.items()
    }  # fmt: skip
    total = sum(count[name] for name in types)
    most = most_of(config.max_converted_nodes, total)
    return replace(config, max_converted_nodes=most, node_types=types, namespaces=namespaces)
