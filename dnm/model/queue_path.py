"""The paths of queues: full, lower case, joined by dots (`root.services.dev`; without a queue
system a namespace's name). This module alone decides which queue is below which."""

from __future__ import annotations

from collections.abc import Container


def is_under(queue: str, prefix: str) -> bool:
    """Returns whether the queue is `prefix` or below it: root.dev does not contain root.devel."""
    return queue == prefix or queue.startswith(f"{prefix}.")


def lineage(queue: str) -> list[str]:
    """Returns a queue and its ancestors, the queue first, without root, which has no limits."""
    parts = queue.split(".")
    top = 1 if parts[0] == "root" else 0
    return [".".join(parts[:length]) for length in range(len(parts), top, -1)]


def present_lineage(queue: str, existing: Container[str]) -> list[str]:
    """Returns the queue and those of its ancestors that are in `existing`, without root; nothing if
    the queue itself is not in `existing`."""
    return [path for path in lineage(queue) if path in existing] if queue in existing else []
