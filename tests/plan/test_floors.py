"""Tests of floors, the fewest nodes that a namespace keeps whatever its pods need."""

from __future__ import annotations

from datetime import datetime

import pytest

from dnm.model.reason import Reason
from dnm.plan.hooks import NodeFloor, raise_floors
from tests.builders import NOW, QUEUE, a_config
from tests.plan.worlds import LONG_AGO, World, namespace_policy, serving

WORKSHOP = "event workshop until 17:00"

FLOORS = {
    "above min_nodes": ({"min_nodes": 1}, (3,), 3, WORKSHOP),
    "the highest holds": ({}, (2, 4, 3), 4, WORKSHOP),
    "below min_nodes": ({"min_nodes": 3}, (2,), 3, ""),
    "as high as min_nodes": ({"min_nodes": 2}, (2,), 2, ""),
    "above max_nodes": ({"max_nodes": 2}, (5,), 2, WORKSHOP),
    "none": ({"min_nodes": 1}, (), 1, ""),
}


@pytest.mark.parametrize(("policy", "floors", "least", "by"), FLOORS.values(), ids=FLOORS)
def test_highest_floor_becomes_min_nodes(
    policy: dict[str, int], floors: tuple[int, ...], least: int, by: str
) -> None:
    config = a_config(namespaces=namespace_policy(a_config(), **policy))
    raised = raise_floors(
        config, [NodeFloor(namespace="dev", nodes=nodes, why=WORKSHOP) for nodes in floors]
    )
    assert (raised.namespaces["dev"].min_nodes, raised.namespaces["dev"].min_nodes_by) == (
        least,
        by,
    )


def test_floor_of_an_unmonitored_namespace_is_ignored() -> None:
    config = a_config()
    assert raise_floors(config, [NodeFloor(namespace="other", nodes=9, why=WORKSHOP)]) == config


def floored(world: World, nodes: int) -> World:
    world.config = raise_floors(
        world.config, [NodeFloor(namespace="dev", nodes=nodes, why=WORKSHOP)]
    )
    return world


def test_node_lent_for_a_floor_reports_the_reason_of_the_floor() -> None:
    verdict = floored(World(), 2).converted().verdicts[QUEUE]
    assert verdict.reason is Reason.MIN_NODES and verdict.detail.startswith(WORKSHOP)


@pytest.mark.parametrize("idle_since", [LONG_AGO, NOW], ids=["for-long", "since-now"])
def test_idle_node_kept_for_a_floor_reports_the_reason_of_the_floor(idle_since: datetime) -> None:
    """dnm names the floor also before the end of the idle time, when the node would stay anyway."""
    (verdict,) = floored(serving(idle_since=idle_since), 1).plan().nodes
    assert (verdict.reason, verdict.detail) == (Reason.KEPT_READY, WORKSHOP)


def test_idle_node_above_the_floor_is_not_kept() -> None:
    world = serving(idle_since=NOW).lent("a002", idle_since=NOW).node("a002")
    assert {node.reason for node in floored(world, 1).plan().nodes} == {Reason.IDLE}
