"""What a person can't have, as a value of one kind. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from dnm.model.batch import BatchNode
from dnm.model.config import Config, NamespacePolicy
from dnm.model.registry import Registry
from dnm.plan.rule import nodes_kept_out

V = TypeVar("V")


class Refusal(msgspec.Struct, frozen=True):
    """Why a verb changes nothing: a sentence that names what it was said of, and what the person
    may do."""

    sentence: str


def policy_of(config: Config, namespace: str) -> NamespacePolicy | Refusal:
    """Returns what the configuration says of a namespace."""
    policy = config.namespaces.get(namespace)
    if policy is not None:
        return policy
    there = ", ".join(sorted(config.namespaces))
    return Refusal(f"namespace {namespace!r} is not monitored; there are {there}")


def why_kept_out(
    config: Config,
    registry: Registry,
    batch: Mapping[str, BatchNode] | None,
    name: str,
    now: datetime,
) -> Refusal | None:
    """Says that a node is kept out of lending; `batch` None: Slurm was not asked."""
    why = nodes_kept_out(config, registry, batch, now).get(name, "")
    return Refusal(f"{name} is kept out of lending: {why}") if why else None


def without(mapping: Mapping[str, V], key: str) -> dict[str, V]:
    """Returns the mapping but for that key."""
    return {name: value for name, value in mapping.items() if name != key}
