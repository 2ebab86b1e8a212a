"""Tests of consolidation: which half-empty nodes get no new pods, since when, what reopens them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.departure import Leaving
from dnm.model.lent import Phase
from dnm.model.plan import Fence, ReturnNode, Unfence
from dnm.model.pod import PodShape
from dnm.plan.rule import CONSOLIDATED, SPARE_FOR
from tests.builders import FENCED, NOW, a_node, a_policy
from tests.plan.worlds import LONG_AGO, UNREAD, World, pods

LONG_SPARE = NOW - SPARE_FOR


def used(*vcores: int, **changes: Any) -> World:
    """Builds a lent node of 128 cores for each of `vcores`, with a pod of so many millicores."""
    world = World()
    for number, vcore in enumerate(vcores, 1):
        name = f"a{number:03}"
        world.lent(name, **{"was_used": True, "since": LONG_AGO, **changes}).node(name)
        shape = PodShape(request={"cpu": vcore, "memory": 10**9, "pods": 1})
        world.with_pods(*pods(1, shape, node=name, app_id=name))
    return world


def spare(*vcores: int, **changes: Any) -> World:
    """Builds the nodes of `used`. The pods of the first have long fitted on the others."""
    return used(*vcores, **changes).recorded(spare_nodes={"a001": LONG_SPARE})


def leaving(world: World) -> list[str]:
    nodes = world.plan().registry.nodes
    return [name for name, node in sorted(nodes.items()) if node.leaves == CONSOLIDATED]


SPARE = {
    "two half-empty nodes": (used(8_000, 9_000), {"a001", "a002"}),
    "the second is more than half used": (used(8_000, 65_000), {"a001"}),
    "the other has too little free capacity": (used(60_000, 64_001), set()),
    "with a tenth to spare": (used(57_600, 64_000), {"a001"}),
    "without a tenth to spare": (used(57_601, 64_000), set()),
    "the only node": (used(8_000), set()),
    "a pod waits": (used(8_000, 9_000).with_pods(*pods(1)), set()),
    "a person keeps them": (used(8_000, 9_000, stays_until=NOW + SPARE_FOR), set()),
    "told to go": (used(8_000, 9_000, leaves=Leaving.MANUAL), set()),
    "of another instance": (used(8_000, 9_000, owner="test"), set()),
    "in use for a short time": (used(8_000, 9_000, since=NOW - SPARE_FOR / 2), set()),
    "min_nodes needs both": (
        used(8_000, 9_000).configured(namespaces={"dev": a_policy(min_nodes=2)}), set()),
    "switched off": (used(8_000, 9_000).configured(consolidate=False), set()),
}  # fmt: skip


@pytest.mark.parametrize("case", SPARE)
def test_nodes_below_the_threshold_are_spare(case: str) -> None:
    world, expected = SPARE[case]
    plan = world.plan()
    assert plan.registry.spare_nodes == dict.fromkeys(expected, NOW)
    assert not leaving(world)


LEAVES = {
    "for long enough": (spare(8_000, 9_000), ["a001"]),
    "for too short": (
        spare(8_000, 9_000).recorded(
            spare_nodes={"a001": LONG_SPARE + timedelta(seconds=1)}), []),
    "the emptiest of two": (
        used(9_000, 8_000).recorded(spare_nodes={"a001": LONG_SPARE, "a002": LONG_SPARE}),
        ["a002"]),
    "a pod waits": (spare(8_000, 9_000).with_pods(*pods(1)), []),
    "not spare any more": (spare(70_000, 9_000), []),
    "pods could not be read": (spare(8_000, 9_000).set(pods=UNREAD), []),
    "held": (spare(8_000, 9_000).recorded(held=("a001",)), []),
}  # fmt: skip


@pytest.mark.parametrize("case", LEAVES)
def test_consolidation_fences_the_least_used_spare_node(case: str) -> None:
    world, expected = LEAVES[case]
    assert leaving(world) == expected
    plan = world.plan()
    assert [action.node for action in plan.actions if isinstance(action, Fence)] == expected
    assert not [action for action in plan.actions if isinstance(action, ReturnNode)]


def test_first_waiting_pod_reopens_a_consolidated_node() -> None:
    world = used(8_000, 9_000)
    nodes = world.registry.nodes
    nodes = {**nodes, "a001": nodes["a001"].leave(CONSOLIDATED)}
    world.recorded(nodes=nodes)
    fenced = a_node("a001", is_cordoned=True, mark=FENCED)
    world.nodes = [fenced if node.name == "a001" else node for node in world.nodes]
    assert leaving(world) == ["a001"]
    plan = world.with_pods(*pods(1)).plan()
    assert plan.registry.nodes["a001"].leaves is None
    assert [action.node for action in plan.actions if isinstance(action, Unfence)] == ["a001"]
    assert not plan.registry.requests


@given(st.lists(st.integers(1_000, 127_000), min_size=1, max_size=6))
def test_pods_of_a_consolidated_node_fit_on_the_remaining_nodes(vcores: list[int]) -> None:
    names = [f"a{number:03}" for number in range(1, len(vcores) + 1)]
    world = used(*vcores).recorded(spare_nodes=dict.fromkeys(names, LONG_SPARE))
    plan = world.plan()
    for name in leaving(world):
        own = vcores[names.index(name)]
        free = sum(128_000 - other for other in vcores) - (128_000 - own)
        assert own < 64_000 and own <= 0.9 * free
    assert all(node.phase is Phase.SERVING for node in plan.registry.nodes.values())
    assert not [action for action in plan.actions if isinstance(action, ReturnNode)]
