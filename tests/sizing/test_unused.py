"""A warm node earns its keep: what only headroom keeps goes once it went unused, and no other comes
until pods have waited."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.verdict import Reason, Verdict
from dnm.sizing.releases import Candidates, Releases, choose_releases
from dnm.sizing.sizing import size_queues
from tests.scenes import (
    DEV,
    GPU,
    NOW,
    SMALL,
    bound,
    config,
    demand,
    entry,
    lent,
    node,
    node_supply,
    pods,
    policy,
    size,
    tree,
)

HOUR = 3600
FULL = bound(20, SMALL, "k1")  # 80 cores, all of the baseline
ELSEWHERE = [node("k1", 128, 512)]


def release(some: Any = FULL, nodes: int = 1, idle: float = HOUR, **changes: Any) -> Releases:
    """`nodes` lent nodes without pods, while others use the whole baseline elsewhere."""
    unbuffered = changes.pop("unbuffered", frozenset())
    at_most = changes.pop("at_most", 4)
    conf = config(**{"headroom": 0.95, **changes})
    names = [f"a{number:03}" for number in range(1, nodes + 1)]
    limits = tree(dev=size(80 + 128 * nodes, 320 + 256 * nodes))
    there = node_supply(
        [lent(name) for name in names] + ELSEWHERE, {name: entry(name, idle=idle) for name in names}
    )
    there = msgspec.structs.replace(there, unbuffered=unbuffered)
    asked = Candidates(now=NOW, names=tuple(names), at_most=at_most)
    return choose_releases(conf, demand(some, conf, limits), limits, there, asked)


GOES, STAYS, FIRST = Reason.UNUSED, Reason.NEEDED, Reason.IDLE_LONG_ENOUGH
TABLE = {
    "unused for an hour": ({}, GOES, {DEV}),
    "a second short of it": ({"idle": HOUR - 1}, STAYS, set()),
    "a shorter time": ({"idle": 700, "headroom_idle": timedelta(seconds=700)}, GOES, {DEV}),
    "switched off": ({"headroom_idle": timedelta(0), "idle": 99 * HOUR}, STAYS, set()),
    "a pod of the last seconds needs it": (
        {"some": FULL + pods(1, size(128, 16), ago=5)},
        STAYS,
        set(),
    ),
    "min_nodes keeps it": (
        {"namespaces": {"dev": policy("dev", DEV, "a", min_nodes=1)}},
        Reason.KEPT_READY,
        set(),
    ),
    "the queue does without already": ({"unbuffered": frozenset({DEV})}, FIRST, set()),
    "another queue does without": ({"unbuffered": frozenset({GPU})}, GOES, {DEV}),
    "nobody is above the mark": ({"some": ()}, FIRST, set()),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_only_headroom_keeps(case: str) -> None:
    scene, reason, unbuffered = TABLE[case]
    chosen = release(**scene)
    assert chosen.verdicts["a001"].reason is reason
    assert chosen.unbuffered == unbuffered
    goes = reason in (GOES, FIRST)
    assert chosen.go == (("a001",) if goes else ())
    assert chosen.verdicts["a001"].verdict is (Verdict.REVERT if goes else Verdict.KEEP)


def test_no_more_go_than_the_run_allows() -> None:
    assert release(at_most=0).go == ()
    assert release(at_most=0).unbuffered == frozenset()


def test_of_two_the_first_goes_for_nothing_needs_it_and_the_last_for_it_went_unused() -> None:
    chosen = release(nodes=2)
    reasons = sorted(verdict.reason.name for verdict in chosen.verdicts.values())
    assert reasons == ["IDLE_LONG_ENOUGH", "UNUSED"]
    assert len(chosen.go) == 2
    assert len(release(nodes=2, at_most=1).go) == 1


@pytest.mark.parametrize(
    ("some", "wanted", "reason"),
    [
        pytest.param(FULL, 0, Reason.UNBUFFERED, id="full, nobody waits"),
        pytest.param(FULL + pods(1, SMALL, ago=99), 1, Reason.LACKS_QUOTA, id="a pod waits"),
    ],
)
def test_a_queue_that_does_without(some: Any, wanted: int, reason: Reason) -> None:
    """It gets a node for its pods, and none for headroom; the answer agrees with the release."""
    conf, limits = config(headroom=0.95), tree(dev=size(80, 320))
    there = msgspec.structs.replace(node_supply(ELSEWHERE), unbuffered=frozenset({DEV}))
    sizing = size_queues(conf, demand(some, conf, limits), limits, there)
    assert sum(sizing.queues[DEV].wanted.values()) == wanted
    assert sizing.verdicts[DEV].reason is reason
    usual = size_queues(conf, demand(FULL, conf, limits), limits, node_supply(ELSEWHERE))
    assert sum(usual.queues[DEV].wanted.values()) == 1
    assert usual.verdicts[DEV].reason is Reason.NEARLY_FULL
