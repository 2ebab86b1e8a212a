"""Tests of a whole plan, made from values: its report and its actions, for every reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from dnm.model.cluster import ConfigMap
from dnm.model.config import NamespacePolicy
from dnm.model.lent import Ended, Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.node import Node
from dnm.model.node_type import NodeType
from dnm.model.observed import Backoff, Breaker
from dnm.model.orders import Pause
from dnm.model.plan import Fence, MarkNode, ReturnNode, SetQueueLimits, StartConversion, Unfence
from dnm.model.pod import PodList, PodShape
from dnm.model.reason import CORE_REASONS, Reason, ReasonText
from dnm.model.registry import QueueStatus
from dnm.model.verdict import Verdict
from dnm.plan.queue_reports import holders_of
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION
from tests.builders import (
    COUNTED,
    FENCED,
    NOW,
    QUEUE,
    SIZE,
    a_batch_node,
    a_config,
    a_request,
)
from tests.plan.worlds import (
    CONVERTER,
    LONG_AGO,
    OLD,
    SMALL,
    UNREAD,
    World,
    fenced,
    namespace_policy,
    pods,
    queue_map,
    serving,
    two_namespaces,
    wanting,
)
from tests.site import WORKSHOP_QUEUES

INVALID = WORKSHOP_QUEUES.replace("vcore: 8\n", "vcore: 800\n")
BACKS_OFF = {"a": Backoff(failures=2, until=NOW + timedelta(minutes=1), ask_at_most=1)}
QUEUE_CASES: dict[str, tuple[ReasonText, int, Callable[[], World]]] = {
    "nothing to do": (Reason.ENOUGH, 0, World),
    "quota and room": (Reason.LACKS_BOTH, 3, lambda: wanting(3)),
    "room only": (Reason.LACKS_NODES, 1, lambda: World().with_pods(*pods(2, SMALL))),
    "quota only": (Reason.LACKS_QUOTA, 1, lambda: wanting(1).node("k2", mark=None)),
    "nearly full without pending pods": (Reason.NEARLY_FULL, 1,
        lambda: World().configured(headroom=0.95).node("k2", mark=None)
            .with_pods(*pods(78, SMALL, node="k2"))),
    "kept ready": (Reason.MIN_NODES, 2,
        lambda: World().configured(namespaces=namespace_policy(a_config(), min_nodes=2))),
    "bigger than any node": (Reason.NOTHING_HELPS, 0,
        lambda: World().with_pods(*pods(1, PodShape(request={"cpu": 10**6, "pods": 1})))),
    "on the way": (Reason.ON_THE_WAY, 0,
        lambda: wanting(1).recorded(requests=(a_request(ended=True),))),
    "too young": (Reason.TOO_YOUNG, 0,
        lambda: World().configured(pending_grace=timedelta(hours=5)).with_pods(*pods(1))),
    "cap reached": (Reason.CAPPED, 0, lambda: wanting(1).configured(max_converted_nodes=0)),
    "cap per run reached": (Reason.CAPPED, 0,
        lambda: wanting(3).configured(max_conversions_per_run=0)),
    "no batch node": (Reason.NO_BATCH_NODE, 0, lambda: wanting(1).set(batch={})),
    "batch side mute": (Reason.NO_BATCH_NODE, 0, lambda: wanting(1).set(batch=UNREAD)),
    "batch side not asked": (Reason.BATCH_NOT_ASKED, 0, lambda: wanting(1).set(batch=None)),
    "cooldown": (Reason.COOLDOWN, 0,
        lambda: wanting(1).recorded(last_conversion=NOW - timedelta(seconds=10))),
    "backing off": (Reason.BACKOFF, 0, lambda: wanting(1).recorded(backoffs=BACKS_OFF)),
    "breaker": (Reason.BREAKER, 0,
        lambda: wanting(1).recorded(breakers={QUEUE: Breaker(unused=3)})),
    "paused": (Reason.PAUSED, 0, lambda: wanting(1).recorded(pause=Pause(since=LONG_AGO))),
    "nodes unreadable": (Reason.QUEUE_UNREADABLE, 0, lambda: wanting(1).set(nodes=UNREAD)),
    "document unreadable": (Reason.QUEUE_UNREADABLE, 0, lambda: wanting(1).set(maps=UNREAD)),
    "document invalid": (Reason.QUEUE_UNREADABLE, 0,
        lambda: wanting(1).set(maps=(queue_map(text=INVALID), None))),
    "not in the document": (Reason.QUEUE_UNREADABLE, 0,
        lambda: World().configured(namespaces=namespace_policy(a_config(), queue="root.gone"))),
    "pods unreadable": (Reason.DEMAND_UNREADABLE, 0, lambda: World().set(pods=UNREAD)),
    "pods of the namespace unreadable": (Reason.DEMAND_UNREADABLE, 0,
        lambda: World().set(pods=PodList(pods=(), unreadable={"dev": "403"}))),
    "pods of one of its namespaces unreadable": (Reason.DEMAND_UNREADABLE, 0,
        lambda: two_namespaces().set(pods=PodList(pods=pods(3), unreadable={"two": "403"}))),
    "pods of one of its namespaces unreadable, and no node left": (Reason.DEMAND_UNREADABLE, 0,
        lambda: two_namespaces()
            .set(pods=PodList(pods=pods(3), unreadable={"two": "403"}), batch={})),
}  # fmt: skip


@pytest.mark.parametrize("name", QUEUE_CASES)
def test_queue_decision_follows_from_each_case(name: str) -> None:
    reason, nodes, make = QUEUE_CASES[name]
    verdict = Verdict.CONVERT if nodes else Verdict.WAIT
    verdict = Verdict.KEEP if reason in (Reason.ENOUGH, Reason.NOTHING_HELPS) else verdict
    plan = make().plan()
    (queue_verdict,) = plan.queues
    assert (queue_verdict.reason, queue_verdict.verdict) == (reason, verdict), (
        queue_verdict.sentence
    )
    assert plan.status[queue_verdict.queue].verdict == verdict.value  # the next snapshot reads it
    asked = [a.request.count for a in plan.actions if isinstance(a, StartConversion)]
    assert sum(asked) == nodes


def other_queue_world() -> World:
    """Builds two queues that compete for the last node."""
    world = wanting(1).configured(max_converted_nodes=1)
    urgent = NamespacePolicy(
        name="urgent", queue="root.anvil.services.notebook", node_types=("a",), priority=5
    )
    world.configured(namespaces={**world.config.namespaces, "urgent": urgent})
    return world.with_pods(*pods(3, namespace="urgent", queue=urgent.queue, app_id="other"))


NODE_CASES: dict[str, tuple[ReasonText, Phase | None, tuple[type, ...], Callable[[], World]]] = {
    "joining": (Reason.JOINING, Phase.JOINING, (), lambda: World().lent("a001", Phase.JOINING)),
    "joined": (Reason.JOINED, Phase.SERVING, (MarkNode, SetQueueLimits),
        lambda: World().lent("a001", Phase.JOINING).node("a001", mark=None)),
    "in use": (Reason.IN_USE, Phase.SERVING, (),
        lambda: serving().with_pods(*pods(1, node="a001"))),
    "idle": (Reason.IDLE, Phase.SERVING, (), serving),
    "goes back": (Reason.IDLE_LONG_ENOUGH, Phase.RELEASING, (SetQueueLimits, Fence),
        lambda: serving(idle_since=LONG_AGO)),
    "over this run's budget": (Reason.BUDGET, Phase.SERVING, (),
        lambda: serving(idle_since=LONG_AGO).configured(max_reversions_per_run=0)),
    "needed": (Reason.NEEDED, Phase.SERVING, (),
        lambda: serving(idle_since=LONG_AGO).node("k2", mark=None)
            .with_pods(*pods(1, node="k2"), *pods(1, SMALL, created="2026-03-02T11:59:59Z"))),
    "kept ready": (Reason.KEPT_READY, Phase.SERVING, (),
        lambda: serving(idle_since=LONG_AGO)
            .configured(namespaces=namespace_policy(a_config(), min_nodes=1))),
    "held": (Reason.HELD, Phase.SERVING, (),
        lambda: serving(idle_since=LONG_AGO).recorded(held=("a001",))),
    "held by an administrator": (Reason.HELD_BY_ADMIN, Phase.SERVING, (),
        lambda: World().lent("a001", idle_since=LONG_AGO).node("a001", is_cordoned=True)),
    "paused": (Reason.PAUSED, Phase.SERVING, (),
        lambda: serving(idle_since=LONG_AGO).recorded(pause=Pause(since=LONG_AGO))),
    "seen fenced, is returned": (Reason.RETURNING, Phase.RETURNING, (ReturnNode,), fenced),
    "fenced but Slurm does not know it": (Reason.UNKNOWN, Phase.RELEASING, (),
        lambda: fenced().set(batch={})),
    "fenced and Slurm has it": (Reason.FENCED, Phase.RETURNING, (),
        lambda: fenced().set(batch={"a001": a_batch_node()})),
    "demand came back": (Reason.DEMAND_RETURNED, Phase.SERVING, (Unfence, SetQueueLimits),
        lambda: fenced().with_pods(*pods(1))),
    "queue not shrunk yet": (Reason.FENCED, Phase.RELEASING, (SetQueueLimits,),
        lambda: fenced().set(maps=(queue_map({"a001": COUNTED}), None))),
    "back": (Reason.RETURNED, None, (),
        lambda: World().lent("a001", Phase.RETURNING).set(batch={"a001": a_batch_node()})),
    "given up": (Reason.GAVE_UP, Phase.FAILED, (),
        lambda: World().lent("a001", Phase.FAILED, error="look at it")),
    "left without dnm": (Reason.LEFT, None, (SetQueueLimits,),
        lambda: World().lent("a001").set(batch={"a001": a_batch_node()})),
    "late": (Reason.LATE, Phase.FAILED, (),
        lambda: World().lent("a001", Phase.JOINING, since=LONG_AGO)),
    "another instance's": (Reason.FOREIGN, Phase.SERVING, (),
        lambda: World().lent("a001", owner="validation").node("a001")
            .set(maps=(queue_map(), None))),
    "nodes unreadable": (Reason.UNKNOWN, Phase.SERVING, (), lambda: serving().set(nodes=UNREAD)),
    "pods unreadable": (Reason.UNKNOWN, Phase.SERVING, (),
        lambda: serving(idle_since=LONG_AGO).set(pods=UNREAD)),
}  # fmt: skip


@pytest.mark.parametrize("name", NODE_CASES)
def test_node_decision_follows_from_each_case(name: str) -> None:
    reason, after, actions, make = NODE_CASES[name]
    plan = make().plan()
    (node_verdict,) = plan.nodes
    assert node_verdict.reason is reason, node_verdict.sentence
    assert tuple(type(action) for action in plan.actions) == actions
    entry = plan.registry.nodes.get("a001")
    assert (entry.phase if entry else None) is after


ELSEWHERE = {
    Reason.RETRY, Reason.CAPPED, Reason.OUTRANKED, Reason.CLAIMED,
    Reason.LEAVING, Reason.BRIDGE_EVICTS, Reason.EVICTS, Reason.MANUAL, Reason.ASKED_FOR,
    Reason.INCOMPLETE,  # tests/sizing/test_workloads.py
}  # fmt: skip


def test_each_reason_has_a_case() -> None:
    shown = {case[0] for case in (*QUEUE_CASES.values(), *NODE_CASES.values())}
    assert set(CORE_REASONS) == shown | ELSEWHERE


def test_paused_node_reports_the_comment_of_the_pause() -> None:
    why = Pause(since=LONG_AGO, reason="rack 7")
    for world in (serving(idle_since=LONG_AGO), fenced()):
        assert world.recorded(pause=why).plan().nodes[0].sentence == "dnm is paused: rack 7"


def test_lost_registry_is_rebuilt_from_marks() -> None:
    world = World().node("a001").set(maps=(queue_map({"a001": COUNTED}), None))
    plan = world.plan()
    assert plan.registry.nodes["a001"].phase is Phase.SERVING
    assert plan.registry.nodes["a001"].queue == QUEUE
    assert not any(isinstance(action, SetQueueLimits) for action in plan.actions)
    assert plan.notes == ("node=a001 has this instance's mark and is recorded again",)


def test_node_in_service_of_both_clusters_is_an_error() -> None:
    plan = serving().set(batch={"a001": a_batch_node(in_service=True)}).plan()
    assert any("at once" in error for error in plan.errors)


def test_failed_node_in_service_of_both_clusters_is_an_error() -> None:
    world = World().lent("a001", Phase.FAILED, error="late").node("a001")
    world.set(batch={"a001": a_batch_node(in_service=True)})
    assert any("at once" in error for error in world.plan().errors)
    world.nodes.clear()
    plan = world.node("a001", is_cordoned=True).plan()
    assert not any("at once" in error for error in plan.errors)


def _with_invalid_other_queue() -> ConfigMap:
    good = queue_map({"a001": dict(COUNTED)})
    text = good.data["queues.yaml"].replace("vcore: 128}", "vcore: 1280}")  # guaranteed exceeds max
    assert text != good.data["queues.yaml"]
    return msgspec.structs.replace(good, data={"queues.yaml": text})


def _with_ledger(text: str) -> ConfigMap:
    return msgspec.structs.replace(
        queue_map({"a001": dict(COUNTED)}), annotations={LEDGER_ANNOTATION: text}
    )


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(_with_invalid_other_queue(), id="another queue breaks a rule"),
        pytest.param(_with_ledger('{"version": 2}'), id="a newer ledger"),
        pytest.param(_with_ledger("{not json"), id="an unreadable ledger"),
    ],
)
def test_unwritable_limits_fence_no_node(
    document: ConfigMap,
) -> None:
    idle = serving(idle_since=LONG_AGO, was_used=True).set(maps=(document, None))
    plan = idle.plan()
    assert plan.registry.nodes["a001"].phase is Phase.SERVING and not plan.actions
    assert plan.nodes[0].reason is Reason.QUEUE_UNREADABLE and plan.errors
    assert idle.limits().objection
    for phase in (Phase.RELEASING, Phase.RETURNING):
        world = World().lent("a001", phase, was_used=True, since=NOW)
        world.node("a001", is_cordoned=True, mark=FENCED).lent("a002", Phase.JOINING, since=NOW)
        world.node("a002", mark=None).set(maps=(document, None))
        plan = world.plan()
        assert plan.registry.nodes["a002"].phase is Phase.SERVING, phase
        assert not any(isinstance(action, ReturnNode | Fence) for action in plan.actions)
        if phase is Phase.RELEASING:
            assert Unfence(node="a001") in plan.actions


def test_names_reported_before_a_run_was_killed_are_completed() -> None:
    process = ConverterProcess(pid=1, start_ticks=1)
    request = a_request(count=2, names=("a001",), ended=False, converter=process)
    world = World().recorded(requests=(request,))
    world.set(batch={name: a_batch_node(name, in_service=False) for name in ("a001", "a002")})
    ended = {request.id: Ended(exit_code=0, names=("a001", "a002"))}
    plan = world.with_facts(ended=ended).plan()
    assert sorted(plan.registry.nodes) == ["a001", "a002"]


def test_unreadable_namespace_stops_only_its_own_queue() -> None:
    world = other_queue_world().configured(max_converted_nodes=9)
    plan = world.set(pods=PodList(pods=world.pods, unreadable={"urgent": "403"})).plan()
    reasons = {verdict.queue: verdict.reason for verdict in plan.queues}
    assert reasons["root.anvil.services.notebook"] is Reason.DEMAND_UNREADABLE
    assert [a.request.queue for a in plan.actions if isinstance(a, StartConversion)] == [QUEUE]
    assert any("urgent" in error for error in plan.errors)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        pytest.param("puppet failed", "puppet failed", id="after-an-error"),
        pytest.param("", "its converter reported no error", id="without-an-error"),
    ],
)
def test_nodes_that_did_not_join_are_reported_with_the_cause(error: str, why: str) -> None:
    late = a_request(ended=True, since=LONG_AGO, error=error)
    world = World().recorded(requests=(late,))
    world.batch["a001"] = a_batch_node("a001", in_service=False)  # it may be half converted
    plan = world.plan()
    (line,) = [
        line for line in plan.errors if f"did not join in time (request={late.id}): {why}; " in line
    ]
    assert f"converter={late.id}" in line and "`dnm nodes`" in line
    assert plan.registry.backoffs["a"].last_error == line


def test_failed_converter_of_a_killed_run_causes_the_back_off() -> None:
    world = World().recorded(requests=(a_request(converter=CONVERTER),))
    end = Ended(exit_code=3, last_lines=("puppet failed",))
    backoff = world.with_facts(ended={a_request().id: end}).plan().registry.backoffs["a"]
    assert backoff.last_error == end.error


def test_queue_that_gets_a_node_does_not_report_waiting() -> None:
    """If only one of the namespaces that share a queue gets a node, the queue reports that."""
    world = two_namespaces().configured(max_conversions_per_run=3)
    world.with_pods(*pods(3), *pods(3, namespace="two", app_id="b"))
    plan = world.plan()
    assert any(isinstance(action, StartConversion) for action in plan.actions)
    assert plan.queues[0].verdict is Verdict.CONVERT


def test_status_records_waiting_pods_and_their_start() -> None:
    world = serving().with_pods(*pods(1, node="a001"), *pods(2))
    plan = world.plan()
    status, decision = plan.status[QUEUE], plan.decisions[QUEUE]
    assert status.lent == COUNTED and status.pending_pods == 2
    assert status.limit["cpu"] == status.baseline["cpu"] + SIZE["cpu"]
    assert isinstance(status, QueueStatus)
    assert decision.headroom["cpu"] == decision.limit["cpu"] - decision.used["cpu"] > 0
    assert status.is_demand_read and status.waits_since == OLD
    blind = PodList(pods=world.pods[:1], unreadable={"dev": "403"})
    status = world.set(pods=blind).plan().status[QUEUE]
    assert not status.is_demand_read and status.waits_since == ""


def test_equal_facts_give_equal_plans() -> None:
    makes = [row[-1] for row in QUEUE_CASES.values()] + [row[-1] for row in NODE_CASES.values()]
    for make in makes:
        assert make().plan() == make().plan()


def test_plan_text_does_not_change_with_the_minute() -> None:
    """If the text had times in it, a run without other changes would write the registry."""
    world = serving(idle_since=NOW)
    first = world.plan()
    second = world.with_facts(taken_at=NOW + timedelta(minutes=2)).plan()
    assert (first.nodes, first.queues, first.registry) == (
        second.nodes, second.queues, second.registry
    )  # fmt: skip


def test_node_of_a_removed_type_is_returned() -> None:
    world = serving(idle_since=LONG_AGO).configured(
        node_types={"b": NodeType(name="b", size=SIZE)},
        namespaces=namespace_policy(a_config(), node_types=("b",)),
    )
    assert isinstance(world.nodes[-1], Node)
    assert [type(a) for a in world.plan().actions] == [SetQueueLimits, Fence]


def test_recorded_pods_do_not_depend_on_their_order() -> None:
    """A full list of pods and a list with later changes have different orders."""
    five = pods(5, SMALL, node="a001")
    assert holders_of(five, {"a001"}) == holders_of(five[::-1], {"a001"})
