"""Every fault point of a whole lend-and-return story, struck one at a time.

The story is played once and each touch of the outside is written down. Then, for every touch of
every run: the world is put back to the beginning of that run, the run is killed (SIGKILL) before
the touch, then after it, then the touch is made to fail before it took effect, then after; and the
runs that follow must bring the story to its right end (`story.check_end`, all eight invariants).
Where a strike leaves a world that is byte for byte one from which the end was reached before, it is
not played again.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from dnm.errors import DnmError
from tests.proof import story
from tests.proof.harness import Checkpoint, Warm, World, note_figures

WORKERS = 2
# Reads that a run's decisions rest on: where one fails, nothing may be taken away in that run.
_FACTS = ("kube.list_nodes", "kube.list_pods", "kube.read_config_map", "converter.list")


class Run(NamedTuple):
    """One run of the story as it goes without faults."""

    before: Checkpoint
    points: list[str]  # its touches in order
    is_acting: bool


class Strike(NamedTuple):
    minute: int
    number: int  # of the touch in the run, from 1
    point: str
    when: str
    what: str

    @property
    def fault(self) -> str:
        return f"#{self.number}:{self.when}:{self.what}"

    def __str__(self) -> str:
        return f"run {self.minute}, touch {self.number}: {self.point}:{self.when}:{self.what}"


class Book:
    """What all workers have seen so far."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.good: set[bytes] = set()
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def count(self, **more: int) -> None:
        with self.lock:
            self.counts.update(more)


@contextmanager
def workers(directory: Path, count: int = WORKERS) -> Iterator[queue.Queue[World]]:
    """Worlds with the story's site, each with a forking process of its own."""
    free: queue.Queue[World] = queue.Queue()
    made = []
    for number in range(count):
        own = directory / f"worker-{number}"
        own.mkdir()
        world = World(own, Warm(own))
        story.build(world)
        made.append(world)
        free.put(world)
    try:
        yield free
    finally:
        for world in made:
            world.close()
            world.warm.close()


def record(world: World) -> list[Run]:
    """The story without faults, which must end right too."""
    runs = []
    while not story.is_over(world):
        story.play_events(world)
        before = world.checkpoint()
        world.log.unlink(missing_ok=True)
        ended = story.succeeded(world.run(log=str(world.log)))
        runs.append(Run(before, world.log.read_text().split(), "action=" in ended.out))
        story.check_always(world)
        story.check_limits(world)
        world.tick(story.MINUTE)
        assert len(runs) < story.LONGEST
    story.check_end(world)
    return runs


def walk(free: queue.Queue[World], strikes: list[Strike], runs: list[Run]) -> Book:
    """Every strike in a world of its own; what went wrong is in the book."""
    book = Book()

    def one(strike: Strike) -> None:
        world = free.get()
        try:
            before = world.runs
            world.restore(runs[strike.minute].before)
            play(world, strike, book)
            book.count(runs=world.runs - before)
        except (AssertionError, DnmError) as error:
            with book.lock:
                book.failures.append(f"{strike}: {str(error)[-300:]}")
        finally:
            world.warm.ask("kill_all")
            free.put(world)

    with ThreadPoolExecutor(free.qsize()) as pool:
        list(pool.map(one, strikes))
    return book


def play(world: World, strike: Strike, book: Book) -> None:
    ended = world.run(fault=strike.fault)
    world.settle()
    book.count(strikes=1, **{strike.what: 1})
    if strike.what == "kill":
        assert ended.was_killed, f"it was not struck: {ended}"
    else:
        assert ended.code in (0, 1, 2) and ended.code + len(ended.err + ended.out) > 0, ended
        _check_unknown_means_no(world, strike)
    story.check_always(world)
    mark = world.digest()
    with book.lock:
        if mark in book.good:
            return
    world.tick(story.MINUTE)
    story.play_on(world)
    with book.lock:
        book.good.add(mark)
        book.counts["worlds"] += 1


def _check_unknown_means_no(world: World, strike: Strike) -> None:
    """Invariant 4: where a fact could not be read, no converter is called and no node fenced."""
    if strike.point not in _FACTS[:2]:
        return
    assert story.calls(world, "--set") == 0, world.sandbox.conversion.calls
    fenced = [e for e in world.sandbox.requests.writes() if b"unschedulable" in repr(e).encode()]
    assert not fenced


def strikes_of(runs: list[Run], what: str) -> list[Strike]:
    return [
        Strike(minute, number, point, when, what)
        for minute, run in enumerate(runs)
        for number, point in enumerate(run.points, start=1)
        for when in ("before", "after")
    ]


@pytest.mark.parametrize("what", ["kill", "fail"])
def test_the_story_ends_right_whichever_touch_is_struck(tmp_path: Path, what: str) -> None:
    with workers(tmp_path) as free:
        world = free.get()
        runs = record(world)
        free.put(world)
        strikes = strikes_of(runs, what)
        book = walk(free, strikes, runs)
    assert not book.failures, "\n".join(["", *book.failures[:20]])
    assert book.counts["strikes"] == len(strikes)
    note_figures(
        f"fault points, {what}", points=len({strike.point for strike in strikes}),
        touches=sum(len(run.points) for run in runs), **book.counts,
    )  # fmt: skip
