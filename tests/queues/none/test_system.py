"""Tests of namespaces without a queue system: dnm writes no limit, and all rules apply as usual."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.checks.queue_checks import checks_of
from dnm.demand.demand import gather_demand
from dnm.demand.waiting import DemandFacts
from dnm.model.cluster import ConfigMap, QueueFacts, QueueLimits, SchedulerView
from dnm.model.config import NamespacePolicy
from dnm.model.lent import Phase
from dnm.model.plan import Fence, Plan, SetQueueLimits, StartConversion
from dnm.model.pod import Pod
from dnm.model.queue_edit import QueueNumbers, QueueWants
from dnm.model.verdict import Verdict
from dnm.queues import system_of
from dnm.queues.yunikorn.document_edit import DocumentEdit
from tests.builders import MARK, NOW, QUEUE, a_batch_node, a_config
from tests.fakes import KubeFake
from tests.plan.worlds import LONG_AGO, World, pods

SIZE = {"cpu": 128_000, "memory": 256 * 10**9, "pods": 110}
ALONE = {"lab": NamespacePolicy(name="lab", queue="lab", node_types=("a",), queue_system="none")}
YUNIKORN = a_config().namespaces


def wants(**nodes: dict[str, dict[str, int]]) -> QueueWants:
    return QueueWants(
        instance_id="prod",
        nodes={name.replace("_", "."): lent for name, lent in nodes.items()},
        floors={"lab": {"cpu": 1}},
        remembered="the ledger of an earlier queue system",
    )


class NoCluster(KubeFake):
    """A Kubernetes client that fails the test if anything is read or written."""

    def __init__(self) -> None:
        pass

    def read_config_map(self, namespace: str, name: str) -> ConfigMap:
        raise AssertionError(f"read {namespace}/{name}")

    def write_config_map(self, config_map: ConfigMap, *, dry_run: bool = False) -> ConfigMap:
        raise AssertionError(f"wrote {config_map}")


def test_namespace_without_a_queue_system_reads_and_writes_nothing() -> None:
    config, asked = a_config(namespaces=ALONE), wants(lab={"a001": SIZE})
    system = system_of(config)
    facts = system.collect(config, NoCluster())
    queues = system.read_queues(config, facts)
    edit = queues.plan(asked, queues.project(asked))
    system.exclude_earlier_writes(config, NoCluster(), "prod 3", lambda: None)
    outcome = system.write(config, NoCluster(), asked, edit, lambda: None)
    assert facts == QueueFacts()
    assert queues.limits == {"lab": QueueLimits(path="lab", parent=None, is_leaf=True)}
    assert (edit.is_changed, edit.refusal, edit.numbers) == (False, None, {"lab": QueueNumbers()})
    assert (outcome.is_written, outcome.edit.record) == (False, asked.remembered)
    assert checks_of(config)[0].permissions(config) == ()
    assert not queues.is_missing


def test_queue_system_none_leaves_the_edit_of_yunikorn_as_it_is() -> None:
    config = a_config(namespaces={**YUNIKORN, **ALONE})
    only = a_config()
    facts = World().snapshot().queue_facts
    system, plain = system_of(config), system_of(only)
    queues, of_yunikorn = system.read_queues(config, facts), plain.read_queues(only, facts)
    asked = wants(**{QUEUE.replace(".", "_"): {"a001": SIZE}, "lab": {"a002": SIZE}})
    reduced = msgspec.structs.replace(asked, nodes={QUEUE: {"a001": SIZE}}, floors={})
    edit = queues.plan(asked, queues.project(asked))
    alone = of_yunikorn.plan(reduced, of_yunikorn.project(reduced))
    assert isinstance(edit, DocumentEdit) and isinstance(alone, DocumentEdit)
    assert (edit.text, edit.ledger, edit.changes) == (alone.text, alone.ledger, alone.changes)
    assert set(queues.limits) == {*of_yunikorn.limits, "lab"}
    assert queues.growth_objection(asked, "lab", [SIZE]) is None


@pytest.mark.parametrize(
    ("namespaces", "name"),
    [
        (ALONE, "NamespacesAsQueues"),
        (YUNIKORN, "Yunikorn"),
        ({**YUNIKORN, **ALONE}, "NamespacesAsQueues"),
    ],
    ids=["none", "yunikorn", "both"],
)
def test_queue_system_follows_the_namespaces(namespaces: Any, name: str) -> None:
    assert type(system_of(a_config(namespaces=namespaces))).__name__ == name


# --- decisions ----------------------------------------------------------------------------------


def waiting(count: int, **changes: Any) -> tuple[Pod, ...]:
    return pods(count, namespace="lab", app_id="lab", queue="", **changes)


def lab(world: World | None = None, **changes: Any) -> World:
    """Returns a world with one namespace, which has no queue system."""
    world = (world or World()).configured(namespaces=ALONE, **changes)
    world.maps = (None, None)
    return world.recorded(last_run=msgspec.structs.replace(world.registry.last_run, queues={}))


def idle_node(queue: str = "lab") -> World:
    """Returns a world with a lent node that has been idle for hours."""
    mark = msgspec.structs.replace(MARK, namespace="lab", queue=queue)
    world = World().lent("a001", idle_since=LONG_AGO, was_used=True, namespace="lab", queue=queue)
    world = lab(world.node("a001", mark=mark))
    return world.set(batch={"a001": a_batch_node(in_service=False)})


def conversions(plan: Plan) -> list[StartConversion]:
    return [action for action in plan.actions if isinstance(action, StartConversion)]


def test_pods_get_nodes_without_a_change_of_limits() -> None:
    plan = lab().with_pods(*waiting(2)).plan()
    assert [(a.request.namespace, a.request.queue, a.request.count) for a in conversions(plan)] == [
        ("lab", "lab", 2)
    ]
    assert not [action for action in plan.actions if isinstance(action, SetQueueLimits)]
    assert not plan.errors


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"is_undecided": True}, id="not-judged-by-its-scheduler"),
        pytest.param({"is_undecided": True, "is_nominated": True}, id="evicts-others"),
        pytest.param({"is_gated": True}, id="gated"),
        pytest.param({"is_terminating": True}, id="being-deleted"),
    ],
)
def test_pod_that_no_node_would_help_causes_no_conversion(changes: dict[str, Any]) -> None:
    plan = lab().with_pods(*waiting(2, **changes)).plan()
    assert not plan.actions


def test_cap_holds_without_a_queue_system() -> None:
    plan = lab(max_converted_nodes=1).with_pods(*waiting(5)).plan()
    assert [action.request.count for action in conversions(plan)] == [1]


def test_idle_node_is_fenced() -> None:
    plan = idle_node().plan()
    assert [type(action) for action in plan.actions] == [Fence]
    assert plan.registry.nodes["a001"].phase is Phase.RELEASING


@pytest.mark.parametrize(("minutes", "is_kept"), [(5, True), (20, False)], ids=["new", "old"])
def test_pod_without_a_verdict_keeps_idle_nodes_for_a_while(minutes: int, is_kept: bool) -> None:
    """A pod that names a missing scheduler gets no condition, so it cannot keep nodes for ever."""
    created = f"{NOW - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
    plan = idle_node().with_pods(*waiting(1, is_undecided=True, created=created)).plan()
    expected = Phase.SERVING if is_kept else Phase.RELEASING
    assert plan.registry.nodes["a001"].phase is expected


def test_application_of_another_namespace_takes_no_pods_away() -> None:
    """A pod of a YuniKorn queue may have an application id equal to a namespace without queue."""
    namespaces = {**YUNIKORN, **ALONE}
    config = a_config(namespaces=namespaces, pending_grace=timedelta(0))
    intruder = pods(1, app_id="lab", created="2020-01-01T00:00:00Z")
    view = SchedulerView(queue_of_pod={"u0": QUEUE}, allocated={}, pending={})
    limits = {
        QUEUE: QueueLimits(path=QUEUE, parent=None, is_leaf=True),
        "lab": QueueLimits(path="lab", parent=None, is_leaf=True),
    }
    for scheduler in (None, view):
        facts = DemandFacts(now=NOW, scheduler=scheduler)
        demand = gather_demand((*intruder, *waiting(40)), config, limits, facts)
        assert demand.queues["lab"].pending_pods == 40


def test_foreign_mark_leaves_a_node_without_ledger_in_service() -> None:
    mark = msgspec.structs.replace(MARK, instance="other", namespace="lab", queue="lab")
    world = World().lent("a001", was_used=True, namespace="lab", queue="lab")
    plan = lab(world.node("a001", mark=mark)).plan()
    assert plan.registry.nodes["a001"].phase is Phase.SERVING


def test_young_pod_without_a_verdict_keeps_a_node_but_requests_none() -> None:
    created = f"{NOW - timedelta(seconds=5):%Y-%m-%dT%H:%M:%SZ}"
    world = lab(pending_grace=timedelta(seconds=20))
    plan = world.with_pods(*waiting(1, is_undecided=True, created=created)).plan()
    assert not plan.actions
    assert not [group for group in plan.queues if group.verdict is Verdict.CONVERT]


def test_node_of_an_earlier_queue_is_returned_when_it_is_idle() -> None:
    """The site removed YuniKorn as queue_system while a node was lent to one of its queues."""
    plan = idle_node(QUEUE).plan()
    assert [type(action) for action in plan.actions] == [Fence]
