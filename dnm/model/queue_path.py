"""Queue paths: full, from root, lower case, joined by dots (`root.services.dev`). This module alone
decides which queue is below which."""

from __future__ import annotations

from collections.abc import Container


def is_under(queue: str, prefix: str) -> bool:
    """Returns whether the queue is the prefix or below it: root.dev does not cover root.devel."""
    return queue == prefix or queue.startswith(f"{prefix}.")


def lineage(queue: str) -> list[str]:
    """Returns the queue and all above it, the queue first, without root: root never has limits."""
    parts = queue.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 1, -1)]


def known_lineage(queue: str, known: Container[str]) -> list[str]:
    """Returns the queue and all above it, without root, as far as they are known; none if the queue
    itself is not."""
    return [path for path in lineage(queue) if path in known] if queue in known else []
