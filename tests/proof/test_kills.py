"""Tests of runs that start at the same instant, and of runs killed during a conversion.

The converter is a real process. The sandbox holds back its second half, so that it runs as long as
the test needs. It also holds back the first answer to one of two runs, so that they cannot run one
after the other."""

from __future__ import annotations

import signal

import pytest

from dnm.model.lent import Phase
from tests.night import by_night, sample_by_day
from tests.processes import Ended
from tests.proof import story
from tests.proof.harness import World, note_figures, wait_for_any

LIST_NODES = "^/api/v1/nodes$"
FINISH = "/sandbox/node-convert/finish"
CALLS = {"k8s": 1, "batch": 2}  # dnm requests two nodes at once, and returns them one by one
DIRECTIONS = list(CALLS)


def until_converter(world: World, direction: str) -> None:
    """Plays the story up to the run that calls the converter to lend or to return."""
    if direction == "k8s":
        return
    while not any(e.phase is Phase.RELEASING for e in world.site.registry.nodes.values()):
        story.play_minute(world)
        assert world.runs < story.LONGEST


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_converter_of_a_killed_run_is_not_called_again(world: World, direction: str) -> None:
    """The converter outlives its killed run and two more runs, which do not call it again."""
    story.build(world, convert_timeout_seconds=600)
    until_converter(world, direction)
    asked = story.calls(world, "--set", direction)
    with world.gate(FINISH) as gate:
        run = world.start()
        gate.await_arrivals(CALLS[direction])
        run.send(signal.SIGKILL)
        assert run.wait().was_killed
        begun = story.calls(world, "--set", direction)
        assert begun > asked
        for _ in range(2):
            world.tick(story.MINUTE)
            assert world.run().code == 0
            assert story.calls(world, "--set", direction) == begun
            story.check_always(world)
            story.check_limits(world)
    world.settle()
    world.tick(story.MINUTE)
    story.play_on(world)


@pytest.mark.parametrize("direction", sample_by_day(2, reversed(DIRECTIONS)))
def test_sigterm_during_a_conversion_ends_the_run_within_its_grace(
    world: World, direction: str
) -> None:
    story.build(world, shutdown_grace_seconds=0)
    until_converter(world, direction)
    with world.gate(FINISH) as gate:
        run = world.start()
        gate.await_arrivals(CALLS[direction])
        run.send(signal.SIGTERM)
        ended = run.wait()
        assert ended.code == 1 and "still at work" in ended.out + ended.err, ended
        begun = story.calls(world, "--set", direction)
        world.tick(story.MINUTE)
        assert world.run().code == 0
        assert story.calls(world, "--set", direction) == begun
    world.settle()
    world.tick(story.MINUTE)
    story.play_on(world)


@pytest.mark.parametrize("minutes", sample_by_day(2, [20, 1]))
def test_nodes_of_an_unrecorded_slow_converter_are_not_lost(world: World, minutes: int) -> None:
    """The run is killed after the start of the converter, before it records the process. The
    converter takes longer than a node may take to join. Its nodes are not lost."""
    story.build(world, convert_timeout_seconds=3600)
    with world.gate(FINISH) as gate:
        assert world.run(fault="converter.start:after:kill").was_killed
        gate.await_arrivals()
        for _ in range(minutes):
            world.tick(story.MINUTE)
            assert world.run().code in (0, 1)
            story.check_always(world)
            assert story.calls(world, "--set", "k8s") == 1
    world.settle()
    world.tick(story.MINUTE)
    story.play_on(world)


def run_pair(world: World) -> Ended:
    """Starts two runs at once, of which one must be refused. Returns the end of the other one."""
    with world.gate(LIST_NODES) as gate:
        pair = world.warm.start(world.job(world.site), world.job(world.site))
        turned_away = wait_for_any(pair)
        gate.await_arrivals()
        working = next(child for child in pair if child is not turned_away)
        assert working.is_running(), "one acted before the other started"
        ended = turned_away.wait()
        assert ended == Ended(75, "", ""), ended
    worked = working.wait()
    assert worked.code == 0 and "Traceback" not in worked.err, worked
    return worked


@pytest.mark.parametrize("pairs", by_night(8, 200))
def test_second_of_two_simultaneous_runs_does_nothing(world: World, pairs: int) -> None:
    """Plays the story repeatedly, each time with two runs at once."""
    story.build(world)
    acted = stories = 0
    for _ in range(pairs):
        if story.is_over(world):
            stories += 1
            story.add_demand(world)
        story.play_events(world)
        acted += bool(run_pair(world).out)
        story.check_always(world)
        story.check_limits(world)
        world.tick(story.MINUTE)
    story.play_on(world)
    assert story.calls(world, "--set", "k8s") == stories + 1
    assert story.calls(world, "--set", "batch") == 2 * (stories + 1)
    note_figures("pairs", pairs=pairs, stories=stories, acting=acted)


# --- two hosts ---------------------------------------------------------------------------------
