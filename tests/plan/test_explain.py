"""Tests of why a pod waits, from one run's decisions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from dnm.model.pod import PodList, PodShape
from dnm.plan.explain import PodExplanation, explain_pod
from tests.builders import NOW
from tests.plan.worlds import SMALL, UNREAD, World, pods

TOO_LARGE = PodShape(request={"cpu": 9_000_000, "memory": 10**9, "pods": 1})
JUST_NOW = f"{NOW - timedelta(seconds=5):%Y-%m-%dT%H:%M:%SZ}"


def free_node(world: World) -> World:
    free = {"cpu": 64_000, "memory": 256 * 10**9, "pods": 110}
    return world.lent("a001").node("a001", allocatable=free)


CASES: dict[str, tuple[Callable[[World], World], str, str]] = {
    # the world -> state and a part of the answer
    "unread pods": (lambda world: world.set(pods=UNREAD), "unknown", "the API did not answer"),
    "unread namespace": (
        lambda world: world.with_facts(pods=PodList(pods=(), unreadable={"dev": "403"})),
        "unknown", "403",
    ),
    "too large for each node type": (
        lambda world: world.with_pods(*pods(1, TOO_LARGE)), "pending",
        "no new node would help it",
    ),
    "young": (
        lambda world: world.configured(pending_grace=timedelta(seconds=30)).with_pods(
            *pods(1, created=JUST_NOW)
        ),
        "pending", "pending for a few seconds only",
    ),
    "place on an existing node": (
        lambda world: free_node(world).with_pods(*pods(1, SMALL)), "pending",
        "1 of 1 equal pods fit on existing nodes",
    ),
    "queue of nobody": (
        lambda world: world.with_pods(*pods(1, queue="root.anvil")), "pending",
        "dnm does not monitor its queue root.anvil",
    ),
}  # fmt: skip


def explain(world: World, name: str = "p0") -> PodExplanation | None:
    return explain_pod(world.decided(), "dev", name)


@pytest.mark.parametrize("name", CASES)
def test_waiting_pod_has_the_obstacle_of_its_case(name: str) -> None:
    change, state, text = CASES[name]
    explained = explain(change(World()))
    assert explained is not None and explained.state == state
    assert any(text in obstacle for obstacle in explained.obstacles), explained.obstacles


def test_running_pod_is_explained_by_its_node() -> None:
    explained = explain(World().with_pods(*pods(1, node="k1")))
    assert explained is not None and explained.node == "k1" and not explained.obstacles


def test_pod_that_was_not_read_has_no_explanation() -> None:
    assert explain(World().with_pods(*pods(1)), "p7") is None
