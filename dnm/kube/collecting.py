"""Collects the items of a LIST that is read page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def collecting(
    found: list[T], read: Callable[[memoryview], Iterable[T]], most: int | None = None
) -> Callable[[], Callable[[memoryview], None]]:
    """Returns what `ApiRequests.list_pages` begins with: it forgets what was found and adds what
    `read` makes of each page. That raises ValueError where there are more than `most`."""

    def take(page: memoryview) -> None:
        found.extend(read(page))
        if most is not None and len(found) > most:
            raise ValueError(f"it has more than {most}")

    def restart() -> Callable[[memoryview], None]:
        found.clear()
        return take

    return restart
