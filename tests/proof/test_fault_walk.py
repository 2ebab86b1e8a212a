"""Tests of one fault at every fault point of a story in which nodes are lent and returned.

A first play records each fault point. Then, for every fault point of every run, the test restores
the world before that run. It kills the run (SIGKILL) at that point, or makes the call fail before
or after its effect. The runs that follow must reach the right end (`story.check_end`, all eight
invariants). By day it takes each point where it first occurs, in one way, and also kills points
that change something. A world that equals, byte for byte, one that led to the end before is not
played again. Other tests: a run that hangs, the runs after a kill, and runs that are killed again
and again."""

from __future__ import annotations

import os
import select
import signal
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from dnm.model.errors import DnmError
from tests.night import by_night, night
from tests.proof import story
from tests.proof.harness import Checkpoint, World, note_figures

_TRIES = 3
# Reads that decide a run; its later reads only check one node again.
_OF_CHANGES = ("store.", "kube.barrier", "kube.watch", "kube.follow", "kube.read_cluster")
_OF_STATE = ("kube.read_state", "kube.write_state", "kube.read_lease", "kube.write_lease")
_FACTS = ("kube.list_nodes", "kube.list_pods", "kube.read_config_map", "converter.list")

# Steps of writing the registry before and after the rename: invisible from outside.
_UNSEEN = (
    "registry.keep_previous", "registry.rename_previous", "registry.write", "registry.fsync",
    "registry.fsync_directory",
)  # fmt: skip

READS = (
    "config.read", "registry.read", "kube.load", "kube.list", "kube.read", "converter.list",
    "converter.read", "yunikorn.", "kube.barrier", "kube.watch", "kube.follow", "store.read",
)  # fmt: skip


class Run(NamedTuple):
    """A recorded run of the story: the world before it, and the fault points in it."""

    before: Checkpoint
    points: list[str]  # its fault points in order
    is_recovery: bool = False


class Strike(NamedTuple):
    minute: int
    number: int  # of the fault point in the run, from 1
    point: str
    when: str
    effect: str

    @property
    def fault(self) -> str:
        return f"#{self.number}:{self.when}:{self.effect}"

    def __str__(self) -> str:
        return (
            f"run {self.minute}, fault point {self.number}: {self.point}:{self.when}:{self.effect}"
        )


class NotStruck(AssertionError):
    """The run did not reach the fault point, since a slow server made it read in another way."""


class Tally:
    """The results of the faults so far, and digests of worlds that reach the right end."""

    def __init__(self) -> None:
        self.good: set[bytes] = set()
        self.counts: Counter[str] = Counter()


def record(world: World) -> list[Run]:
    """Plays and records the story without faults. Then records also the runs that follow a run
    killed during a lend or a return."""
    runs = []
    while not story.is_over(world):
        runs.append(_record_run(world))
        assert len(runs) < story.LONGEST
    story.check_end(world)
    for run in list(runs):
        if "converter.start" in run.points:
            world.restore(run.before)
            assert world.run(fault="converter.start:after:kill").was_killed
            world.settle()
            world.tick(story.MINUTE)
            runs.append(_record_run(world)._replace(is_recovery=True))
    return runs


def _record_run(world: World) -> Run:
    story.play_events(world)
    before = world.checkpoint()
    world.log.unlink(missing_ok=True)
    story.succeeded(world.run(log=str(world.log)))
    story.check_always(world)
    story.check_limits(world)
    world.tick(story.MINUTE)
    return Run(before, world.log.read_text().split())


def walk(
    world: World, choose: Callable[[list[Run]], list[Strike]], name: str, **settings: int | str
) -> list[Strike]:
    """Plays the story without faults, then once with each chosen fault. Returns the faults."""
    story.build(world, **settings)
    tally, failures, runs = Tally(), [], record(world)
    strikes, before = choose(runs), world.runs
    for strike in strikes:
        try:
            _inject(world, strike, runs[strike.minute], tally)
        except (AssertionError, DnmError) as error:
            world.warm.ask("kill_all")
            failures.append(f"{strike}: {' '.join(str(error).split())[-200:]}")
    assert not failures, "\n".join(["", *failures])
    assert tally.counts["strikes"] == len(strikes)
    note_figures(
        name, points=len({strike.point for strike in strikes}), runs=world.runs - before,
        fault_points=len({strike[:2] for strike in strikes}), **tally.counts,
    )  # fmt: skip
    return strikes


def _inject(world: World, strike: Strike, run: Run, tally: Tally) -> None:
    is_fact = strike.point in _FACTS and run.points.index(strike.point) + 1 == strike.number
    for tries_left in reversed(range(_TRIES)):
        try:
            world.restore(run.before)
            if strike.effect == "hang":
                hang(world, strike, tally)
            else:
                play(world, strike, is_fact, tally)
            return
        except NotStruck:
            if not tries_left:
                raise


def play(world: World, strike: Strike, is_fact: bool, tally: Tally) -> None:
    cordoned = story.cordoned(world)
    world.log.unlink(missing_ok=True)
    ended = world.run(fault=strike.fault, log=str(world.log))
    world.settle()
    passed = world.log.read_text().split()
    if strike.point not in passed[strike.number - 1 : strike.number]:
        raise NotStruck(f"it passed {passed[: strike.number]}: {ended}")
    tally.counts.update(("strikes", strike.effect))
    if strike.effect == "kill":
        assert ended.was_killed, ended
    else:
        assert ended.code in (0, 1, 2), ended
    if strike.effect == "fail" and is_fact:
        # Invariant 4, unknown means no: dnm takes nothing from any tenant.
        assert ended.code == 1 and ended.out + ended.err, ended
        assert story.calls(world, "--set") == 0, world.sandbox.conversion.calls
        assert story.cordoned(world) <= cordoned
    story.check_always(world)
    play_to_the_end(world, tally)


def play_to_the_end(world: World, tally: Tally) -> None:
    """Plays the story to its right end, unless an equal world reached that before."""
    mark = world.digest()
    if mark not in tally.good:
        world.tick(story.MINUTE)
        story.play_on(world, tally.good)
        tally.good.add(mark)
        tally.counts["worlds"] += 1


def hang(world: World, strike: Strike, tally: Tally) -> None:
    """Makes a run hang at the fault point. If it holds the lock, a second run must end at once.
    Then the hung run is killed, as a systemd time-out would do."""
    pipe = world.directory / "hung"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with open(pipe, "r+b", buffering=0) as passed:
        hung = world.start(fault=strike.fault, log=str(pipe))
        lines = 0
        while lines < strike.number:
            assert select.select([passed], [], [], 60)[0], f"it never reached {strike}"
            lines += os.read(passed.fileno(), 65536).count(b"\n")
    holds_lock = strike.point not in ("config.read", "lock.acquire")
    other = world.run()
    assert other.code == (75 if holds_lock else 0), other
    hung.send(signal.SIGKILL)
    assert hung.wait().was_killed
    world.settle()
    tally.counts.update(("strikes", "hang"))
    story.check_always(world)
    play_to_the_end(world, tally)


def strikes_of(runs: list[Run]) -> list[Strike]:
    """Returns for each fault point of each run: a kill there, and a failure before its effect. A
    point that changes something also fails after its effect; each point hangs once.

    A run changes nothing between two points (test_fault_point_coverage.py), so a kill before one
    equals a kill after the previous one. Real kills after a point are for the first of a run and
    the first occurrence of each; after a read, for every fourth run. Of the runs after a kill, only
    new points fail. Reads fail in every fourth run; changes fail before and after their effect in
    turns. The inner steps of a write fail at the first write of each run, the rename at each.
    """
    strikes, met = [], set()
    for minute, run in enumerate(runs):
        for number, point in enumerate(run.points, start=1):
            if point in _UNSEEN and run.points.index(point) + 1 < number:
                continue
            is_new = point not in met
            met.add(point)
            is_read = point.startswith(READS)
            is_refused = point == "kube.follow" and "kube.list_nodes" in run.points[number:][:1]
            ways = []
            if is_new or not (is_read and minute % 4):
                ways.append(("after", "kill"))
            if is_new or number == 1:
                ways.append(("before", "kill"))
            if is_new or not (run.is_recovery or minute % (4 if is_read else 2)):
                ways.append(("before", "fail"))
            if is_new or not (run.is_recovery or is_read or not minute % 2):
                ways.append(("after", "fail"))
            if is_new:
                ways.append(("before", "hang"))
            if is_refused:  # refused before any effect: there is no "after"
                ways = [way for way in ways if way[0] == "before"]
            strikes += [Strike(minute, number, point, when, text) for when, text in ways]
    return strikes


def first_strikes_of(runs: list[Run]) -> list[Strike]:
    """Returns one fault for the first occurrence of each point (kinds of faults take turns), and a
    kill for each point that changes something."""
    first = _met_first(runs)
    ways: dict[str, list[Strike]] = {}
    for pair in strikes_of(runs):
        run = first[pair.point]
        if pair[:2] == (run, runs[run].points.index(pair.point) + 1):
            ways.setdefault(pair.point, []).append(pair)
    return [
        item
        for turn, of_point in enumerate(ways.values())
        for number, item in enumerate(of_point)
        if number == turn % len(of_point)
        or (item[3:] == ("after", "kill") and not item.point.startswith(READS))
    ]


@pytest.mark.parametrize("choose", [first_strikes_of, pytest.param(strikes_of, marks=night)])
def test_story_ends_right_after_a_fault_at_each_call(
    world: World, choose: Callable[[list[Run]], list[Strike]]
) -> None:
    walk(world, choose, "fault walk")


def choose_at(points: tuple[str, ...]) -> Callable[[list[Run]], list[Strike]]:
    """Returns a function that chooses faults for `points` in their first and every eighth run, and
    a kill for the first occurrence of all other points."""

    def is_chosen(pair: Strike, first: dict[str, int]) -> bool:
        is_first = pair.minute == first[pair.point]
        if pair.point.startswith(points):
            return is_first or pair.minute % 8 == 0
        return is_first and pair[3:] == ("after", "kill")

    def choose(runs: list[Run]) -> list[Strike]:
        first = _met_first(runs)
        return [pair for pair in strikes_of(runs) if is_chosen(pair, first)]

    return choose


# By day the machine (test_machine.py) kills in both: it draws how a site reads and stores.


@night
def test_story_ends_right_if_only_changes_are_read(world: World) -> None:
    """The site keeps the objects that it has read between runs (`watch_from_pods = 0`)."""
    settings = {"watch_from_pods": 0, "relist_minutes": 60}
    strikes = walk(world, choose_at(_OF_CHANGES), "fault walk of changes", **settings)
    assert {strike.point for strike in strikes} >= {"store.rename", "kube.watch", "kube.barrier"}


@night
def test_story_ends_right_with_its_registry_in_kubernetes(world: World) -> None:
    name = "fault walk with the registry in Kubernetes"
    strikes = walk(world, choose_at(_OF_STATE), name, registry="kubernetes")
    assert {strike.point for strike in strikes} >= set(_OF_STATE)


def _met_first(runs: list[Run]) -> dict[str, int]:
    """Returns fault point -> the number of the first run that passes it."""
    return {point: n for n, run in reversed(list(enumerate(runs))) for point in run.points}


@pytest.mark.parametrize("most", by_night(20, 150))
def test_repeatedly_killed_runs_end_right(world: World, most: int) -> None:
    """Kills each run one fault point later than the previous one, until a run survives, then starts
    again with the first point. Runs are half a minute apart; after `most` kills, none is killed. So
    many failed conversions lead to the longest back-off, an hour."""
    story.build(world)
    number = kills = 0
    for _ in range(most):
        if story.is_over(world):
            break
        number += 1
        story.play_events(world)
        ended = world.run(fault=f"#{number}:before:kill")
        world.settle()
        story.check_always(world)
        kills += ended.was_killed
        number = number if ended.was_killed else 0
        world.tick(story.MINUTE / 2)
    story.play_on(world, longest=60 + story.LONGEST)
    note_figures("killed again and again", kills=kills, runs=world.runs)
