"""The queues at run time: limits, use, and the leaf queue of an application.

Sources: pkg/scheduler/objects/queue.go (headroom) and pkg/scheduler/placement of yunikorn-core. The
placement rule `provided`, and the default rule without a document, are the only ones implemented.
"""

from __future__ import annotations

from collections.abc import Mapping

from dnm.lab.sandbox.yunikorn_config import ROOT, YunikornConfig

_FALLBACK = "root.default"
_RECOVERY = "root.@recovery@"
_Amounts = Mapping[str, int]


def ancestors(path: str) -> list[str]:
    """Returns the path and the paths of all its ancestors, root last."""
    steps = path.split(".")
    return [".".join(steps[:length]) for length in range(len(steps), 0, -1)]


def headroom(limits: Mapping[str, _Amounts], used: Mapping[str, _Amounts]) -> dict[str, int]:
    """Returns by resource the smallest headroom of these queues, without unlimited resources."""
    free: dict[str, int] = {}
    for place, limit in limits.items():
        for resource, amount in limit.items():
            left = amount - used.get(place, {}).get(resource, 0)
            free[resource] = min(left, free.get(resource, left))
    return free


def fits(request: _Amounts, free: _Amounts) -> bool:
    """Returns whether a request fits into the headroom `free`. Unlimited resources always fit."""
    return all(
        amount <= max(0, free[resource])
        for resource, amount in request.items()
        if resource in free and amount > 0
    )


def add_request(sums: dict[str, dict[str, int]], queue: str, request: _Amounts) -> None:
    """Adds a pod's request to its queue and to all parents."""
    for path in ancestors(queue):
        kept = sums.setdefault(path, {})
        for resource, amount in request.items():
            kept[resource] = kept.get(resource, 0) + amount


class ApplicationRejected(Exception):
    """The error if no queue accepts an application. The message is YuniKorn's reason."""


class QueueTree:
    """The configured queues with their limits. A queue that is not configured has no limits."""

    def __init__(self, config: YunikornConfig) -> None:
        self.config = config

    def limit(self, path: str) -> _Amounts:
        """Returns the queue's own max; empty if it has none, and for root."""
        configured = self.config.queues.get(path)
        return configured.max if configured is not None else {}

    def headroom(
        self, path: str, used: Mapping[str, _Amounts], root: _Amounts | None
    ) -> dict[str, int]:
        """Returns the headroom of a queue. `root` is the size of the cluster; None ignores it."""
        limits = {
            place: (root or {}) if place == ROOT else self.limit(place) for place in ancestors(path)
        }
        return headroom(limits, used)

    def place(
        self, application: str, asked: str, namespace: str, gang: _Amounts, is_bound: bool
    ) -> str:
        """Returns the leaf queue of a new application. Raises ApplicationRejected if there is none,
        or if the limits of the queue and its parents are too small for the gang. An application
        with a bound pod always gets a queue."""
        path = self._place(asked, namespace, is_bound)
        bounds = self.headroom(path, {}, None)
        if any(amount > bounds[name] for name, amount in gang.items() if name in bounds):
            raise ApplicationRejected(
                f"queue {path} cannot fit application {application}: task group request "
                f"{_go_map(gang)} larger than max queue allocation {_go_map(bounds)}"
            )
        return path

    def _place(self, asked: str, namespace: str, is_bound: bool) -> str:
        if self.config.is_built_in:
            return f"{ROOT}.{namespace}"
        path = asked.lower()
        for candidate in (path, f"{ROOT}.{path}"):
            configured = self.config.queues.get(candidate)
            if configured is not None and configured.is_leaf:
                return candidate
        if is_bound:
            return _RECOVERY
        if _FALLBACK in self.config.queues:
            return _FALLBACK
        raise ApplicationRejected("application rejected: no placement rule matched")


def _go_map(amounts: _Amounts) -> str:
    """Returns a map as Go prints it, sorted by its keys."""
    return f"map[{' '.join(f'{name}:{amounts[name]}' for name in sorted(amounts))}]"
