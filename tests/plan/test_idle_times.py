"""How long an idle node is kept: which pauses are noted, and what follows from them and from what
going and coming back costs; and how long lending takes, as it is learned from what it took."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.lent import LentNode, Phase
from dnm.model.observed import IdleGaps, LendTimes
from dnm.model.reason import Reason, Why
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.idle_times import (
    FEWEST_GAPS,
    KEPT_GAPS,
    USUAL,
    best_wait,
    cost_of,
    cost_of_return,
    idle_times,
    lend_time,
    note_gaps,
    note_lends,
    return_time,
)
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_policy, a_request
from tests.plan.worlds import World, serving

MINUTE = timedelta(minutes=1)
CONFIG = a_config(pod_minute_worth=0.0)
BACK = 2 * timedelta(seconds=USUAL)  # what it costs where nothing is measured yet
LEAST, MOST = BACK / 4, 2 * BACK
NONE, UNTIMED = IdleGaps(), LendTimes()
BEGAN = NOW - timedelta(minutes=20)
TIMES = LendTimes(lends=(420, 540), returns=(240,))


def idle(phase: Phase = Phase.SERVING, since: datetime | None = BEGAN, **more: object) -> LentNode:
    return a_lent_node(phase, idle_since=since, **more)


def noted(
    before: LentNode | None,
    after: LentNode | None,
    reason: Why = Reason.IDLE,
    gaps: IdleGaps = NONE,
    asked: int = 0,
    took: LendTimes = UNTIMED,
) -> IdleGaps:
    """The gaps after one look at one node, and `asked` nodes more."""
    nodes = {"a001": before} if before else {}
    was = Registry(nodes=nodes, idle_gaps={QUEUE: gaps}, lend_times={"a": took})
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
        noted(idle(since=NOW - MINUTE), idle(since=None), Reason.IN_USE), (), ()),
    "just as long as the idle time": (
        noted(idle(since=NOW - LEAST), idle(since=None), Reason.IN_USE), (300,), ()),
    "a quarter of what going and coming took": (
        noted(idle(since=NOW - 3 * MINUTE), idle(since=None), Reason.IN_USE, took=TIMES),
        (180,), ()),
    "it is in use and was": (noted(idle(since=None), idle(since=None), Reason.IN_USE), (), ()),
    "it is idle still": (noted(idle(), idle()), (), ()),
    "nobody can tell what it does": (noted(idle(), idle(since=None), Reason.UNKNOWN), (), ()),
    "it is fenced": (noted(idle(), idle(Phase.RELEASING)), (), (BEGAN,)),
    "it goes on leaving": (noted(idle(Phase.RELEASING), idle(Phase.RETURNING), gaps=OPEN), (),
        (BEGAN, LATER)),
    "its fence is lifted": (noted(idle(Phase.RELEASING), idle(since=None), gaps=OPEN), (1200,),
        (LATER,)),
    "a node is asked for: the last that went": (noted(None, None, gaps=OPEN, asked=1), (900,),
        (BEGAN,)),
    "more are asked for than went": (noted(None, None, gaps=OPEN, asked=5), (1200, 900), ()),
    "nobody has asked for as long as could be waited": (
        noted(None, None, gaps=IdleGaps(open=(NOW - MOST - MINUTE, BEGAN))), (86400,), (BEGAN,)),
    "another instance's node": (
        noted(idle(owner="other"), idle(since=None, owner="other"), Reason.IN_USE), (), ()),
}  # fmt: skip


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
    ("minutes", "kept"),
    [
        pytest.param([12] * (FEWEST_GAPS - 1), 20, id="too few: what a return costs"),
        pytest.param([12] * FEWEST_GAPS, 13, id="just enough, and the run that sees it"),
        pytest.param([600] * 9, 5, id="none could have been waited for: a quarter of it"),
        pytest.param([600] * 8 + [6], 10, id="one could: half of it"),
        pytest.param([29] * 9, 30, id="waiting costs less than going"),
        pytest.param([31] * 9, 10, id="waiting costs more"),
        pytest.param([44.5] * 3 + [11] * 20, 12, id="the most of them"),
        pytest.param([25] * 6 + [600], 26, id="a long one among them"),
    ],
)
def test_how_long_an_idle_node_is_kept(minutes: list[float], kept: int) -> None:
    """Where giving it back and fetching it again costs twenty minutes."""
    gaps = IdleGaps(recent=tuple(int(one * 60) for one in minutes))
    assert best_wait(gaps.recent, BACK.total_seconds(), 60) == kept * 60
    assert idle_times(CONFIG, Registry(idle_gaps={QUEUE: gaps})) == {"dev": kept * MINUTE}


WORTH = {
    "nothing is known": ({}, Registry(), 2 * USUAL + 0.1 * USUAL),
    "what lending and returning took": ({}, Registry(lend_times={"a": TIMES}), 768),
    "of another type": ({}, Registry(lend_times={"x": TIMES}), 2 * USUAL + 0.1 * USUAL),
    "with the pods that wait for a node": (
        {}, Registry(lend_times={"a": TIMES}, idle_gaps={QUEUE: IdleGaps(pods=(10, 20))}), 1440,
    ),
    "a price of its own": (
        {"namespaces": {"dev": a_policy(pod_minute_worth=1.0)}},
        Registry(lend_times={"a": TIMES}), 1200,
    ),
    "pods that are worth nothing": (
        {"pod_minute_worth": 0.0}, Registry(lend_times={"a": TIMES}), 720,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WORTH)
def test_what_it_costs_to_give_a_node_back(case: str) -> None:
    changes, registry, seconds = WORTH[case]
    config = a_config(**changes)
    assert cost_of_return(config, registry, config.namespaces["dev"]) == pytest.approx(seconds)


def test_a_time_that_a_site_has_set_stands() -> None:
    config = a_config(namespaces={"dev": a_policy(reversion_idle=timedelta(minutes=7))})
    gaps = IdleGaps(recent=(840,) * FEWEST_GAPS)
    assert idle_times(config, Registry(idle_gaps={QUEUE: gaps})) == {"dev": 7 * MINUTE}


@pytest.mark.parametrize(
    ("requested", "pods"), [(0, ()), (2, (12,))], ids=["nothing is asked for", "nodes are"]
)
def test_how_many_pods_wait_for_a_node_is_noted_when_one_is_asked_for(
    requested: int, pods: tuple[int, ...]
) -> None:
    was = Registry()
    asked = (a_request(count=requested),) if requested else ()
    after = note_gaps(
        CONFIG, was, msgspec.structs.replace(was, requests=asked), {}, NOW, {QUEUE: 12.4}
    )
    assert after.idle_gaps.get(QUEUE, NONE).pods == pods


# --- what the rule promises --------------------------------------------------------------------

GAPS = st.lists(st.integers(1, 20_000), min_size=1, max_size=120)


def paid(gaps: list[int], back: float, slack: int, learns: bool = True) -> float:
    """What the rule has cost, which knows the gaps before each one and no other."""
    known: list[float] = []
    total = 0.0
    for gap in gaps:
        total += cost_of([gap], best_wait(known[-KEPT_GAPS:], back, slack), back)
        known += [gap] if learns and gap >= back / 4 else []
    return total


@given(GAPS, st.integers(60, 7200), st.sampled_from((0, 60, 600)))
def test_it_costs_at_most_three_times_the_best_fixed_time_in_hindsight(
    gaps: list[int], back: int, slack: int
) -> None:
    """`slack`: check_interval_seconds, as a run has it."""
    best = min(cost_of(gaps, wait, back) for wait in (0, *gaps))
    assert paid(gaps, back, slack) <= 3 * best
    assert paid(gaps, back, slack, learns=False) <= 2 * best


@given(st.lists(st.integers(1, 20_000), max_size=KEPT_GAPS), st.integers(60, 7200))
def test_it_stays_between_half_and_twice_of_what_a_return_costs(gaps: list[int], back: int) -> None:
    wait = best_wait(gaps, back)
    if len(gaps) >= FEWEST_GAPS and min(gaps) >= 2 * back:
        assert wait == back / 4  # none of them could have been waited for
        return
    assert back / 2 <= wait <= 2 * back
    if len(gaps) >= FEWEST_GAPS:
        steps = [back / 2 + step * back / 20 for step in range(31)]
        assert cost_of(gaps, wait, back) <= min(cost_of(gaps, one, back) for one in steps)


@pytest.mark.parametrize(
    ("idle_for", "reason"),
    [
        pytest.param(timedelta(minutes=14), Reason.IDLE, id="stays for as long as was learned"),
        pytest.param(timedelta(minutes=15), Reason.IDLE_LONG_ENOUGH, id="goes after it"),
    ],
)
def test_a_node_waits_for_the_time_that_was_learned(idle_for: timedelta, reason: Why) -> None:
    gaps = IdleGaps(recent=(840,) * FEWEST_GAPS)
    plan = serving(idle_since=NOW - idle_for).recorded(idle_gaps={QUEUE: gaps}).plan()
    (verdict,) = plan.nodes
    assert verdict.reason is reason
    if reason is Reason.IDLE_LONG_ENOUGH:
        assert plan.registry.idle_gaps[QUEUE].open == (NOW - idle_for,)


# --- how long lending takes ----------------------------------------------------------------------

TOOK = {
    "nine": (tuple(range(9)), 1800),
    "ten": ((60,) * 9 + (600,), 600),
    "twenty, of which one is late": ((60,) * 19 + (900,), 60),
    "forty, of which three are late": ((60,) * 37 + (900,) * 3, 900),
    "longer than a conversion may take": ((10**6,) * 10, 2700),
}


@pytest.mark.parametrize(("seconds", "expected"), TOOK.values(), ids=TOOK)
def test_the_time_is_one_that_few_take_longer_than(seconds: tuple[int, ...], expected: int) -> None:
    config = a_config()
    lends = Registry(lend_times={"a": LendTimes(lends=seconds)})
    returns = Registry(lend_times={"a": LendTimes(returns=seconds)})
    assert lend_time(config, lends, "a") == timedelta(seconds=expected)
    assert return_time(config, returns, "a") == timedelta(seconds=expected)
    assert lend_time(config, returns, "a") == timedelta(minutes=30)


def times_noted(before: Registry, after: Registry, *returned: str) -> LendTimes:
    verdicts = {
        name: NodeVerdict(node=name, verdict=Verdict.REVERT, reason=Reason.RETURNED)
        for name in returned
    }
    return note_lends(a_config(), before, after, verdicts, NOW).lend_times.get("a", LendTimes())


ASKED = NOW - timedelta(minutes=7)
SERVES = a_lent_node(asked_at=ASKED)
JOINS = a_lent_node(Phase.JOINING, asked_at=ASKED)
GOES = a_lent_node(Phase.RETURNING)


def of(**nodes: object) -> Registry:
    return Registry(nodes=nodes)  # type: ignore[arg-type]


NOTED = {
    "it joined": (of(a1=JOINS), of(a1=SERVES), (), LendTimes(lends=(420,))),
    "at once": (of(), of(a1=SERVES), (), LendTimes(lends=(420,))),
    "it serves on": (of(a1=SERVES), of(a1=SERVES), (), LendTimes()),
    "it joins": (of(), of(a1=JOINS), (), LendTimes()),
    "nobody knows when it was asked for": (of(), of(a1=a_lent_node()), (), LendTimes()),
    "its fence was lifted": (
        of(a1=a_lent_node(Phase.RELEASING, asked_at=ASKED)), of(a1=SERVES), (), LendTimes(),
    ),
    "it is back": (of(a1=GOES), of(), ("a1",), LendTimes(returns=(300,))),
    "it is forgotten": (of(a1=GOES), of(), (), LendTimes()),
    "clocks went back": (
        of(), of(a1=a_lent_node(asked_at=NOW + timedelta(hours=1))), (), LendTimes(lends=(0,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "returned", "expected"), NOTED.values(), ids=NOTED)
def test_what_it_took_is_noted(
    before: Registry, after: Registry, returned: tuple[str, ...], expected: LendTimes
) -> None:
    assert times_noted(before, after, *returned) == expected


def test_forty_are_kept_of_types_that_there_are() -> None:
    times = {"a": LendTimes(lends=(1,) * 40), "gone": LendTimes(lends=(1,))}
    before = Registry(lend_times=times, nodes={"a1": JOINS})
    after = Registry(lend_times=times, nodes={"a1": SERVES})
    kept = note_lends(a_config(), before, after, {}, NOW).lend_times
    assert kept == {"a": LendTimes(lends=(*(1,) * 39, 420))}


def test_a_request_knows_when_it_was_written_and_so_do_its_nodes() -> None:
    world = World().recorded(requests=(a_request(asked_at=ASKED, names=("a001",)),)).node("a001")
    assert world.plan().registry.nodes["a001"].asked_at == ASKED
