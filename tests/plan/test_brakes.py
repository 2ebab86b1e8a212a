"""Tests of what stops a lend: caps, too few idle nodes, pause, cooldown, back-off."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.config import NamespacePolicy
from dnm.model.lent import Phase
from dnm.model.node import Mark
from dnm.model.node_type import NodeType
from dnm.model.observed import Backoff
from dnm.model.orders import Pause
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import Registry
from dnm.model.verdict import Objection
from dnm.plan.lendable import conversion_budget, find_brake
from dnm.sizing.caps import count_caps, lent_in
from tests.builders import (
    NOW,
    QUEUE,
    SIZE,
    a_batch_node,
    a_config,
    a_lent_node,
    a_node,
    a_request,
    facts,
)

CAPPED = a_config(
    max_converted_nodes=9,
    node_types={
        "a": NodeType(name="a", size=SIZE, max_nodes=5),
        "b": NodeType(name="b", size=SIZE),
    },
    namespaces={
        "dev": NamespacePolicy(name="dev", queue=QUEUE, node_types=("a", "b"), max_nodes=4),
        "two": NamespacePolicy(name="two", queue=QUEUE, node_types=("a",)),
    },
)
ALL, OF_A, OF_DEV = "max_converted_nodes", "max_nodes of node type a", "max_nodes of namespace dev"
STRANGER = Mark(instance="validation", node_type="a", namespace="dev", queue=QUEUE)


@pytest.mark.parametrize(
    ("nodes", "requests", "seen", "left"),
    [
        pytest.param({}, (), [], (9, 5, 4), id="nothing-lent"),
        pytest.param({"a001": a_lent_node()}, (), [], (8, 4, 3), id="serves"),
        pytest.param(
            {"a001": a_lent_node(Phase.FAILED)}, (), [], (8, 4, 3), id="failed-nodes-count-too"
        ),
        pytest.param(
            {"a001": a_lent_node()}, (), [a_node()], (8, 4, 3), id="recorded-and-marked-is-one"
        ),
        pytest.param({}, (), [a_node()], (8, 4, 3), id="marked-but-not-recorded"),
        pytest.param({}, (), [a_node(mark=STRANGER)], (9, 5, 4), id="another-instance's"),
        pytest.param({}, (), [a_node(mark=None)], (9, 5, 4), id="not-marked"),
        pytest.param({}, (a_request(count=3),), [], (6, 2, 1), id="on-their-way"),
        pytest.param(
            {},
            (a_request(count=3, is_abandoned=True),),
            [],
            (6, 2, 1),
            id="abandoned-may-still-join",
        ),
        pytest.param(
            {"b001": a_lent_node(node_type="b")}, (), [], (8, 5, 3), id="of-a-type-without-a-cap"
        ),
        pytest.param(
            {"a001": a_lent_node(namespace="two")}, (), [], (8, 4, 4), id="namespace-without-a-cap"
        ),
        pytest.param({}, (a_request(count=20),), [], (0, 0, 0), id="never-negative"),
    ],
)
def test_caps_count_lent_marked_and_requested_nodes(
    nodes: dict[str, Any], requests: tuple[Any, ...], seen: list[Any], left: tuple[int, int, int]
) -> None:
    record = Registry(nodes=nodes, requests=requests)
    recorded = msgspec.structs.replace(facts(seen), batch=None)
    budget = conversion_budget(CAPPED, record, recorded).left
    assert budget == dict(zip((ALL, OF_A, OF_DEV), left, strict=True))


def test_caps_count_recorded_nodes_without_facts() -> None:
    registry = Registry(
        nodes={"a001": a_lent_node(), "a002": a_lent_node(namespace="two")},
        requests=(a_request(count=3),),
    )
    cap_counts = count_caps(CAPPED, lent_in(registry))
    assert [(cap.cap, cap.bound.name, cap.lent, cap.max) for cap in cap_counts] == [
        ("all", ALL, 5, 9),
        ("type a", OF_A, 5, 5),
        ("namespace dev", OF_DEV, 4, 4),
    ]


@pytest.mark.parametrize("allow_preempt", [False, True])
def test_available_batch_nodes_are_the_nodes_that_the_converter_accepts(
    allow_preempt: bool,
) -> None:
    batch = [
        a_batch_node("a001"),
        a_batch_node("a002", verdict="PREEMPT"),
        a_batch_node("a003", verdict="SKIP"),
        a_batch_node("a004"),
        a_batch_node("b001"),
        a_batch_node("x001"),
    ]
    record = Registry(nodes={"a004": a_lent_node(Phase.RETURNING)})
    config = msgspec.structs.replace(CAPPED, allow_preempt=allow_preempt)
    left = conversion_budget(config, record, facts([], batch)).left
    assert left["batch nodes of type a"] == 1 + allow_preempt
    assert left["batch nodes of type b"] == 1
    assert [name for name in left if "batch" in name] == [
        "batch nodes of type a",
        "batch nodes of type b",
    ]


@pytest.mark.parametrize(
    ("pause", "paused"),
    [
        pytest.param(None, False, id="none"),
        pytest.param(Pause(since=NOW), True, id="until-resume"),
        pytest.param(Pause(since=NOW, until=NOW + timedelta(seconds=1)), True, id="for-a-time"),
        pytest.param(Pause(since=NOW, until=NOW), False, id="over"),
    ],
)
def test_pause_ends_at_its_time_or_by_resume(pause: Pause | None, paused: bool) -> None:
    assert bool(Registry(pause=pause).paused(NOW)) is paused


def _backoff(seconds: int, **changes: Any) -> dict[str, Backoff]:
    until = NOW + timedelta(seconds=seconds)
    return {"a": Backoff(failures=2, until=until, ask_at_most=1, **changes)}


@pytest.mark.parametrize(
    ("registry", "reason", "words"),
    [
        pytest.param(Registry(), None, "", id="nothing"),
        pytest.param(Registry(pause=Pause(since=NOW, reason="rack 7"), backoffs=_backoff(60)),
            Reason.PAUSED, "rack 7", id="a-pause-precedes"),
        pytest.param(Registry(last_conversion=NOW - timedelta(seconds=29)), Reason.COOLDOWN,
            "until 12:00:01 UTC", id="cooldown"),
        pytest.param(Registry(last_conversion=NOW - timedelta(seconds=30)), None, "",
            id="cooldown-over"),
        pytest.param(Registry(last_conversion=NOW + timedelta(seconds=1)), None, "",
            id="a-wrong-clock"),
        pytest.param(Registry(backoffs=_backoff(1, last_error="puppet failed")), Reason.BACKOFF,
            "2 of type a, until 12:00:01 UTC; puppet failed; `dnm reset a` ends it",
            id="backs-off"),
        pytest.param(Registry(backoffs=_backoff(0)), None, "", id="back-off-over"),
        pytest.param(Registry(backoffs={"b": _backoff(60)["a"]}), None, "", id="another-type's"),
    ],
)  # fmt: skip
def test_conversion_waits_for_pause_cooldown_back_off_and_caps(
    registry: Registry, reason: ReasonText | None, words: str
) -> None:
    wanted = Objection(reason=reason, detail=words) if reason else None
    assert find_brake(CAPPED, registry, "a", NOW) == wanted
