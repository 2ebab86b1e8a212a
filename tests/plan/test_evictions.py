"""Tests of evictions: from which nodes dnm evicts pods, what prevents that, and the report."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.departure import Eviction, Leaving
from dnm.model.lent import Phase
from dnm.model.orders import Pause, Way
from dnm.model.plan import EvictPods, Fence, Plan, ReturnNode, StartConversion, Unfence
from dnm.model.reason import Reason
from tests.builders import FENCED, NOW, a_batch_node
from tests.plan.worlds import LONG_AGO, SMALL, UNREAD, World, pods

MINUTE = timedelta(minutes=1)
DUE = Eviction(since=NOW)


def evicting(count: int = 1, **changes: Any) -> World:
    """Builds a fenced node with `count` pods, for which an administrator requested an eviction."""
    entry = {"was_used": True, "since": LONG_AGO, "leaves": Leaving.MANUAL, "eviction": DUE}
    world = World().lent("a001", **{**entry, **changes})
    world.node("a001", is_cordoned=True, mark=FENCED)
    return world.with_pods(*pods(count, SMALL, node="a001"))


def evictions(plan: Plan) -> list[str]:
    return [action.node for action in plan.actions if isinstance(action, EvictPods)]


def with_pod(**changes: Any) -> World:
    world = evicting()
    world.pods = tuple(msgspec.structs.replace(pod, **changes) for pod in world.pods)
    return world


def with_node(**changes: Any) -> World:
    world = evicting()
    world.nodes[-1] = msgspec.structs.replace(world.nodes[-1], **changes)
    return world


def test_eviction_follows_the_fence_and_precedes_conversions() -> None:
    world = with_node(is_cordoned=False, mark=None).with_pods(*pods(2))
    kinds = [type(action) for action in world.plan().actions]
    kinds = [kind for kind in kinds if kind in (Fence, EvictPods, StartConversion, ReturnNode)]
    assert kinds == [Fence, EvictPods, StartConversion]


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(evicting(eviction=None), id="its-pods-run-on"),
        pytest.param(evicting(eviction=Eviction(since=NOW + MINUTE)), id="not-yet"),
        pytest.param(evicting(leaves="overdue"), id="not-returned-manually"),
        pytest.param(evicting(0), id="empty"),
        pytest.param(evicting(owner="other"), id="of-another-instance"),
        pytest.param(with_pod(is_terminating=True), id="they-go-already"),
        pytest.param(with_pod(is_daemonset=True), id="a-daemonset-s"),
        pytest.param(with_pod(is_mirror=True), id="a-mirror-pod"),
        pytest.param(with_pod(node="k1"), id="elsewhere"),
        pytest.param(with_node(mark=None), id="an-administrator-s-cordon"),
        pytest.param(with_node(unreadable="?"), id="a-node-that-can-t-be-read"),
        pytest.param(evicting().recorded(held=("a001",)), id="held"),
        pytest.param(evicting().recorded(pause=Pause(since=NOW)), id="paused"),
        pytest.param(
            evicting().recorded(pause=Pause(since=NOW, half=Way.RETURNING)), id="half-paused"
        ),
        pytest.param(evicting().set(pods=UNREAD), id="pods-that-can-t-be-read"),
        pytest.param(evicting().set(nodes=UNREAD), id="nodes-that-can-t-be-read"),
        pytest.param(evicting().set(maps=(None, None)), id="a-queue-that-can-t-shrink"),
    ],
)
def test_pods_are_not_evicted_without_request_or_before_time(world: World) -> None:
    assert evictions(world.plan()) == []


def test_pause_of_lending_stops_no_eviction() -> None:
    world = evicting().recorded(pause=Pause(since=NOW, half=Way.LENDING))
    assert evictions(world.plan()) == ["a001"]


@pytest.mark.parametrize(
    ("world", "detail"),
    [
        pytest.param(evicting(eviction=None), "an administrator returns it", id="pods-run-on"),
        pytest.param(evicting(), "and its pods are being evicted", id="due"),
        pytest.param(evicting(eviction=Eviction(since=NOW + MINUTE)),
            "evicted from 2026-03-02 12:01:00 UTC on", id="later"),
        pytest.param(evicting(eviction=Eviction(since=NOW, reason="dev/p0 is not evicted: why")),
            "being evicted: dev/p0 is not evicted: why", id="refused"),
        pytest.param(evicting().recorded(pause=Pause(since=NOW)),
            "not evicted: dnm is paused", id="paused"),
        pytest.param(with_node(is_ready=False),
            "being evicted, but it is NotReady; kubectl describe node a001", id="a-dead-node"),
    ],
)  # fmt: skip
def test_eviction_state_is_reported_in_the_reason(world: World, detail: str) -> None:
    (verdict,) = world.plan().nodes
    assert verdict.reason is Reason.LEAVING and verdict.detail.endswith(detail)


def test_cordon_of_an_administrator_is_reported() -> None:
    (verdict,) = with_node(mark=None).plan().nodes
    assert verdict.reason is Reason.HELD_BY_ADMIN


@pytest.mark.parametrize("is_fenced", [True, False])
def test_pause_neither_fences_nor_unfences(is_fenced: bool) -> None:
    world = evicting() if is_fenced else with_node(is_cordoned=False, mark=None)
    plan = world.recorded(pause=Pause(since=NOW)).plan()
    assert not [
        action for action in plan.actions if isinstance(action, Fence | Unfence | EvictPods)
    ]
    assert plan.nodes[0].reason is (Reason.LEAVING if is_fenced else Reason.PAUSED)


def test_hold_cancels_an_eviction() -> None:
    plan = evicting().recorded(held=("a001",)).plan()
    entry = plan.registry.nodes["a001"]
    assert (entry.leaves, entry.eviction) == (None, None) and Unfence(node="a001") in plan.actions


def test_node_with_pods_is_not_passed_to_the_converter() -> None:
    """Evicted pods take time to end. dnm waits for them in every phase before the return."""
    away = {"a001": a_batch_node(in_service=False)}
    for phase in (Phase.SERVING, Phase.RELEASING, Phase.RETURNING):
        world = evicting(phase=phase).set(batch=away)
        world.pods = tuple(msgspec.structs.replace(p, is_terminating=True) for p in world.pods)
        plan = world.plan()
        assert not [action for action in plan.actions if isinstance(action, ReturnNode)], phase
        assert plan.registry.nodes["a001"].phase is Phase.SERVING
        assert plan.registry.nodes["a001"].eviction == DUE
