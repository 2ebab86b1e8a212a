"""Knows the queues at run time: limits and use, dynamic queues included, and who is placed where.

After yunikorn-core: pkg/scheduler/objects/queue.go (headroom) and pkg/scheduler/placement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from dnm.lab.sandbox.yunikorn_config import ROOT, PlacementRule, YunikornConfig

_QUEUE_NAME = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}")
_FALLBACK = "root.default"
_RECOVERY = "root.@recovery@"
_NO_RULE = "application rejected: no placement rule matched"
_Amounts = Mapping[str, int]


class Submission(NamedTuple):
    """What the first pod of an application says of it."""

    application: str
    queue: str  # as asked for; empty: none
    user: str
    tags: Mapping[str, str]  # namespace, and namespace.parentqueue where its annotation says so
    is_bound: bool = False  # it has a node already, so that its application is never turned away


class ApplicationRejected(Exception):
    """No queue takes the application; the message is YuniKorn's reason."""


class QueueTree:
    """The configured queues and, while something is in them, dynamic ones."""

    def __init__(self, config: YunikornConfig) -> None:
        self.config = config

    def ancestors(self, path: str) -> list[str]:
        """The path itself first, root last."""
        steps = path.split(".")
        return [".".join(steps[:length]) for length in range(len(steps), 0, -1)]

    def limit(self, path: str) -> _Amounts:
        """Its own limit; empty: none. Root's is the cluster, and not known here. A dynamic leaf
        takes the child template of the nearest queue above that has one."""
        configured = self.config.queues.get(path)
        if configured is not None:
            return configured.max
        above = [self.config.queues.get(place) for place in self.ancestors(path)[1:]]
        return next((queue.template_max for queue in above if queue and queue.template_max), {})

    def headroom(
        self, path: str, used: Mapping[str, _Amounts], root: _Amounts | None
    ) -> dict[str, int]:
        """What the queue may still use: by type, the tightest of its own and all limits above.

        `root` is the cluster's size; None leaves it out. A type without any limit is not in it.
        """
        room: dict[str, int] = {}
        for place in self.ancestors(path):
            limit = (root or {}) if place == ROOT else self.limit(place)
            for resource, amount in limit.items():
                left = amount - used.get(place, {}).get(resource, 0)
                room[resource] = min(left, room.get(resource, left))
        return room

    # --- placement --------------------------------------------------------------------------

    def place(self, submission: Submission, gang: _Amounts) -> str:
        """Returns the leaf for a new application; raises ApplicationRejected. A gang must fit, all
        of it at once, the limits of the queue and of those above it."""
        path = self._place(submission)
        bounds = self.headroom(path, {}, None)
        if any(amount > bounds[name] for name, amount in gang.items() if name in bounds):
            raise ApplicationRejected(
                f"queue {path} cannot fit application {submission.application}: task group request "
                f"{_go_map(gang)} larger than max queue allocation {_go_map(bounds)}"
            )
        return path

    def _place(self, submission: Submission) -> str:
        for rule in (*self.config.placement_rules, None):
            path = (
                self._without_rule(submission) if rule is None else self._by_rule(rule, submission)
            )
            if path == _RECOVERY:
                return path
            configured = self.config.queues.get(path)
            is_parent = configured is not None and not configured.is_leaf
            if not path or is_parent:
                continue
            if configured is None and self._nearest_is_leaf(path):
                raise ApplicationRejected(
                    f"failed to create rule based queue {path} for application "
                    f"{submission.application}"
                )
            return path
        raise ApplicationRejected(_NO_RULE)

    def _without_rule(self, submission: Submission) -> str:
        if submission.is_bound and self.config.queues:
            return _RECOVERY
        return _FALLBACK if _FALLBACK in self.config.queues else ""

    def _nearest_is_leaf(self, path: str) -> bool:
        queues = (self.config.queues.get(place) for place in self.ancestors(path))
        return next((queue.is_leaf for queue in queues if queue), True)

    def _by_rule(self, rule: PlacementRule, submission: Submission) -> str:
        """The path in lower case; empty where the rule does not match, or must not create it."""
        name = self._name_given(rule, submission)
        if not name:
            return ""
        is_fixed = rule.name == "fixed"
        is_whole = name.startswith(ROOT if is_fixed else f"{ROOT}.")
        if not is_whole:
            name = name if is_fixed else name.replace(".", "_dot_")
        if not all(_QUEUE_NAME.fullmatch(part) for part in name.split(".")):
            raise ApplicationRejected(f"invalid queue name {name}")
        if not is_whole:
            above = ROOT
            if rule.parent is not None:
                above = self._by_rule(rule.parent, submission)
                if not above:
                    return ""
                configured = self.config.queues.get(above)
                if configured is not None and configured.is_leaf:
                    raise ApplicationRejected(f"parent rule returned a leaf queue: {above}")
            name = f"{above}.{name}"
        path = name.lower()
        return path if rule.create or path in self.config.queues else ""

    def _name_given(self, rule: PlacementRule, submission: Submission) -> str:
        names = {"provided": submission.queue, "fixed": rule.value, "user": submission.user,
                 "tag": submission.tags.get(rule.value, "")}  # fmt: skip
        return names.get(rule.name, "")


def _go_map(amounts: _Amounts) -> str:
    """Prints a map as Go does, sorted by its keys."""
    return f"map[{' '.join(f'{name}:{amounts[name]}' for name in sorted(amounts))}]"
