"""How queues that sit on lent nodes are told, to machines and to people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dnm.cli.output import shown
from dnm.model.observed import Sitting
from dnm.model.printable import count_of


def sitting_rows(sitting: Mapping[str, Sitting]) -> list[dict[str, Any]]:
    """Returns those of which people are told, by queue."""
    return [
        {"queue": queue, "since": one.since, "percent": one.percent, "nodes": one.nodes}
        for queue, one in sorted(sitting.items())
        if one.is_told
    ]


def sitting_lines(rows: Iterable[Mapping[str, Any]], zone: str = "UTC") -> Iterator[str]:
    """Yields of each queue what it uses, and what would end it."""
    for row in rows:
        yield (
            f"queue {row['queue']} sits: its pods use at most {row['percent']} % of "
            f"{count_of(row['nodes'], 'lent node')} since {shown(row['since'], zone)}: "
            "`max_lend_hours` keeps new pods off nodes that were lent for so long, `dnm return "
            "NODE --evict` asks those there to go"
        )
