"""How long an idle node is kept: what earlier pauses of its queue teach, and what that costs at
most; and how long lending takes, as it is learned from what it took."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.lent import LentNode, Phase
from dnm.model.observed import LendTimes, LentAgain
from dnm.model.reason import Reason, Why
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.idle_times import (
    IDLE_TIME,
    MOST_KEPT,
    USUAL,
    idle_times,
    lend_time,
    longest_pause,
    note_lends,
    note_returns,
    return_time,
)
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_policy, a_request
from tests.plan.pauses import BACK, paid
from tests.plan.worlds import World, serving

MINUTE = timedelta(minutes=1)
CONFIG = a_config()
NONE = LentAgain()
BEGAN, LATER = NOW - 20 * MINUTE, NOW - 10 * MINUTE
LONG_AGO = NOW - 90 * MINUTE
TIMES = LendTimes(lends=(420, 540), returns=(240,))


def idle(phase: Phase = Phase.SERVING, since: datetime | None = BEGAN, **more: object) -> LentNode:
    return a_lent_node(phase, idle_since=since, **more)


def learned(
    before: LentNode | None, after: LentNode | None, known: LentAgain = NONE, asked: int = 0
) -> LentAgain:
    """What is known after one look at one node, and `asked` nodes more."""
    nodes = {"a001": before} if before else {}
    was = Registry(nodes=nodes, lent_again={QUEUE: known})
    requests = (a_request(count=asked),) if asked else ()
    nodes = {"a001": after} if after else {}
    is_now = msgspec.structs.replace(was, nodes=nodes, requests=requests)
    return note_returns(CONFIG, was, is_now, NOW).lent_again.get(QUEUE, NONE)


GONE = LentAgain(gone=(BEGAN, LATER))
KEPT = LentAgain(kept=(1000, 900, 2000))
TABLE = {
    "it is idle still": (learned(idle(), idle(), GONE), GONE),
    "a pod lands on it": (learned(idle(), idle(since=None), GONE), GONE),
    "it is let go": (learned(idle(), idle(Phase.RELEASING)), LentAgain(gone=(BEGAN,))),
    "it is let go, and was kept for longer in vain": (
        learned(idle(), idle(Phase.RELEASING), KEPT), LentAgain(kept=(900, 2000), gone=(BEGAN,))),
    "it is let go after a short time": (
        learned(idle(since=NOW - 4 * MINUTE), idle(Phase.RELEASING), KEPT),
        LentAgain(kept=KEPT.kept, gone=(NOW - 4 * MINUTE,))),
    "it leaves for another reason": (
        learned(idle(), idle(Phase.RELEASING, leaves="sick"), KEPT), KEPT),
    "its fence is lifted": (
        learned(idle(Phase.RELEASING), idle(since=None), GONE), LentAgain(gone=(BEGAN,))),
    "a node is asked for: the last that went": (
        learned(None, None, GONE, asked=1), LentAgain(kept=(750, 750), gone=(BEGAN,))),
    "more are asked for than went": (
        learned(None, None, GONE, asked=5), LentAgain(kept=(1500, 750, 1500, 750))),
    "it was asked for too late": (
        learned(None, None, LentAgain(gone=(LONG_AGO,)), asked=1), NONE),
    "another instance's node": (
        learned(idle(owner="other"), idle(Phase.RELEASING, owner="other")), NONE),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_return_and_new_lend_teach_the_idle_time(case: str) -> None:
    lent_again, expected = TABLE[case]
    assert lent_again == expected


def test_only_the_latest_idle_times_are_kept() -> None:
    lent_again = LentAgain(kept=(600,) * MOST_KEPT, gone=(BEGAN,) * MOST_KEPT)
    assert len(learned(idle(), idle(Phase.RELEASING), lent_again).gone) == MOST_KEPT
    assert len(learned(None, None, lent_again, asked=1).kept) == MOST_KEPT


def test_idle_times_of_an_unmonitored_queue_are_removed() -> None:
    registry = Registry(lent_again={"root.gone": GONE, QUEUE: GONE})
    assert list(note_returns(CONFIG, registry, registry, NOW).lent_again) == [QUEUE]


def test_lend_for_an_order_teaches_no_idle_time() -> None:
    was = Registry(lent_again={QUEUE: GONE})
    ordered = msgspec.structs.replace(was, requests=(a_request(order="lend-1"),))
    assert note_returns(CONFIG, was, ordered, NOW).lent_again[QUEUE] == GONE


def test_longest_idle_nodes_get_the_longest_idle_times() -> None:
    since = {"a001": None, "a002": LATER, "a003": BEGAN, "a004": LATER}
    nodes = {name: idle(since=item) for name, item in since.items()}
    times = idle_times(
        CONFIG, Registry(nodes=nodes, lent_again={QUEUE: LentAgain(kept=(900, 60, 1200))})
    )
    assert times == {
        "a003": timedelta(seconds=1200), "a002": timedelta(seconds=900), "a004": IDLE_TIME,
        "a001": IDLE_TIME,
    }  # fmt: skip


@pytest.mark.parametrize(("times", "seconds"), [(LendTimes(), 3 * USUAL), (TIMES, 1.5 * 720)])
def test_longest_useful_pause_follows_from_lend_and_return_times(
    times: LendTimes, seconds: float
) -> None:
    result = longest_pause(Registry(lend_times={"a": times}), "a")
    assert result == timedelta(seconds=seconds)


def test_configured_idle_time_overrides_the_learned_time() -> None:
    config = a_config(namespaces={"dev": a_policy(reversion_idle=timedelta(minutes=7))})
    registry = Registry(nodes={"a001": idle()}, lent_again={QUEUE: KEPT})
    assert idle_times(config, registry) == {"a001": 7 * MINUTE}


# --- what the rule promises --------------------------------------------------------------------

PAUSES = st.lists(st.integers(1, 4000) | st.sampled_from((300, 1700, 1900)), max_size=80)


@given(PAUSES)
def test_learned_idle_times_cost_at_most_four_times_the_optimum(pauses: list[int]) -> None:
    """And at most some returns that taught it: docs/economy.md has the proof."""
    best = sum(min(pause, BACK) for pause in pauses)
    assert paid(pauses)[0] <= 4 * best + 14 * BACK


def test_equal_pauses_cost_a_single_return() -> None:
    pauses = [800] * 50
    assert paid(pauses)[0] <= sum(pauses) + BACK


@pytest.mark.parametrize(
    ("idle_for", "reason"),
    [
        pytest.param(timedelta(minutes=14), Reason.IDLE, id="stays for as long as was learned"),
        pytest.param(timedelta(minutes=15), Reason.IDLE_LONG_ENOUGH, id="goes after it"),
    ],
)
def test_node_stays_for_the_learned_idle_time(idle_for: timedelta, reason: Why) -> None:
    lent_again = LentAgain(kept=(900,))
    plan = serving(idle_since=NOW - idle_for).recorded(lent_again={QUEUE: lent_again}).plan()
    (verdict,) = plan.nodes
    assert verdict.reason is reason
    if reason is Reason.IDLE_LONG_ENOUGH:
        assert plan.registry.lent_again == {QUEUE: LentAgain(gone=(NOW - idle_for,))}


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
