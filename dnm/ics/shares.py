"""What each series of a calendar may take of what all of them have: time to play, and windows.

The rule: what there is, is dealt out evenly among those that still want some. So one that takes
for ever, or gives thousands of windows, takes nothing that another needs, and is named. Pure: who
asks brings the timer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Protocol, TypeVar

import msgspec

from dnm.ics.question import MOST_KEPT, MOST_WORDS, SECONDS_OF_ALL, SECONDS_OF_ONE
from dnm.model.calendar import CalendarEvent

T = TypeVar("T")
_TURNS = (0.25, 1.0)  # the part of the time that is dealt out by the end of each


class TooLong(BaseException):
    """The share is used up; no `except Exception` on the way may hide it."""


class Timer(Protocol):
    """`spent`: seconds that were worked since the program began. `within`: raises TooLong in what
    takes longer."""

    def spent(self) -> float: ...
    def within(self, seconds: float) -> AbstractContextManager[None]: ...


def play_in_turns(plays: Sequence[Callable[[], T]], timer: Timer) -> dict[int, T]:
    """Returns what each play gives, by its number, without those that took more than their share.

    In the first turn all have even shares of a quarter of the time that is left; what one does not
    need is the others'. Those to which that was too little have a second turn, with all of it.
    """
    found: dict[int, T] = {}
    given: dict[int, float] = {}
    begun = timer.spent()
    for part in _TURNS:
        until = begun + part * (SECONDS_OF_ALL - begun)
        waiting = [number for number in range(len(plays)) if number not in found]
        for place, number in enumerate(waiting):
            left = until - timer.spent()
            if left <= 0:
                break
            share = min(left / (len(waiting) - place), SECONDS_OF_ONE)
            if share <= given.get(number, 0.0):
                continue  # it would be too little again
            given[number] = share
            with suppress(TooLong), timer.within(share):
                found[number] = plays[number]()
    return found


def first_of_each(events: Iterable[CalendarEvent]) -> tuple[CalendarEvent, ...]:
    """Returns the first window of each series, then the second of each, and so on, as far as there
    is room for them; the earliest first."""
    by_time = sorted(events, key=lambda one: (one.begins, one.ends, one.name))
    count: Counter[str] = Counter()
    places = []
    for one in by_time:
        places.append(count[one.name])
        count[one.name] += 1
    kept: list[CalendarEvent] = []
    room = MOST_WORDS
    for _, one in sorted(zip(places, by_time, strict=True), key=lambda pair: pair[0]):
        room -= len(msgspec.json.encode(one))
        if room < 0 or len(kept) == MOST_KEPT:
            break
        kept.append(one)
    return tuple(sorted(kept, key=lambda one: (one.begins, one.ends, one.name)))
