"""Processes that start at the same instant: whoever gets the lock works, the other is turned away,
at once, while the first is still at work (the sandbox holds its first answer back until the other
has ended, so that no scheduler of processes can make the two follow each other)."""

from __future__ import annotations

import pytest

from tests.night import by_night
from tests.processes import Ended
from tests.proof import story
from tests.proof.harness import World, note_figures, wait_for_any

LIST_NODES = "^/api/v1/nodes$"


def run_pair(world: World) -> Ended:
    """Two at once; how the one that worked ended."""
    with world.gate(LIST_NODES) as gate:
        pair = world.warm.start(world.job(world.site), world.job(world.site))
        turned_away = wait_for_any(pair)
        gate.await_arrivals()
        working = next(child for child in pair if child is not turned_away)
        assert working.is_running(), "one worked before the other came"
        ended = turned_away.wait()
        assert ended == Ended(75, "", ""), ended
    worked = working.wait()
    assert worked.code == 0 and "Traceback" not in worked.err, worked
    return worked


@pytest.mark.parametrize("pairs", by_night(12, 200))
def test_of_two_runs_that_start_together_one_acts(world: World, pairs: int) -> None:
    """They play the story, over and over."""
    story.build(world)
    acted = stories = 0
    for _ in range(pairs):
        if story.is_over(world):
            stories += 1
            story.add_demand(world)
        story.play_events(world)
        acted += "action=" in run_pair(world).out
        story.check_always(world)
        story.check_limits(world)
        world.tick(story.MINUTE)
    story.play_on(world)
    assert story.calls(world, "--set", "k8s") == stories + 1
    assert story.calls(world, "--set", "batch") == 2 * (stories + 1)
    note_figures("pairs", pairs=pairs, stories=stories, acting=acted)


# --- two hosts ---------------------------------------------------------------------------------
