"""Calls to the API server that do not depend on each other, in a bounded time if they fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from dnm.model.errors import KubeError

T = TypeVar("T")


def try_each(
    items: Iterable[tuple[str, T]], call: Callable[[T], object], longest: float
) -> dict[str, str]:
    """Calls `call` with the item of each pair of queue and item. Tries no further item of a queue
    that failed, and after an error no item later than `longest` seconds after the first. Returns
    queue -> why its call failed."""
    failed: dict[str, str] = {}
    give_up = time.monotonic() + longest
    for queue, item in items:
        if queue in failed:
            continue
        if failed and time.monotonic() > give_up:
            failed[queue] = f"it was not tried, because {next(iter(failed.values()))}"
            continue
        try:
            call(item)
        except KubeError as error:
            failed[queue] = str(error)
    return failed
