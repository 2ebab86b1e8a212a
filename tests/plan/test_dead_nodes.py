"""Tests of unusable lent nodes: dnm returns them and lends others; they are no free capacity."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from dnm.model.config import NamespacePolicy
from dnm.model.lent import Phase
from dnm.model.node_type import NodeType, Taint
from dnm.model.plan import Plan, StartConversion
from dnm.model.pod import PodShape
from dnm.model.reason import Reason
from dnm.model.slinky import MANAGED_TAINT
from dnm.verbs.holds import reset
from dnm.verbs.refusal import Refusal
from tests.builders import COUNTED, FENCED, NOW, QUEUE, SIZE, a_batch_node
from tests.plan.worlds import LONG_AGO, SMALL, World, pods

RECENT = "2026-03-02T11:50:00Z"
GPU = "nvidia.com/gpu"
IDLE: dict[str, Any] = {
    "since": NOW - timedelta(hours=5), "idle_since": LONG_AGO, "was_used": True,
}  # fmt: skip
WITH_GPUS = NodeType(name="a", size={**SIZE, GPU: 8})
ON_GPUS = PodShape(request={"cpu": 1000, "memory": 10**9, "pods": 1, GPU: 8})
DEAD: dict[str, dict[str, Any]] = {
    "NotReady": {"is_ready": False},
    "in deletion": {"is_deleting": True},
    "without the devices of its type": {"allocatable": {**COUNTED, GPU: 0}},
}


def dead(node: dict[str, Any], **fields: Any) -> World:
    """Builds an unusable idle node, and pods of its queue that wait for a node."""
    has_gpus = "allocatable" in node
    world = World().node("a001", **node)
    world.lent(
        "a001", **{**IDLE, "counted": {**COUNTED, GPU: 8} if has_gpus else COUNTED, **fields}
    )
    if has_gpus:
        world.configured(node_types={"a": WITH_GPUS})
    return world.with_pods(*pods(3, ON_GPUS if has_gpus else SMALL, created=RECENT))


def of_two(**changes: Any) -> World:
    """Builds two namespaces that share a queue, and an idle node lent to the first one."""
    world = World().lent("a001", **IDLE).node("a001")
    two = NamespacePolicy(name="two", queue=QUEUE, node_types=("a",), **changes)
    return world.configured(namespaces={**world.config.namespaces, "two": two})


def for_two() -> World:
    shape = msgspec.structs.replace(SMALL, node_selector=(("two", "true"),))
    return of_two().with_pods(*pods(3, shape, namespace="two", created=RECENT))


@pytest.mark.parametrize("node", DEAD.values(), ids=DEAD)
def test_unusable_node_is_released_before_its_replacement_is_requested(
    node: dict[str, Any],
) -> None:
    """Once, one plan both released the node and requested another, and was refused in each run."""
    world = dead(node)
    first = world.plan()
    assert not first.is_refused, first.errors
    assert first.registry.nodes["a001"].phase is Phase.RELEASING and not conversions(first)
    assert "a001 is released in this run" in first.queues[0].sentence
    world.set(registry=first.registry, nodes=world.nodes[:1])
    world.node("a001", **{**node, "is_cordoned": True, "mark": FENCED})
    world.batch["a001"] = a_batch_node("a001", in_service=False)
    assert conversions(world.plan())


@pytest.mark.parametrize("world", [for_two, partial(of_two, min_nodes=1)])
def test_unusable_node_is_released_while_another_namespace_gets_a_node(
    world: Callable[[], World],
) -> None:
    """The other namespace gets a node, as its pods select its label or it has min_nodes = 1."""
    plan = world().plan()
    assert not plan.is_refused, plan.errors
    assert plan.registry.nodes["a001"].phase is Phase.RELEASING and conversions(plan)


def conversions(plan: Plan) -> list[StartConversion]:
    return [action for action in plan.actions if isinstance(action, StartConversion)]


@pytest.mark.parametrize("node", DEAD.values(), ids=DEAD)
def test_unusable_node_is_released_at_the_cap(node: dict[str, Any]) -> None:
    plan = dead(node).configured(max_converted_nodes=1).plan()
    assert plan.registry.nodes["a001"].phase is Phase.RELEASING, plan.nodes


@pytest.mark.parametrize("node", DEAD.values(), ids=DEAD)
def test_fenced_unusable_node_is_not_wanted_again(node: dict[str, Any]) -> None:
    world = dead({**node, "is_cordoned": True, "mark": FENCED}, phase=Phase.RELEASING, since=NOW)
    world.configured(max_converted_nodes=1)
    world.batch["a001"] = a_batch_node("a001", in_service=False)
    plan = world.plan()
    assert plan.nodes[0].reason is not Reason.DEMAND_RETURNED, plan.nodes[0].sentence
    assert plan.registry.nodes["a001"].phase is Phase.RETURNING


@pytest.mark.parametrize(
    ("fields", "node"),
    [
        pytest.param({}, {"is_ready": False}, id="its queue wants nodes"),
        pytest.param(
            {"order": "lend-1", "stays_until": NOW + timedelta(hours=3)}, {"is_ready": False},
            id="it was ordered",
        ),
        pytest.param({"leaves": "overdue"}, {"is_ready": False}, id="a rule that is off let it go"),
        pytest.param(
            {}, {"taints": (Taint(key=MANAGED_TAINT, effect="NoExecute"),)},
            id="its taint evicts pods",
        ),
    ],
)  # fmt: skip
def test_reset_node_that_never_joined_is_released(
    fields: dict[str, Any], node: dict[str, Any]
) -> None:
    """After `dnm reset`, the node once served although it was NotReady, or failed once more."""
    world = World().lent(
        "a001", Phase.FAILED, since=LONG_AGO, counted={}, error="no join", **fields
    )
    world.node("a001", **node).batch["a001"] = a_batch_node("a001", in_service=False)
    registry = reset(world.config, world.registry, "a001", NOW - timedelta(seconds=10))
    assert not isinstance(registry, Refusal)
    waiting = pods(3, SMALL, created=RECENT)
    plan = world.recorded(nodes=registry.nodes).with_pods(*waiting).plan()
    assert plan.registry.nodes["a001"].phase is Phase.RELEASING, plan.nodes


def test_unusable_node_is_released_before_a_healthy_node() -> None:
    """With min_nodes = 1, dnm keeps the healthy node and releases the unusable one."""
    world = World().lent("a001", **IDLE).node("a001").lent("a002", **IDLE)
    world.node("a002", is_ready=False)
    dev = msgspec.structs.replace(world.config.namespaces["dev"], min_nodes=1)
    plan = world.configured(namespaces={**world.config.namespaces, "dev": dev}).plan()
    phases = {name: node.phase for name, node in plan.registry.nodes.items()}
    assert phases == {"a001": Phase.SERVING, "a002": Phase.RELEASING}, plan.nodes
