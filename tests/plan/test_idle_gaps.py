"""The idle time is learned from pauses: which are noted, and what follows from them."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.registry import IdleGaps, LentNode, Phase, Registry
from dnm.model.verdict import NodeVerdict, Reason, Verdict
from dnm.plan.learned import (
    FEWEST_GAPS,
    KEPT_GAPS,
    THERE_AND_BACK,
    learned_idle,
    learned_times,
    note_gaps,
)
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_request
from tests.plan.worlds import serving

LEAST = timedelta(minutes=10)
MINUTE = timedelta(minutes=1)
CONFIG = a_config()
MOST = CONFIG.reversion_idle_at_most
NONE = IdleGaps()
BEGAN = NOW - timedelta(minutes=20)


def idle(phase: Phase = Phase.SERVING, since: datetime | None = BEGAN, **more: object) -> LentNode:
    return a_lent_node(phase, idle_since=since, **more)


def noted(
    before: LentNode | None,
    after: LentNode | None,
    reason: Reason = Reason.IDLE,
    gaps: IdleGaps = NONE,
    asked: int = 0,
) -> IdleGaps:
    """The gaps after one look at one node, and `asked` nodes more."""
    was = Registry(nodes={"a001": before} if before else {}, idle_gaps={QUEUE: gaps})
    is_now = msgspec.structs.replace(
        was,
        nodes={"a001": after} if after else {},
        requests=(a_request(count=asked),) if asked else (),
    )
    said = {"a001": NodeVerdict(node="a001", verdict=Verdict.KEEP, reason=reason)}
    return note_gaps(CONFIG, was, is_now, said, NOW).idle_gaps.get(QUEUE, NONE)


LATER = NOW - timedelta(minutes=15)
OPEN = IdleGaps(open=(BEGAN, LATER))
TABLE = {
    "a pod lands on it": (noted(idle(), idle(since=None), Reason.IN_USE), (1200,), ()),
    "a pod lands on one that was idle for a moment": (
        noted(idle(since=NOW - MINUTE), idle(since=None), Reason.IN_USE),
        (),
        (),
    ),
    "just as long as the idle time": (
        noted(idle(since=NOW - LEAST), idle(since=None), Reason.IN_USE),
        (600,),
        (),
    ),
    "it is in use and was": (noted(idle(since=None), idle(since=None), Reason.IN_USE), (), ()),
    "it is idle still": (noted(idle(), idle()), (), ()),
    "nobody can tell what it does": (noted(idle(), idle(since=None), Reason.UNKNOWN), (), ()),
    "it is fenced": (noted(idle(), idle(Phase.RELEASING)), (), (BEGAN,)),
    "it goes on leaving": (
        noted(idle(Phase.RELEASING), idle(Phase.RETURNING), gaps=OPEN),
        (),
        (BEGAN, LATER),
    ),
    "its fence is lifted": (
        noted(idle(Phase.RELEASING), idle(since=None), gaps=OPEN),
        (1200,),
        (LATER,),
    ),
    "a node is asked for: the last that went": (
        noted(None, None, gaps=OPEN, asked=1),
        (900,),
        (BEGAN,),
    ),
    "more are asked for than went": (noted(None, None, gaps=OPEN, asked=5), (1200, 900), ()),
    "nobody has asked for as long as could be waited": (
        noted(None, None, gaps=IdleGaps(open=(NOW - MOST - MINUTE, BEGAN))),
        (86400,),
        (BEGAN,),
    ),
    "another instance's node": (
        noted(idle(owner="other"), idle(since=None, owner="other"), Reason.IN_USE),
        (),
        (),
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_is_noted(case: str) -> None:
    found, recent, still_open = TABLE[case]
    assert (found.recent, found.open) == (recent, still_open)


def test_only_the_last_are_kept() -> None:
    many = IdleGaps(recent=tuple(range(1000, 1000 + KEPT_GAPS)))
    found = noted(idle(), idle(since=None), Reason.IN_USE, many)
    assert found.recent == (*many.recent[1:], 1200)
    away = tuple(BEGAN - timedelta(seconds=number) for number in range(KEPT_GAPS, 0, -1))
    found = noted(idle(), idle(Phase.RELEASING), gaps=IdleGaps(open=away))
    assert found.open == (*away[1:], BEGAN)


def test_a_queue_that_is_not_looked_after_any_more_is_forgotten() -> None:
    registry = Registry(idle_gaps={"root.gone": OPEN, QUEUE: OPEN})
    assert list(note_gaps(CONFIG, registry, registry, {}, NOW).idle_gaps) == [QUEUE]


def test_a_look_at_nothing_new_notes_nothing() -> None:
    registry = Registry(nodes={"a001": idle()}, idle_gaps={QUEUE: OPEN})
    assert note_gaps(CONFIG, registry, registry, {}, NOW) == registry


@pytest.mark.parametrize(
    ("minutes", "learned"),
    [
        pytest.param([12] * (FEWEST_GAPS - 1), 10, id="too few"),
        pytest.param([12] * FEWEST_GAPS, 13, id="just enough, and the run that sees it"),
        pytest.param([600] * 9, 10, id="no wait would have helped"),
        pytest.param([29] * 9, 30, id="waiting costs as much as going"),
        pytest.param([31] * 9, 10, id="waiting costs more"),
        pytest.param([44.5] * 3 + [11] * 20, 12, id="the most of them"),
        pytest.param([25] * 6 + [600], 26, id="a long one among them"),
    ],
)
def test_what_is_learned(minutes: list[float], learned: int) -> None:
    gaps = IdleGaps(recent=tuple(int(one * 60) for one in minutes))
    assert learned_idle(gaps, LEAST, CONFIG) == learned * MINUTE
    off = a_config(reversion_idle_at_most=timedelta(0))
    assert learned_idle(gaps, LEAST, off) == LEAST
    assert learned_times(CONFIG, Registry(idle_gaps={QUEUE: gaps})) == (
        {"dev": learned * MINUTE} if learned > 10 else {}
    )


@given(st.lists(st.integers(600, 90_000), max_size=KEPT_GAPS), st.integers(0, 5000))
def test_it_only_ever_grows_and_never_costs_more(recent: list[int], most: int) -> None:
    config = a_config(reversion_idle_at_most=timedelta(seconds=most))
    learned = learned_idle(IdleGaps(recent=tuple(recent)), LEAST, config)
    assert LEAST <= learned <= max(LEAST, config.reversion_idle_at_most)

    def cost(wait: timedelta) -> timedelta:
        lengths = [timedelta(seconds=one) for one in recent]
        return sum((one if one <= wait else wait + THERE_AND_BACK for one in lengths), timedelta())

    assert cost(learned) <= cost(LEAST)
    for shorter, longer in pairwise(sorted({LEAST, learned})):
        assert cost(longer) < cost(shorter), "it is not extended for nothing"


@pytest.mark.parametrize(
    ("idle_for", "reason"),
    [
        pytest.param(timedelta(minutes=14), Reason.IDLE, id="stays for as long as was learned"),
        pytest.param(timedelta(minutes=15), Reason.IDLE_LONG_ENOUGH, id="goes after it"),
    ],
)
def test_a_node_waits_for_the_time_that_was_learned(idle_for: timedelta, reason: Reason) -> None:
    gaps = IdleGaps(recent=(840,) * FEWEST_GAPS)
    plan = serving(idle_since=NOW - idle_for).recorded(idle_gaps={QUEUE: gaps}).plan()
    (verdict,) = plan.nodes
    assert verdict.reason is reason
    if reason is Reason.IDLE:
        assert "wanted again within 15 min" in verdict.sentence
    else:
        assert plan.registry.idle_gaps[QUEUE].open == (NOW - idle_for,)
