"""The paths of queues: full, lower case, joined by dots (`root.services.dev`); without a queue
system a namespace's name. Only this module decides which queue is below which."""

from __future__ import annotations

from collections.abc import Container


def is_under(queue: str, prefix: str) -> bool:
    """Returns whether `queue` is `prefix` or below it. root.devel is not below root.dev."""
    return queue == prefix or queue.startswith(f"{prefix}.")


def lineage(queue: str) -> list[str]:
    """Returns the queue, then its parent and so on. `root` is left out, since it has no limits."""
    parts = queue.split(".")
    top = 1 if parts[0] == "root" else 0
    return [".".join(parts[:length]) for length in range(len(parts), top, -1)]


def present_lineage(queue: str, existing: Container[str]) -> list[str]:
    """Returns the queue and its ancestors that are in `existing`, without `root`. The list is empty
    if `existing` does not contain the queue itself."""
    return [path for path in lineage(queue) if path in existing] if queue in existing else []
