"""The time of a calendar's series, dealt out by a timer that stands still but where one works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dnm.run.ics import SECONDS_OF_ALL, SECONDS_OF_ONE, Alarm, TooLong, play_in_turns


class Work(Alarm):
    """Counts what is worked; what needs more than it is given is ended there."""

    def __init__(self) -> None:
        self.done = self.until = 0.0

    def spent(self) -> float:
        return self.done

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self.until = self.done + seconds
        yield

    def series(self, seconds: float) -> Callable[[], float]:
        def play() -> float:
            self.done = min(self.done + seconds, self.until)
            if self.done >= self.until:
                raise TooLong
            return seconds

        return play


FOR_EVER, GOOD = 1e9, 0.01
# what the series need -> those that are played
TABLE: dict[str, tuple[list[float], set[float]]] = {
    "one": ([GOOD], {GOOD}),
    "one that is slow": ([2.9], {2.9}),
    "one that is too slow": ([3.1], set()),
    "none": ([], set()),
    "seven for ever, one good behind them": ([FOR_EVER] * 7 + [GOOD], {GOOD}),
    "seven for ever, one good before them": ([GOOD] + [FOR_EVER] * 7, {GOOD}),
    "a thousand for ever, one good behind them": ([FOR_EVER] * 1000 + [0.005], {0.005}),
    "one that is slow before a thousand good ones": ([2.5] + [0.001] * 1000, {2.5, 0.001}),
    "two that are slow beside one for ever": ([2.0, FOR_EVER, 2.0], {2.0}),
}


@pytest.mark.parametrize(("needs", "played"), TABLE.values(), ids=TABLE)
def test_each_has_its_share_of_the_time(needs: list[float], played: set[float]) -> None:
    work = Work()
    found = play_in_turns([work.series(seconds) for seconds in needs], work)
    assert found == {n: seconds for n, seconds in enumerate(needs) if seconds in played}
    assert work.spent() <= SECONDS_OF_ALL + 1e-6


def test_what_others_need_bounds_all_of_it() -> None:
    """Nobody works longer than all may, or than one may."""
    work = Work()
    assert play_in_turns([work.series(FOR_EVER)], work) == {}
    assert work.spent() <= 2 * SECONDS_OF_ONE
    work.done = SECONDS_OF_ALL
    assert play_in_turns([work.series(GOOD)], work) == {}
