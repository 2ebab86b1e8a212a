"""Tests of how long dnm keeps an idle node: what it learns from earlier idle times of the queue,
and the highest cost. Tests of the duration of a lend that dnm learns from earlier lends."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.lent import LentNode, Phase
from dnm.model.observed import LendTimes, LentAgain
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.idle_times import (
    FIRST,
    LEAST,
    LONG,
    MOST,
    SHORT,
    USUAL,
    best_time,
    idle_times,
    lend_time,
    note_lends,
    note_returns,
    return_seconds,
    return_time,
)
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_policy, a_request
from tests.plan.pauses import BACK, paid
from tests.plan.worlds import World, serving, wanting

MINUTE = timedelta(minutes=1)
CONFIG = a_config()
NONE = LentAgain()
BEGAN, LATER = NOW - 20 * MINUTE, NOW - 10 * MINUTE
LONG_AGO = NOW - 90 * MINUTE
TIMES = LendTimes(lends=(420, 540), returns=(240,))
SHORT_TIME, LONG_TIME = timedelta(seconds=SHORT * BACK), timedelta(seconds=LONG * BACK)
FIRST_TIME = timedelta(seconds=FIRST * BACK)


def idle(phase: Phase = Phase.SERVING, since: datetime | None = BEGAN, **more: object) -> LentNode:
    return a_lent_node(phase, idle_since=since, **more)


def learned(
    before: LentNode | None, after: LentNode | None, known: LentAgain = NONE, needed: int = 0
) -> LentAgain:
    """Returns what dnm has learned from a change of one node from `before` to `after`, while the
    queue needs `needed` more nodes."""
    nodes = {"a001": before} if before else {}
    was = Registry(nodes=nodes, lent_again={QUEUE: known})
    nodes = {"a001": after} if after else {}
    is_now = msgspec.structs.replace(was, nodes=nodes)
    return note_returns(CONFIG, was, is_now, {QUEUE: needed}, NOW).lent_again.get(QUEUE, NONE)


GONE = LentAgain(gone=(BEGAN, LATER))
FENCED = idle(Phase.RELEASING)
TABLE = {
    "it is idle still": (learned(idle(), idle(), GONE), GONE),
    "a pod lands on it": (
        learned(idle(), idle(since=None), GONE), LentAgain(pauses=(1200,), gone=GONE.gone)),
    "a pod lands on it soon": (learned(idle(since=LATER), idle(since=None)), NONE),
    "it is let go": (learned(idle(), FENCED), LentAgain(gone=(BEGAN,))),
    "it leaves still": (learned(FENCED, FENCED, GONE), GONE),
    "it leaves for another reason": (learned(idle(), idle(Phase.RELEASING, leaves="faulty")), NONE),
    "its fence is lifted": (
        learned(FENCED, idle(since=None), GONE), LentAgain(pauses=(1200,), gone=(LATER,))),
    "a node is needed: the last that went": (
        learned(None, None, GONE, needed=1), LentAgain(gone=(BEGAN,))),
    "more are needed than went": (
        learned(None, None, GONE, needed=5), LentAgain(pauses=(1200,))),
    "it is needed soon after the long time": (
        learned(None, None, LentAgain(gone=(NOW - 50 * MINUTE,)), needed=1), NONE),
    "it is needed too late": (
        learned(None, None, LentAgain(gone=(LONG_AGO,)), needed=1), LentAgain(pauses=(5400,))),
    "it is not needed": (
        learned(None, None, LentAgain(gone=(LONG_AGO,))), LentAgain(gone=(LONG_AGO,))),
    "it was not needed when the next one is let go": (
        learned(idle(), FENCED, LentAgain(gone=(LONG_AGO,))),
        LentAgain(pauses=(5400,), gone=(BEGAN,))),
    "another instance's node": (
        learned(idle(owner="other"), idle(Phase.RELEASING, owner="other")), NONE),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_pause_before_the_next_need_teaches_the_idle_time(case: str) -> None:
    result, expected = TABLE[case]
    assert result == expected


def test_only_the_latest_idle_times_are_kept() -> None:
    known = LentAgain(pauses=(900,) * MOST, gone=(BEGAN,) * MOST)
    assert len(learned(idle(), idle(Phase.RELEASING), known).gone) == MOST
    result = learned(idle(), idle(since=None), known)
    assert result.pauses == (*(900,) * (MOST - 1), 1200)


def test_idle_times_of_an_unmonitored_queue_are_removed() -> None:
    registry = Registry(lent_again={"root.gone": GONE, QUEUE: GONE})
    assert list(note_returns(CONFIG, registry, registry, {}, NOW).lent_again) == [QUEUE]


def test_queue_without_lendable_nodes_learns_from_its_returns() -> None:
    """If a pod waits after a return, the return was too early, even if no node can be lent now."""
    world = wanting().recorded(lent_again={QUEUE: GONE}).set(batch={})
    assert world.plan().registry.lent_again == {QUEUE: LentAgain(gone=(BEGAN,))}


CHOSEN = {
    "none is known": ((), FIRST_TIME),
    "one that paid": ((1500,), LONG_TIME),
    "one that no time pays for": ((9000,), SHORT_TIME),
    "as many that paid": ((1500, 9000), SHORT_TIME),
    "twice as many that paid": ((1500, 9000, 1500), LONG_TIME),
    "conversions take longer now": ((500,), SHORT_TIME),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_best_idle_time_has_the_least_cost(case: str) -> None:
    pauses, expected = CHOSEN[case]
    known = Registry(nodes={"a001": idle()}, lent_again={QUEUE: LentAgain(pauses=pauses)})
    assert idle_times(CONFIG, known, NOW) == {"a001": expected}


@pytest.mark.parametrize(("times", "seconds"), [(LendTimes(), 2 * USUAL), (TIMES, 720)])
def test_return_time_follows_from_recorded_times(times: LendTimes, seconds: float) -> None:
    assert return_seconds(CONFIG, Registry(lend_times={"a": times}), QUEUE) == seconds


def test_a_return_that_was_not_missed_counts_before_it_is_recorded() -> None:
    memory = LentAgain(pauses=(1500,), gone=(LONG_AGO,))
    registry = Registry(nodes={"a001": idle()}, lent_again={QUEUE: memory})
    assert idle_times(CONFIG, registry, LONG_AGO) == {"a001": LONG_TIME}
    assert idle_times(CONFIG, registry, NOW) == {"a001": SHORT_TIME}


def test_idle_time_has_a_minimum() -> None:
    """The minimum holds even if a conversion takes only three seconds."""
    assert best_time((), 6.0) == best_time((10_000,), 6.0) == LEAST


def test_configured_idle_time_overrides_the_learned_time() -> None:
    config = a_config(namespaces={"dev": a_policy(reversion_idle=timedelta(minutes=7))})
    registry = Registry(nodes={"a001": idle()}, lent_again={QUEUE: LentAgain(pauses=(1500,))})
    assert idle_times(config, registry, NOW) == {"a001": 7 * MINUTE}


# --- what the rule promises --------------------------------------------------------------------

PAUSES = st.lists(st.integers(1, 4000) | st.sampled_from((721, 1801, 2701)), max_size=80)


@given(PAUSES)
def test_learned_idle_times_cost_at_most_three_and_a_quarter_optimum(
    pauses: list[int],
) -> None:
    """The optimum knows all idle times. docs/adr/0010-one-idle-rule.md has the proof."""
    best = sum(min(pause, BACK) for pause in pauses)
    assert paid(pauses)[0] <= (1 + LONG) * best


def test_equal_pauses_cost_no_return() -> None:
    pauses = [1500] * 50
    assert paid(pauses)[0] == sum(pauses)


def test_nights_cost_the_longest_idle_time_once() -> None:
    assert paid([50_000] * 50)[0] == FIRST * BACK + BACK + 49 * (SHORT * BACK + BACK)


@pytest.mark.parametrize(
    ("idle_for", "reason"),
    [
        pytest.param(LONG_TIME - MINUTE, Reason.IDLE, id="stays for as long as was learned"),
        pytest.param(LONG_TIME, Reason.IDLE_LONG_ENOUGH, id="goes after it"),
    ],
)
def test_node_stays_for_the_learned_idle_time(idle_for: timedelta, reason: ReasonText) -> None:
    known = LentAgain(pauses=(1500,))
    plan = serving(idle_since=NOW - idle_for).recorded(lent_again={QUEUE: known}).plan()
    (verdict,) = plan.nodes
    assert verdict.reason is reason
    if reason is Reason.IDLE_LONG_ENOUGH:
        noted = msgspec.structs.replace(known, gone=(NOW - idle_for,))
        assert plan.registry.lent_again == {QUEUE: noted}


# --- how long lending takes ----------------------------------------------------------------------

TOOK = {
    "nine": (tuple(range(9)), 1800),
    "ten": ((60,) * 9 + (600,), 600),
    "twenty, of which one is late": ((60,) * 19 + (900,), 60),
    "forty, of which three are late": ((60,) * 37 + (900,) * 3, 900),
    "longer than a conversion may take": ((10**6,) * 10, 2700),
}


@pytest.mark.parametrize(("seconds", "expected"), TOOK.values(), ids=TOOK)
def test_lead_time_is_a_high_quantile_of_learned_times(
    seconds: tuple[int, ...], expected: int
) -> None:
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
    "the time of the request is unknown": (of(), of(a1=a_lent_node()), (), LendTimes()),
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
def test_duration_of_lends_and_returns_is_recorded(
    before: Registry, after: Registry, returned: tuple[str, ...], expected: LendTimes
) -> None:
    assert times_noted(before, after, *returned) == expected


def test_forty_lend_times_are_kept_for_each_configured_type() -> None:
    times = {"a": LendTimes(lends=(1,) * 40), "gone": LendTimes(lends=(1,))}
    before = Registry(lend_times=times, nodes={"a1": JOINS})
    after = Registry(lend_times=times, nodes={"a1": SERVES})
    kept = note_lends(a_config(), before, after, {}, NOW).lend_times
    assert kept == {"a": LendTimes(lends=(*(1,) * 39, 420))}


def test_node_inherits_the_time_of_its_request() -> None:
    world = World().recorded(requests=(a_request(asked_at=ASKED, names=("a001",)),)).node("a001")
    assert world.plan().registry.nodes["a001"].asked_at == ASKED
