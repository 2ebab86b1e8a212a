"""Which fenced nodes are handed to the converter: what has to be seen first, and how many."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dnm.model.lent import Phase
from dnm.model.orders import Pause
from dnm.model.reason import Reason
from dnm.model.verdict import Verdict
from tests.builders import COUNTED, FENCED, NOW, a_batch_node
from tests.plan.worlds import LONG_AGO, UNREAD, World, fenced, queue_map

AWAY = a_batch_node(in_service=False)


@pytest.mark.parametrize(
    ("world", "reason", "phase", "goes"),
    [
        pytest.param(fenced(), Reason.RETURNING, Phase.RETURNING, True, id="seen-fenced"),
        pytest.param(
            fenced().set(batch=UNREAD), Reason.UNKNOWN, Phase.RELEASING, False, id="slurm-is-mute"
        ),
        pytest.param(
            fenced().set(batch={}), Reason.UNKNOWN, Phase.RELEASING, False, id="slurm-has-no-such"
        ),
        pytest.param(
            fenced().set(batch={"a001": a_batch_node()}),
            Reason.FENCED,
            Phase.RETURNING,
            False,
            id="slurm-has-it",
        ),
        pytest.param(
            fenced().set(maps=(queue_map({"a001": COUNTED}), None)),
            Reason.FENCED,
            Phase.RELEASING,
            False,
            id="its-queue-still-counts-it",
        ),
        pytest.param(
            fenced().recorded(pause=Pause(since=LONG_AGO)),
            Reason.PAUSED,
            Phase.RELEASING,
            False,
            id="paused",
        ),
        pytest.param(
            fenced().configured(max_reversions_per_run=0),
            Reason.BUDGET,
            Phase.RELEASING,
            False,
            id="budget",
        ),
    ],
)
def test_one_fenced_node(world: World, reason: Reason, phase: Phase, goes: bool) -> None:
    # Five minutes fenced: no reason yet to give up a node that Slurm does not know.
    fates = world.fates()
    assert fates.verdicts["a001"].reason is reason, fates.verdicts["a001"].sentence
    assert fates.registry.nodes["a001"].phase is phase
    assert fates.returned == (("a001",) if goes else ())


def test_the_oldest_go_first_within_the_budget() -> None:
    world = World().configured(max_reversions_per_run=2)
    for name, minutes in (("a001", 5), ("a002", 9), ("a003", 7)):
        since = NOW - timedelta(minutes=minutes)
        world.lent(name, Phase.RELEASING, was_used=True, since=since)
        world.node(name, is_cordoned=True, mark=FENCED)
    batch = {name: a_batch_node(name, in_service=False) for name in world.registry.nodes}
    fates = world.set(batch=batch).fates()
    assert fates.returned == ("a002", "a003")
    assert fates.verdicts["a001"].verdict is Verdict.WAIT
    assert fates.verdicts["a001"].detail == "max_conversions_per_run lets 2 go back in a run"


def test_a_try_that_is_repeated_keeps_its_clock_and_its_count() -> None:
    world = World().lent("a001", Phase.RETURNING, attempts=2, retry_after=LONG_AGO, since=LONG_AGO)
    fates = world.set(batch={"a001": AWAY}).fates()
    assert fates.returned == ("a001",)
    entry = fates.registry.nodes["a001"]
    assert (entry.attempts, entry.since) == (2, LONG_AGO)
