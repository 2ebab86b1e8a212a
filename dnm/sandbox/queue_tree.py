"""Limits and use of queues at run time, dynamic queues included; where an application is placed.

After yunikorn-core: pkg/scheduler/objects/queue.go (headroom) and pkg/scheduler/placement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dnm.model.value import Resources
from dnm.queues.schema import PlacementRule
from dnm.queues.validation import amounts_of
from dnm.sandbox.yunikorn_config import YunikornConfig

_FALLBACK = "root.default"


class Submission(NamedTuple):
    """What the first pod of an application says of it."""

    application: str
    namespace: str
    queue: str  # as asked for; empty: none
    user: str


class QueueTree:
    """The configured queues and, while something is in them, dynamic ones."""

    def __init__(self, config: YunikornConfig) -> None:
        self.config = config

    def exists(self, path: str) -> bool:
        return path in self.config.queues

    def ancestors(self, path: str) -> list[str]:
        """The path itself first, root last."""
        steps = path.split(".")
        return [".".join(steps[:length]) for length in range(len(steps), 0, -1)]

    def limit(self, path: str) -> Resources:
        """Its own configured limit; empty: none. Root's is the cluster, and not known here."""
        configured = self.config.queues.get(path)
        if configured is not None:
            return {} if configured.parent is None else configured.max
        return self._from_template(path)

    def _from_template(self, path: str) -> Resources:
        """Dynamic leaves take the child template of the nearest ancestor that has one."""
        for above in self.ancestors(path)[1:]:
            queue = self.config.document.written.get(above)
            if queue is not None and queue.childtemplate.resources.max:
                amounts = amounts_of(queue.childtemplate.resources.max)
                return amounts if any(amounts.values()) else {}
        return {}

    def headroom(
        self, path: str, used: Mapping[str, Mapping[str, int]], root: Resources | None
    ) -> dict[str, int]:
        """What the queue may still use: by type, the tightest of its own and all limits above.

        `root` is the cluster's size; None leaves it out. A type without any limit is not in it.
        """
        room: dict[str, int] = {}
        for place in self.ancestors(path):
            limit = (root or {}) if place == "root" else self.limit(place)
            for resource, amount in limit.items():
                left = amount - used.get(place, {}).get(resource, 0)
                room[resource] = min(left, room.get(resource, left))
        return room

    def tightest(self, path: str) -> dict[str, int]:
        """The limit that holds for one application alone: all limits above, root left out."""
        return self.headroom(path, {}, None)

    # --- placement --------------------------------------------------------------------------

    def place(self, submission: Submission) -> str | None:
        """The leaf for a new application, None where no rule gives one."""
        for rule in self.config.placement_rules:
            path = self._by_rule(rule, submission)
            if path is not None and self._is_usable(path, rule.create):
                return path
        return _FALLBACK if self._is_usable(_FALLBACK, False) else None

    def _is_usable(self, path: str, may_create: bool) -> bool:
        configured = self.config.queues.get(path)
        if configured is not None:
            return configured.is_leaf
        above = self.ancestors(path)[1:]
        nearest = next((place for place in above if place in self.config.queues), "root")
        parent = self.config.queues.get(nearest)
        return may_create and (parent is None or not parent.is_leaf)

    def _by_rule(self, rule: PlacementRule, submission: Submission) -> str | None:
        name = {
            "provided": submission.queue,
            "fixed": rule.value,
            "user": submission.user,
            "tag": submission.namespace if rule.value.lower() == "namespace" else "",
        }.get(rule.name.lower(), "").lower()  # fmt: skip
        if not name:
            return None
        if name == "root" or name.startswith("root."):
            return name if rule.name.lower() in ("provided", "fixed") else None
        if rule.name.lower() != "fixed":
            name = name.replace(".", "_dot_")
        parent: str | None = "root"
        if rule.parent is not None:
            parent = self._by_rule(rule.parent, submission)
        return None if parent is None else f"{parent}.{name}"
