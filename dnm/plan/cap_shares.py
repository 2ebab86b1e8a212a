"""Caps that are percentages, in nodes. Pure.

The rule: a percentage is of the nodes that the batch side lists, lent ones too: of a type those of
the type, of a namespace those of the types that it may be lent, of all those of every type that may
be lent. Where the list is not there the cap stays what it is, which no new conversion passes.
"""

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
    """A cap as it is configured, and the types of the nodes that it is of."""

    section: str  # empty: [settings]
    key: str
    cap: int | Share
    node_types: tuple[str, ...]

    @property
    def line(self) -> str:
        """Returns `[namespace:dev] max_nodes = 25%`."""
        return f"{self.section and f'[{self.section}] '}{self.key} = {self.cap}"

    def total(self, names: Iterable[str], config: Config) -> int:
        """Returns how many of these nodes it is of."""
        return sum(config.type_of(name) in self.node_types for name in names)


def list_node_caps(config: Config) -> list[NodeCap]:
    """Returns every cap that is set: of all nodes, of types, of namespaces."""
    most, of_all = config.max_converted_nodes, tuple(config.node_types)
    found = [NodeCap(section="", key="max_converted_nodes", cap=most, node_types=of_all)]
    kinds: list[tuple[str, int | Share | None, tuple[str, ...]]] = [
        (f"node_type:{node_type.name}", node_type.max_nodes, (node_type.name,))
        for node_type in config.node_types.values()
    ]
    kinds += [
        (f"namespace:{namespace.name}", namespace.max_nodes, namespace.node_types)
        for namespace in config.namespaces.values()
    ]
    return found + [
        NodeCap(section=section, key="max_nodes", cap=cap, node_types=of)
        for section, cap, of in kinds
        if cap is not None
    ]


def in_nodes(config: Config, batch: Mapping[str, object] | Unreadable | None) -> Config:
    """Returns the configuration with every cap as a number; as it is where it is not known what
    nodes the batch side has."""
    if batch is None or isinstance(batch, Unreadable) or not config.has_shares:
        return config
    return _in_nodes(config, Counter(config.type_of(name) for name in batch))


def note_nodes(
    config: Config, registry: Registry, batch: Mapping[str, object] | Unreadable | None
) -> Registry:
    """Returns the record with how many nodes of each type the batch side has; as it was where that
    can't be told now."""
    if batch is None or isinstance(batch, Unreadable):
        return registry
    found = map(config.type_of, batch)
    count = Counter(item for item in found if item in config.node_types)
    last_run = msgspec.structs.replace(registry.last_run, batch_nodes=dict(count))
    return msgspec.structs.replace(registry, last_run=last_run)


def as_last_read(config: Config, registry: Registry) -> Config:
    """Returns the configuration with every cap as the number that it was when the batch side's
    nodes were last read; as it is where they never were."""
    count = registry.last_run.batch_nodes
    return _in_nodes(config, Counter(count)) if count and config.has_shares else config


def _in_nodes(config: Config, count: Counter[Any]) -> Config:
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
