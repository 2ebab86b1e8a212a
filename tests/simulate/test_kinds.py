"""Tests of the replay of demand: recorded counts of equal pods become the fewest possible pods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dnm.demand.kinds import Seen, list_kinds
from dnm.model.history import SCHEMA, HistoryLine
from dnm.simulate.kinds import KindReplay
from tests.builders import NOW, QUEUE

REQUEST = {"cpu": 4000, "memory": 16 * 10**9}
OPEN = 10_000  # minutes: longer than any pod


def demand_line(
    minute: int, pending: int, bound: int, came: int | None = None, gang: int = 0
) -> HistoryLine:
    kind = {"request": REQUEST, "pending": pending, "bound": bound, "came": came, "gang": gang}
    kinds = [kind] if pending or bound else []
    return HistoryLine(
        schema=SCHEMA, number=0, time=NOW + timedelta(minutes=minute), run="", instance="prod",
        kind="demand", event="seen", object=QUEUE, queue=QUEUE, numbers={"kinds": kinds},
    )  # fmt: skip


def replayed(counts: list[tuple[int, int]]) -> tuple[list[tuple[float, float]], int]:
    """Replays (pending, bound) counts. Returns (arrival, duration) of pods, and the unstarted."""
    replay = KindReplay()
    for minute, (pending, bound) in enumerate(counts):
        replay.add(demand_line(minute, pending, bound))
    spans = [
        ((span.came - NOW).total_seconds() / 60, min(span.lasts / 60, OPEN))
        for span in replay.close()
    ]
    return spans, replay.cancelled


TABLE = {
    "one waits, runs and ends": ([(1, 0), (0, 1), (0, 1), (0, 0)], [(0, 2)], 0),
    "one is bound at once": ([(0, 1), (0, 0)], [(0, 1)], 0),
    "the first that began ends first": ([(0, 1), (0, 2), (0, 1), (0, 0)], [(0, 2), (1, 2)], 0),
    "one begins where another ends": ([(1, 1), (0, 1), (0, 0)], [(0, 1), (0, 1)], 0),
    "one goes without having begun": ([(2, 0), (1, 0), (0, 1), (0, 0)], [(0, 1)], 1),
    "all go": ([(75, 0), (0, 0)], [], 75),
    "one runs on": ([(0, 1), (0, 1)], [(0, OPEN)], 0),
    "one waits on": ([(1, 0)], [(0, OPEN)], 0),
    "another comes as one begins": ([(1, 0), (1, 1), (0, 0)], [(0, 1)], 1),
}


@pytest.mark.parametrize("name", TABLE)
def test_fewest_pods_that_explain_the_counts_are_replayed(name: str) -> None:
    counts, spans, cancelled = TABLE[name]
    assert replayed(counts) == (spans, cancelled)


def lasted(lines: Sequence[tuple[int, ...]]) -> list[float]:
    """Replays (pending, bound, arrived) counts. Returns the minutes that each pod ran."""
    replay = KindReplay()
    for minute, (pending, bound, arrived) in enumerate(lines):
        replay.add(demand_line(minute, pending, bound, arrived))
    return sorted(min(span.lasts / 60, OPEN) for span in replay.close())


WITH_ARRIVALS = {
    "one begins where another ends": ([(0, 1, 1), (0, 1, 1), (0, 1, 1), (0, 0, 0)], [1, 1, 1]),
    "one runs on": ([(0, 1, 1), (0, 1, 0), (0, 1, 0), (0, 0, 0)], [3]),
    "one waits while another takes its place": ([(1, 1, 2), (1, 1, 1), (0, 0, 0)], [1, 1]),
    "more pods exist than have arrived": ([(0, 1, 0), (0, 0, 0)], [1]),
}


@pytest.mark.parametrize("name", WITH_ARRIVALS)
def test_recorded_arrivals_identify_the_pods(name: str) -> None:
    lines, expected = WITH_ARRIVALS[name]
    assert lasted(lines) == expected


def test_replayed_pods_arrive_in_the_minute_before_they_are_seen() -> None:
    replay = KindReplay()
    for minute in range(50):
        replay.add(demand_line(minute, minute + 1, 0, 1))
    ages = [(span.came - NOW).total_seconds() % 60 for span in replay.close()[1:]]
    assert len(set(ages)) > 40 and 25 < sum(ages) / len(ages) < 35


def test_gang_is_replayed_with_its_size_and_starts_complete() -> None:
    """There are two gangs of three pods. In the second, one pod starts three minutes later."""
    replay = KindReplay()
    for minute, pending, bound, arrived in (
        (0, 6, 0, 6), (1, 3, 3, 0), (2, 2, 4, 0), (5, 0, 6, 0), (10, 0, 3, 0), (15, 0, 0, 0)
    ):  # fmt: skip
        replay.add(demand_line(minute, pending, bound, arrived, gang=3))
    spans = replay.close()
    assert sorted((span.gang, span.lasts / 60) for span in spans) == [(1, 9)] * 3 + [(2, 10)] * 3


GANGS = {
    "its pods end one by one": (
        [(0, 3, 0, 3, 3), (1, 0, 3, 0, 3), (5, 0, 2, 0, 2), (8, 0, 1, 0, 1)],
        [(1, 4), (1, 7), (1, 8)],
    ),
    "its pods come in two minutes": (
        [(0, 2, 0, 2, 2), (1, 3, 0, 1, 3), (2, 0, 3, 0, 3)], [(1, 7)] * 3
    ),
    "another one comes as a pod ends": (
        [(0, 0, 2, 2, 2), (4, 0, 1, 0, 1), (5, 0, 3, 2, 2), (6, 0, 2, 0, 2)],
        [(1, 4), (1, 6), (2, 4), (2, 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GANGS)
def test_gang_that_shrinks_or_grows_stays_a_single_gang(name: str) -> None:
    """Without an annotation, the number of pods is the gang's size. All have ended in minute 9."""
    lines, expected = GANGS[name]
    replay = KindReplay()
    for minute, pending, bound, came, gang in lines:
        replay.add(demand_line(minute, pending, bound, came, gang))
    replay.add(demand_line(9, 0, 0, 0))
    assert sorted((one.gang, one.lasts / 60) for one in replay.close()) == sorted(expected)
    assert not replay.cancelled


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_replay_keeps_the_recorded_pod_minutes(counts: list[tuple[int, int]]) -> None:
    """However counts are assigned to pods, the sum of their minutes equals the record's."""
    spans, _ = replayed([*counts, (0, 0)])
    assert sum(lasted for _, lasted in spans) == sum(bound for _, bound in counts)


class Lived(NamedTuple):
    """A pod's arrival, and how long it waited and ran, in minutes."""

    came: int
    waited: int
    lasted: int


LIVES = st.builds(Lived, st.integers(1, 5), st.integers(0, 3), st.integers(1, 9))


@given(st.lists(LIVES, max_size=5))
@example([Lived(1, 0, 9), Lived(1, 0, 2), Lived(1, 3, 1), Lived(2, 0, 3)])
def test_creation_sums_identify_the_pods_that_ended(lives: list[Lived]) -> None:
    """The record has a sum of creation times. In this test, each subset of pods has another sum."""
    replay = KindReplay()
    expected: list[tuple[datetime, datetime, int]] = []
    for minute in range(20):
        seen = Seen()
        for number, pair in enumerate(lives):
            ago, first = 2**number, pair.came + pair.waited
            if pair.came <= minute < first + pair.lasted:
                at = int(NOW.timestamp()) + 60 * pair.came - ago
                seen.add(minute >= first, at, 1, minute == pair.came)
        kinds = msgspec.to_builtins(list_kinds([{(tuple(REQUEST.items()), 0): seen}]))
        replay.add(msgspec.structs.replace(demand_line(minute, 0, 0), numbers={"kinds": kinds}))
    for number, item in enumerate(lives):
        arrived = NOW + timedelta(minutes=item.came, seconds=-(2**number))
        began = NOW + timedelta(minutes=item.came + item.waited, seconds=-30)
        expected.append((arrived, began if item.waited else arrived, item.lasted))
    rows = [(span.came, span.began, round(span.lasts / 60)) for span in replay.close()]
    assert sorted(rows) == sorted(expected) and not replay.cancelled


@pytest.mark.parametrize("pods", [50, 500])
def test_pods_seen_by_several_runs_of_a_minute_arrive_once(pods: int) -> None:
    """Each of several runs in a minute reports all arrivals since a minute before it."""
    at, replay = int(NOW.timestamp()), KindReplay()
    for seconds, bound in ((30, 4), (40, 4), (50, pods), (58, pods), (120, 0)):
        seen = Seen()
        for number in range(pods if bound else 0):
            seen.add(number < bound, at, 1, seconds < 60)
        kinds = msgspec.to_builtins(list_kinds([{(tuple(REQUEST.items()), 0): seen}]))
        line = msgspec.structs.replace(demand_line(0, 0, 0), numbers={"kinds": kinds})
        replay.add(msgspec.structs.replace(line, time=NOW + timedelta(seconds=seconds)))
    assert (len(replay.close()), replay.cancelled) == (pods, 0)


def test_pods_with_the_nearest_creation_sum_end_first() -> None:
    """Fifty of a hundred pods end. There are too many subsets to try all, so the sum is near."""
    at, replay = int(NOW.timestamp()) - 100, KindReplay()
    for minute, owner in ((0, range(100)), (1, range(0, 100, 2)), (2, ())):  # odd ones end
        seen = Seen()
        for number in owner:
            seen.add(True, at + number, 1, minute == 0)
        kinds = msgspec.to_builtins(list_kinds([{(tuple(REQUEST.items()), 0): seen}]))
        replay.add(msgspec.structs.replace(demand_line(minute, 0, 0), numbers={"kinds": kinds}))
    short = [span.came.timestamp() - at for span in replay.close() if span.lasts < 60]
    assert (len(short), sum(short)) == (50, sum(range(1, 100, 2)))
