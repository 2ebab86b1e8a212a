"""Queue paths: full, from root, lower case, joined by dots (`root.services.dev`). The one place
that says what is below what, and who may be edited."""

from __future__ import annotations

from collections.abc import Sequence

ROOT = "root"


def is_under(queue: str, prefix: str) -> bool:
    """Tells whether the queue is the prefix itself or below it: root.dev does not cover
    root.devel."""
    return queue == prefix or queue.startswith(f"{prefix}.")


def may_edit(queue: str, prefixes: Sequence[str]) -> bool:
    """Tells whether dnm may edit the queue, by `allowed_queue_prefixes`: none allow every queue."""
    return not prefixes or any(is_under(queue, prefix) for prefix in prefixes)


def lineage(queue: str) -> list[str]:
    """Returns the queue and all above it, the queue first, without root: root never has limits."""
    parts = queue.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 1, -1)]
