"""Tests that the record of demand has a line for each change of a queue's pods, and no others."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from dnm.model.history import NODES, HistoryLine, NodeRoom, PodKind
from dnm.record.demand_lines import DEMAND, LOOK_BACK, list_demand
from dnm.record.history_file import History, read_history, read_tail
from dnm.record.transitions import Cause
from tests.builders import NOW, QUEUE

CAUSE = Cause(now=NOW, run="r", instance="prod")
REQUEST = {"cpu": 4000, "memory": 16 * 10**9}
TWO = (PodKind(request=REQUEST, pending=2, bound=0),)
ARRIVED = (PodKind(request=REQUEST, pending=2, bound=0, came=1),)
FREE = (NodeRoom(free={"cpu": 8000}, count=2),)
ONE = (PodKind(request=REQUEST, pending=1, bound=1),)


@pytest.mark.parametrize(
    ("before", "now", "has_line"),
    [
        pytest.param(None, (), False, id="a queue that was never used"),
        pytest.param(None, TWO, True, id="the first pods"),
        pytest.param(TWO, TWO, False, id="the same pods"),
        pytest.param(TWO, ONE, True, id="one has begun"),
        pytest.param(TWO, (), True, id="all have ended"),
        pytest.param((), (), False, id="none still"),
        pytest.param(TWO, ARRIVED, True, id="one arrived as another ended"),
        pytest.param(ARRIVED, TWO, False, id="the arrivals are still present"),
    ],
)
def test_demand_history_has_a_line_for_each_change(
    before: tuple[PodKind, ...] | None, now: tuple[PodKind, ...], has_line: bool, tmp_path: Path
) -> None:
    history = History(tmp_path / "registry.json", timedelta(days=9), name=DEMAND)
    if before is not None:
        history.append(list_demand({QUEUE: before}, (), CAUSE) or [_line(before)], NOW)
    lines = list_demand({QUEUE: now}, read_tail(history, LOOK_BACK), CAUSE)
    assert bool(lines) is has_line
    for line in lines:
        assert (line.kind, line.object, line.queue) == (DEMAND, QUEUE, QUEUE)
        assert line.numbers == {"kinds": msgspec.to_builtins(now)}


def _line(kinds: tuple[PodKind, ...]) -> HistoryLine:
    return CAUSE.line(DEMAND, "seen", QUEUE, queue=QUEUE, numbers={"kinds": list(kinds)})


def test_unread_queue_gets_no_demand_line() -> None:
    assert list_demand({}, [_line(TWO)], CAUSE) == []


@pytest.mark.parametrize(
    ("before", "queues", "has_line"),
    [
        pytest.param((), TWO, True, id="the first time"),
        pytest.param(FREE, TWO, False, id="as they were"),
        pytest.param((NodeRoom(free={"cpu": 1}, count=2),), TWO, True, id="another free capacity"),
        pytest.param((), (), False, id="without other lines"),
    ],
)
def test_permanent_nodes_are_recorded_when_their_free_capacity_changed(
    before: tuple[NodeRoom, ...], queues: tuple[PodKind, ...], has_line: bool
) -> None:
    last = [CAUSE.line(DEMAND, "seen", NODES, numbers={"nodes": msgspec.to_builtins(before)})]
    lines = list_demand({QUEUE: queues}, last if before else [], CAUSE, FREE)
    assert [line.object for line in lines] == [NODES] * has_line + [QUEUE] * bool(queues)


def test_demand_is_compared_with_its_last_line(tmp_path: Path) -> None:
    history = History(tmp_path / "registry.json", timedelta(days=9), name=DEMAND)
    for kinds in (TWO, ONE, TWO):
        history.append(list_demand({QUEUE: kinds}, read_tail(history, LOOK_BACK), CAUSE), NOW)
    # The third equals the first, which dnm recognizes by its bytes: nothing is written twice.
    assert len(list(read_history(history))) == 2


def test_demand_is_stored_beside_the_history(tmp_path: Path) -> None:
    demand = History(tmp_path / "registry.json", timedelta(days=9), name=DEMAND)
    demand.append([_line(TWO)], NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["demand.jsonl"]
    assert list(read_history(History(tmp_path / "registry.json", timedelta(days=9)))) == []


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    history = History(tmp_path / "registry.json", timedelta(days=9), name=DEMAND)
    lines = [_line((PodKind(request=REQUEST, pending=n, bound=0),)) for n in range(50)]
    history.append(lines, NOW)
    seen = read_tail(history, 1000)
    assert 1 < len(seen) < 8
    assert seen[-1].numbers["kinds"][0]["pending"] == 49
    assert read_tail(History(tmp_path / "none" / "registry.json", timedelta(days=9)), 1000) == []
