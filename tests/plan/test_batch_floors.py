"""Tests of `batch_floor`, the number of nodes that Slurm keeps: how many more may be lent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dnm.model.config import Config
from dnm.model.lent import ClaimedNode
from dnm.model.node_type import NodeType
from dnm.model.registry import Registry
from dnm.model.share import Floor
from dnm.model.verdict import Verdict
from dnm.plan.lendable import conversion_budget
from dnm.plan.rules.batch_floors import BATCH_FLOOR, floor_bounds
from dnm.sizing.caps import NodePool
from tests.builders import QUEUE, SIZE, a_batch_node, a_config, a_request, facts
from tests.plan.worlds import wanting

TYPES = {"a": NodeType(name="a", size=SIZE), "b": NodeType(name="b", size=SIZE)}
SIX = [a_batch_node(f"a{n:03}") for n in range(6)]


def left(config: Config, batch: list[Any], registry: Registry | None = None) -> dict[str, int]:
    bounds = floor_bounds(config, registry or Registry(), {node.name: node for node in batch})
    return {bound.name: bound.left for bound in bounds}


def floors(kept: Floor | None = None, **changes: Any) -> Config:
    return a_config(node_types=TYPES, batch_floor=kept, **changes)


@pytest.mark.parametrize(
    ("floor", "batch", "requests", "more"),
    [
        pytest.param(Floor(nodes=2), SIX, (), 4, id="a-number"),
        pytest.param(Floor(percent=50), SIX, (), 3, id="a-percentage"),
        pytest.param(Floor(percent=51), SIX, (), 2, id="a-part-of-a-node-is-a-node"),
        pytest.param(Floor(nodes=9), SIX, (), 0, id="above-the-number-of-nodes"),
        pytest.param(Floor(nodes=2), SIX, (a_request(count=3),), 1, id="asked-for"),
        pytest.param(Floor(nodes=2), SIX, (a_request(node_type="b"),), 4, id="of-another-type"),
        pytest.param(
            Floor(nodes=2), [*SIX[2:], a_batch_node("a000", in_service=False)], (), 2, id="away"
        ),
        pytest.param(
            Floor(nodes=2), [*SIX[2:], a_batch_node("a000", in_service=None)], (), 2, id="unknown"
        ),
        pytest.param(
            Floor(percent=50), [*SIX[2:], a_batch_node("a000", in_service=False)], (), 1,
            id="of-all-that-are-listed",
        ),
    ],
)  # fmt: skip
def test_batch_floor_bounds_lending_by_nodes_in_service(
    floor: Floor, batch: list[Any], requests: Any, more: int
) -> None:
    results = left(floors(kept=floor), batch, Registry(requests=requests))
    assert results["batch_floor of type a"] == more


def test_node_type_floor_replaces_the_general_floor() -> None:
    config = floors(kept=Floor(nodes=1))
    config = msgspec.structs.replace(config, type_floors={"a": Floor(nodes=5)})
    results = left(config, [*SIX, a_batch_node("b001"), a_batch_node("b002")])
    assert results == {"batch_floor of type a": 1, "batch_floor of type b": 1}


def test_config_without_batch_floors_has_no_bound() -> None:
    assert left(floors(), SIX) == {}


@pytest.mark.parametrize(
    ("partition", "more"),
    [
        pytest.param("big", {"a": 1, "b": None}, id="of-its-types-alone"),
        pytest.param("both", {"a": 2, "b": 2}, id="two-types-share-it"),
        pytest.param("none", {"a": 0, "b": 0}, id="unlisted-request-counts-for-all"),
    ],
)
def test_partition_floor_bounds_the_types_of_its_nodes(
    partition: str, more: dict[str, int | None]
) -> None:
    batch = [
        a_batch_node("a001", partitions=("big", "both")),
        a_batch_node("a002", partitions=("big", "both")),
        a_batch_node("b001", partitions=("both",)),
        a_batch_node("b002"),
    ]
    config = floors(partition_floors={partition: Floor(nodes=1)})
    budget = conversion_budget(config, Registry(), facts(batch=batch))
    name = f"batch_floor of partition {partition}"
    for node_type, expected in more.items():
        bounds = {
            bound.name: bound.left for bound in budget.bounds_of(NodePool(QUEUE, "dev", node_type))
        }
        assert bounds.get(name) == expected


def test_claimed_node_does_not_count_against_the_batch_floor_again() -> None:
    claimed = {"a009": ClaimedNode(node_type="a", namespace="dev", can_resume=True)}
    config, record = floors(kept=Floor(nodes=6)), Registry(claimed=claimed)
    recorded = facts(batch=[*SIX, a_batch_node("a009", in_service=False)])
    assert conversion_budget(config, record, recorded).left["batch_floor of type a"] == 1
    assert (
        conversion_budget(config, record, recorded, unclaimed=True).left["batch_floor of type a"]
        == 0
    )


@pytest.mark.parametrize(("floor", "asked"), [(8, 2), (9, 1), (10, 0)])
def test_plan_leaves_the_batch_floor_in_slurm(floor: int, asked: int) -> None:
    """Ten nodes of Slurm are idle, and pods need three of them."""
    world = wanting(3).configured(batch_floor=Floor(nodes=floor))
    conversions = world.converted()
    assert sum(request.count for request in conversions.requests) == asked
    if not asked:
        verdict = conversions.verdicts[QUEUE]
        assert (verdict.verdict, verdict.reason) == (Verdict.WAIT, BATCH_FLOOR)
        assert "batch_floor of type a used up" in verdict.detail
