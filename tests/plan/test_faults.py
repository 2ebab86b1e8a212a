"""Tests of `fault_conditions`: dnm empties and returns a lent node if its Node reports a fault, and
drains it in Slurm with that reason. They cover what delays the return, and which reports count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.config.node_checks import parse_fault_conditions
from dnm.kube.nodes import read_node_body
from dnm.model.departure import Eviction, Leaving
from dnm.model.lent import Phase
from dnm.model.node_type import Taint
from dnm.model.plan import EvictPods, Fence, Plan, ReturnNode, SetQueueLimits
from dnm.model.reason import Reason
from dnm.plan.rules.faults import sign_of
from tests.builders import FENCED, NOW, a_batch_node, a_node
from tests.plan.worlds import SMALL, World, pods

BAD = {"gpu.example/Healthy": "False"}
SIGNS = parse_fault_conditions("condition gpu.example/Healthy=False, taint nvsentinel/quarantine")
TAINT = Taint(key="nvsentinel/quarantine", effect="NoSchedule")


def used(**node: object) -> World:
    """Builds a node with two pods."""
    world = World().configured(fault_conditions=SIGNS).lent("a001", was_used=True)
    return world.node("a001", **node).with_pods(*pods(2, SMALL, node="a001"))


def kinds(plan: Plan) -> list[type]:
    return [type(action) for action in plan.actions]


@pytest.mark.parametrize(
    ("node", "sign"),
    [
        ({"conditions": BAD}, "Healthy:False"),
        ({"conditions": {"gpu.example/Healthy": "True"}}, ""),
        ({"conditions": {"Healthy": "False"}}, ""),
        ({"taints": (TAINT,)}, "taint:quarantine"),
        ({}, ""),
    ],
)
def test_faulty_node_is_fenced_and_emptied(node: dict[str, object], sign: str) -> None:
    shown = a_node("a001", **node)
    assert next(filter(None, (sign_of(step, shown) for step in SIGNS)), "") == sign
    plan = used(**node).plan()
    entry = plan.registry.nodes["a001"]
    assert (entry.fault, entry.leaves) == (sign, Leaving.FAULTY if sign else None)
    assert (Fence in kinds(plan)) is bool(sign)
    assert not (set(kinds(plan)) & {SetQueueLimits, ReturnNode}), "pods are on it"


def leaving(**changes: Any) -> World:
    world = used(is_cordoned=True, mark=FENCED)
    return world.lent("a001", fault="Healthy:False", leaves=Leaving.FAULTY, **changes)


def test_pods_of_a_faulty_node_are_evicted_even_if_the_fault_clears() -> None:
    plan = leaving().plan()
    eviction = plan.registry.nodes["a001"].eviction
    assert eviction == Eviction(since=NOW) and kinds(plan) == [EvictPods]
    assert (
        plan.nodes[0].reason is Reason.LEAVING
        and "Kubernetes reports a fault of it" in plan.nodes[0].sentence
    )


def test_fault_seen_on_a_fenced_node_is_recorded() -> None:
    """Once, dnm returned the node as healthy, or unfenced it if its queue needed a node."""
    world = World().configured(fault_conditions=SIGNS).lent("a001", Phase.RELEASING, was_used=True)
    world.node("a001", is_cordoned=True, mark=FENCED, conditions=BAD).with_pods(*pods(1))
    world.set(batch={"a001": a_batch_node(in_service=False)})
    plan = world.plan()
    entry = plan.registry.nodes["a001"]
    assert (entry.phase, entry.fault) == (Phase.RETURNING, "Healthy:False")
    assert kinds(plan) == [ReturnNode] and entry.leaves == Leaving.FAULTY


def test_hold_keeps_a_faulty_node() -> None:
    plan = used(conditions=BAD).recorded(held=("a001",)).plan()
    assert plan.registry.nodes["a001"].leaves is None


def test_order_or_removed_fault_list_does_not_keep_a_faulty_node() -> None:
    world = leaving(stays_until=NOW + timedelta(hours=1)).configured(fault_conditions=())
    assert kinds(world.plan()) == [EvictPods]


@pytest.mark.parametrize(("state", "forgotten"), [("IDLE+DRAIN", True), ("DOWN+DRAIN", False)])
def test_faulty_node_drained_in_slurm_is_removed_from_the_registry(
    state: str, forgotten: bool
) -> None:
    world = World().configured(fault_conditions=SIGNS)
    world.lent(
        "a001", Phase.RETURNING, fault="Healthy:False", is_handed_over=True, attempts=1,
        retry_after=NOW + timedelta(minutes=15),
    )  # fmt: skip
    row = a_batch_node("a001", in_service=False, state=state)
    plan = world.set(batch={**world.batch, "a001": row}).plan()
    assert ("a001" not in plan.registry.nodes) is forgotten
    if forgotten:
        assert plan.nodes[0].reason is Reason.RETURNED
        assert "drained there: Healthy:False" in plan.nodes[0].sentence and not plan.errors


def test_conditions_are_read_only_from_marked_nodes() -> None:
    condition = {"type": "X", "status": "True"}
    for marks in ({}, {"dynamic-node-manager/instance": "prod"}):
        body = {"kind": "Node", "metadata": {"name": "a001", "annotations": marks},
                "status": {"conditions": [condition]}}  # fmt: skip
        node = read_node_body(msgspec.json.encode(body), "a001")
        assert node.conditions == ({"X": "True"} if marks else {})


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"stays_until": NOW + timedelta(days=30), "order": "lend-1"}, id="ordered"),
        pytest.param(
            {"since": NOW - timedelta(hours=3), "leaves": "overdue"}, id="leaves for less"
        ),
    ],
)
def test_fault_overrides_orders_and_earlier_reasons_to_leave(fields: dict[str, Any]) -> None:
    """Once, an order or an earlier reason kept its pods running, and new ones started."""
    world = used(conditions=BAD).configured(options={"max_lend_hours": timedelta(hours=1)})
    entry = world.lent("a001", was_used=True, **fields).plan().registry.nodes["a001"]
    assert entry.leaves == Leaving.FAULTY
