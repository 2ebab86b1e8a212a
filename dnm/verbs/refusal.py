"""What a person can't have, as a value of one kind. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dnm.model.config import Config, NamespacePolicy
from dnm.model.value import Value

V = TypeVar("V")


class Refusal(Value):
    """Why a verb changes nothing. `what`: the node, queue, event or order that it was said of;
    `why`: a sentence that names it; `next_step`: what the person may do, behind `mark`."""

    what: str
    why: str
    next_step: str = ""
    mark: str = ":"

    @property
    def sentence(self) -> str:
        """As the person reads it."""
        return f"{self.why}{self.mark} {self.next_step}" if self.next_step else self.why


def policy_of(config: Config, namespace: str) -> NamespacePolicy | Refusal:
    """Returns what the configuration says of a namespace."""
    policy = config.namespaces.get(namespace)
    if policy is not None:
        return policy
    return Refusal(
        what=namespace,
        why=f"namespace {namespace!r} is not monitored",
        next_step=f"there are {', '.join(sorted(config.namespaces))}",
        mark=";",
    )


def without(mapping: Mapping[str, V], key: str) -> dict[str, V]:
    """Returns the mapping but for that key."""
    return {name: value for name, value in mapping.items() if name != key}
