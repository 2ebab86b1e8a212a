"""The refusal of an administrator's command, with checks that several commands share. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from dnm.model.batch import BatchNode
from dnm.model.config import Config, NamespacePolicy
from dnm.model.registry import Registry
from dnm.plan.rule import excluded_nodes

V = TypeVar("V")


class Refusal(msgspec.Struct, frozen=True):
    """The refusal of a command, which then changes nothing. The sentence names the object, the
    reason and the next step."""

    sentence: str


def policy_of(config: Config, namespace: str) -> NamespacePolicy | Refusal:
    """Returns the settings of a namespace, or a refusal if it is not monitored."""
    policy = config.namespaces.get(namespace)
    if policy is not None:
        return policy
    there = ", ".join(sorted(config.namespaces))
    return Refusal(f"namespace {namespace!r} is not monitored; monitored: {there}")


def refuse_excluded(
    config: Config,
    registry: Registry,
    batch: Mapping[str, BatchNode] | None,
    name: str,
    now: datetime,
) -> Refusal | None:
    """Returns a refusal if the node is excluded from lending, or None. `batch` None: not read."""
    why = excluded_nodes(config, registry, batch, now).get(name, "")
    return Refusal(f"{name} is excluded from lending: {why}") if why else None


def without(mapping: Mapping[str, V], key: str) -> dict[str, V]:
    """Returns a copy of the mapping without this key."""
    return {name: value for name, value in mapping.items() if name != key}
