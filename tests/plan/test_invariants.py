"""Tests of the check of each plan: a correct plan passes, and each violated invariant is named."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest

from dnm.model.batch import BatchClaim
from dnm.model.departure import Leaving
from dnm.model.lent import LentNode, Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.node import Mark, Node
from dnm.model.plan import (
    EndConverter,
    Fence,
    MarkNode,
    Plan,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    Unfence,
)
from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.model.registry import Registry
from dnm.model.share import Share
from dnm.plan.invariants import check_invariants
from dnm.plan.planner import unless_broken
from tests.builders import (
    COUNTED,
    FENCED,
    MARK,
    QUEUE,
    a_batch_node,
    a_config,
    a_lent_node,
    a_node,
    a_request,
    facts,
)
from tests.plan.test_moves import site
from tests.plan.worlds import BIG, LONG_AGO, SMALL, World, fenced, pods, serving, wanting

GOING = a_lent_node(Phase.RETURNING)
SHUT = a_node(is_cordoned=True, mark=FENCED)
OUT = a_batch_node(in_service=False)
NOTHING = Registry()
EMPTY_EDIT = QueueEdit()


def limits(nodes: dict[str, dict[str, dict[str, int]]]) -> SetQueueLimits:
    return SetQueueLimits(wants=QueueWants(instance_id="prod", nodes=nodes), edit=EMPTY_EDIT)


def objection(
    plan: Plan,
    before: Registry = NOTHING,
    *,
    node: Node = SHUT,
    pods: dict[str, int] | None = None,
    batch: Any = OUT,
    **config: Any,
) -> str:
    seen = facts([node], [batch] if batch else [], pods or {}, sees_all_pods=True)
    return "; ".join(check_invariants(a_config(**config), before, seen, plan))


def registry(entry: LentNode, **changes: Any) -> Registry:
    return Registry(nodes={"a001": entry}, **changes)


ASKED = Registry(requests=(a_request(id="new", count=3),))
SERVING = a_lent_node()
RIGHT = [
    pytest.param(Plan(registry=Registry()), {}, id="nothing"),
    pytest.param(Plan(registry=registry(GOING), actions=(ReturnNode(node="a001"),)), {},
        id="returned"),
    pytest.param(Plan(registry=ASKED, actions=(StartConversion(request=ASKED.requests[0]),)),
        {"max_converted_nodes": 3}, id="as-many-as-the-cap"),
    pytest.param(Plan(registry=registry(SERVING), actions=(limits({QUEUE: {"a001": COUNTED},
            "root.empty": {}}),)), {}, id="limits-of-serving-nodes"),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "config"), RIGHT)
def test_valid_plan_violates_no_invariant(plan: Plan, config: dict[str, Any]) -> None:
    assert objection(plan, **config) == ""


WRONG = [
    pytest.param(Plan(registry=ASKED), {"max_converted_nodes": 2}, "max_converted_nodes is 2",
        id="cap"),
    pytest.param(Plan(registry=ASKED), {"max_converted_nodes": Share(percent=50)},
        "max_converted_nodes is 50%", id="cap-of-an-unknown-number"),
    pytest.param(Plan(registry=Registry(), actions=(StartConversion(request=a_request()),)), {},
        "is started that is not recorded", id="not-recorded"),
    pytest.param(Plan(registry=registry(SERVING), actions=(limits({}),)), {},
        "not count exactly the nodes that serve", id="limits-without-a-node"),
    pytest.param(Plan(registry=registry(GOING), actions=(limits({QUEUE: {"a001": COUNTED}}),)), {},
        "not count exactly the nodes that serve", id="limits-with-a-leaving-node"),
    pytest.param(Plan(registry=registry(SERVING), actions=(ReturnNode(node="a001"),)), {},
        "returned in the phase serving", id="returned-while-it-serves"),
    pytest.param(Plan(registry=registry(GOING), actions=(ReturnNode(node="a001"),)),
        {"batch": a_batch_node()}, "although Slurm may have it in service", id="slurm-has-it"),
    pytest.param(Plan(registry=registry(GOING), actions=(ReturnNode(node="a001"),)),
        {"batch": None}, "although Slurm may have it in service", id="slurm-is-mute"),
    pytest.param(Plan(registry=registry(GOING), actions=(ReturnNode(node="a001"),)),
        {"pods": {"a001": 1}}, "although pods may run or land on it", id="a-pod-runs"),
    pytest.param(Plan(registry=registry(GOING), actions=(ReturnNode(node="a001"),)),
        {"node": a_node()}, "although pods may run or land on it", id="not-fenced"),
    pytest.param(Plan(registry=registry(GOING), actions=(Unfence(node="a001"),)), {},
        "fence of a001 would be lifted in the phase returning", id="opened-on-its-way"),
    pytest.param(Plan(registry=Registry(), actions=(Fence(node="a001"),)), {},
        "not recorded as lent by prod", id="unrecorded"),
    pytest.param(Plan(registry=registry(msgspec.structs.replace(SERVING, owner="other")),
            actions=(MarkNode(node="a001", mark=MARK),)), {},
        "not recorded as lent by prod", id="of-another-instance"),
    pytest.param(
        Plan(registry=registry(SERVING), actions=(Fence(node="a001"), Unfence(node="a001"))), {},
        "a001 would be fenced and unfenced at once", id="both"),
    pytest.param(
        Plan(registry=registry(a_lent_node(Phase.RELEASING), requests=(a_request(id="new"),))),
        {"before": registry(SERVING)}, f"a001 would be returned while {QUEUE} requests one",
        id="to-and-fro"),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "case", "sentence"), WRONG)
def test_each_violated_invariant_is_named(plan: Plan, case: dict[str, Any], sentence: str) -> None:
    assert sentence in objection(plan, **case)


@pytest.mark.parametrize("of", ["type", "namespace"])
def test_caps_of_type_and_namespace_are_invariants(of: str) -> None:
    config = a_config()
    node_type, policy = config.node_types["a"], config.namespaces["dev"]
    capped = (
        {"node_types": {"a": msgspec.structs.replace(node_type, max_nodes=2)}}
        if of == "type"
        else {"namespaces": {"dev": msgspec.structs.replace(policy, max_nodes=2)}}
    )
    assert f"max_nodes of {of}" in objection(Plan(registry=ASKED), **capped)
    assert objection(Plan(registry=ASKED), ASKED, **capped) == "", "lowered after the request"


@pytest.mark.parametrize("world", [serving(), fenced(), wanting(3)], ids=["idle", "goes", "wants"])
def test_plan_that_violates_an_invariant_is_refused_with_a_sentence(world: World) -> None:
    """dnm executes only those actions of a refused plan that end a hanging converter."""
    process = ConverterProcess(pid=1, start_ticks=1)
    wrong = (Unfence(node="k1"), EndConverter(key="x", process=process))
    made, inputs = world.plan(), world.inputs()
    assert unless_broken(made, world.registry, inputs) is made
    plan = msgspec.structs.replace(made, actions=(*made.actions, *wrong))
    left = unless_broken(plan, world.registry, inputs)
    assert left.actions == wrong[1:] and left.needs_person and left.is_refused
    assert left.registry == world.registry
    assert "not recorded as lent by prod" in left.errors[0] and "dnm pause" in left.errors[0]


OTHER_MARK = Mark(instance="other", node_type="a", namespace="dev", queue=QUEUE)
SHOWN = [
    None,
    *(
        a_node(mark=mark, is_cordoned=cordoned)
        for mark, cordoned in product([MARK, FENCED, OTHER_MARK, None], [False, True])
    ),
]
LISTED = [
    None,
    *(a_batch_node(in_service=recorded) for recorded in (True, None)),
    *(
        a_batch_node(in_service=False, reports_claim=True, claim=claim)
        for claim in (BatchClaim(instance="prod"), BatchClaim(instance="other"), None)
    ),
]


@pytest.mark.parametrize("phase", list(Phase))
def test_no_combination_of_manual_changes_makes_a_plan_refused(phase: Phase) -> None:
    """A refused plan would recur in each run until an administrator acts. So the test combines each
    phase with any Node, state in Slurm, pods and request."""
    move = {"to": "notebook", "attempts": 1} if phase is Phase.MOVING else {}
    for node, row, works, leaves in product(SHOWN, LISTED, (0, 1), (None, Leaving.MANUAL)):
        working, waiting = pods(works, SMALL, node="a001"), pods(2, BIG)[1:]
        world = site().with_pods(*working, *waiting)
        world.lent("a001", phase, idle_since=LONG_AGO, leaves=leaves, **move)
        world.nodes += [node] if node else []
        world.batch |= {"a001": row} if row else {}
        plan = world.plan()
        assert not plan.is_refused, (plan.errors, node, row, works, leaves)
