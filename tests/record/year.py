"""Writes a year of history of a busy site within seconds, by dnm's own code.

Twelve nodes are lent on each working day to each of two queues, in a workshop's rhythm. The cap is
reached, a conversion fails now and then, a limit follows, and jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dnm.model.history import SCHEMA, HistoryLine
from dnm.model.reason import Reason
from dnm.model.registry import run_name
from dnm.record.history_file import History

QUEUES = ("root.anvil.services.dev", "root.anvil.services.notebook")
NODES = 12
NODE = {"cpu": 128_000, "memory": 256 * 10**9}


def write_year(registry_path: Path, until: datetime, days: int = 365) -> int:
    """Writes the history of a year up to `now`. Returns the number of lines."""
    history = History(registry_path, timedelta(days=400))
    number = 0
    for day in range(days, 0, -1):
        new = enumerate(_day(until - timedelta(days=day)), start=number + 1)
        lines = [msgspec.structs.replace(line, number=number) for number, line in new]
        history.append(lines, lines[-1].time)
        number = lines[-1].number
    return number


def _line(time: datetime, kind: str, event: str, name: str, **fields: Any) -> HistoryLine:
    return HistoryLine(schema=SCHEMA, number=0, time=time, run=run_name(time), instance="prod",
                       kind=kind, event=event, object=name, **fields)  # fmt: skip


def _decision(queue: str, pending: int, lent: int, wanted: int = 0) -> dict[str, Any]:
    limit = {"cpu": 80_000 + lent * NODE["cpu"], "memory": (320 + lent * 256) * 10**9}
    used = {name: amount * 9 // 10 for name, amount in limit.items()}
    asked = {"cpu": pending * 4000, "memory": pending * 16 * 10**9}
    return {
        "pending_pods": pending, "pending": asked, "used": used, "limit": limit,
        "headroom": {"cpu": 0, "memory": 0}, "wanted": {"a": wanted}, "granted": {"a": wanted},
        "pods": [f"dev/session-{n}" for n in range(min(pending, 10))],
    }  # fmt: skip


def _day(midnight: datetime) -> Iterator[HistoryLine]:
    lines = [*_of_jobs(midnight)]
    for number, queue in enumerate(QUEUES):
        lines += _of_queue(queue, number, midnight + timedelta(hours=8 + number))
    yield from sorted(lines, key=lambda line: line.time)


def _of_jobs(midnight: datetime) -> Iterator[HistoryLine]:
    """Returns a day's lines about jobs: they lack all lent nodes, then four, from ten to three."""
    steps = ((10, "wait", "none", "all", 40), (12, "wait", "all", "4", 4),
             (15, "none", "4", "none", 0))  # fmt: skip
    for hour, event, before, after, nodes in steps:
        yield _line(midnight + timedelta(hours=hour), "jobs", event, "a", node_type="a",
                    before=before, after=after,
                    numbers={"lent": 12, "jobs": nodes, "nodes": nodes})  # fmt: skip


def _of_queue(queue: str, offset: int, morning: datetime) -> Iterator[HistoryLine]:
    """Returns a day's lines of a queue: four waves of lends, and all returns in the evening."""

    def at(minutes: float) -> datetime:
        return morning + timedelta(minutes=minutes)

    of = {"queue": queue, "node_type": "a", "namespace": queue.rpartition(".")[2]}
    lent = 0
    for wave in range(4):
        start, count = wave * 120, NODES // 4
        id_ = f"{at(start):%Y%m%dT%H%M%S}-{offset}"
        numbers = _decision(queue, 96, lent, count)
        yield _line(at(start), "queue", "convert", queue, queue=queue, code="LACKS_QUOTA",
                    reason=Reason.LACKS_QUOTA.text, numbers=numbers)  # fmt: skip
        yield _line(at(start), "request", "requested", id_, **of, code="LACKS_QUOTA",
                    numbers={"count": count, **numbers})  # fmt: skip
        for index in range(count):
            node = f"a{offset * NODES + lent + index + 1:03}"
            yield _line(at(start + 4 + index), "node", "lent", node, **of, after="joining",
                        code="LACKS_QUOTA", numbers={"request": id_})  # fmt: skip
            yield _line(at(start + 9 + index), "node", "joined", node, **of, before="joining",
                        after="serving", numbers={"counted": NODE})  # fmt: skip
        lent += count
        yield _line(at(start + 15), "limit", "changed", queue, queue=queue,
                    before="max vcore 80", after=f"max vcore {80 + lent * 128}")  # fmt: skip
        if wave == 2:
            yield _line(at(start + 20), "queue", "wait", queue, queue=queue, code="CAPPED",
                        reason="a cap is reached: max_converted_nodes",
                        numbers=_decision(queue, 12, lent))  # fmt: skip
        yield _line(at(start + 60), "queue", "keep", queue, queue=queue, code="ENOUGH",
                    reason=Reason.ENOUGH.text, numbers=_decision(queue, 0, lent))  # fmt: skip
    failed = f"{at(500):%Y%m%dT%H%M%S}-{offset}"
    if morning.day % 5 == 0:
        yield _line(at(500), "request", "requested", failed, **of, numbers={"count": 1})
        yield _line(at(520), "request", "given-up", failed, **of, reason="exit 3",
                    numbers={"missing": 1})  # fmt: skip
    for index in range(NODES):
        node, end = f"a{offset * NODES + index + 1:03}", 600 + index
        steps: tuple[tuple[str, str, str, dict[str, int]], ...]
        steps = (("fenced", "serving", "releasing", {"idle_seconds": 660}),
                 ("returning", "releasing", "returning", {}),
                 ("returned", "returning", "", {"lent_seconds": 30_000}))  # fmt: skip
        for minute, (event, before, after, numbers) in enumerate(steps):
            yield _line(at(end + 3 * minute), "node", event, node, **of, before=before,
                        after=after, reason="has been idle long enough and will be returned",
                        numbers=numbers)  # fmt: skip
