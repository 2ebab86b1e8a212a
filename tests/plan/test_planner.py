"""What a plan says and does, for every reason it can give. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from dnm.model.cluster import ConfigMap
from dnm.model.config import NamespacePolicy
from dnm.model.last_run import QueueStatus
from dnm.model.lent import ConverterProcess, Ended, Phase
from dnm.model.node import Mark, Node
from dnm.model.node_type import NodeType
from dnm.model.observed import Backoff, Breaker
from dnm.model.orders import Pause
from dnm.model.plan import Fence, MarkNode, ReturnNode, SetQueueLimits, StartConversion, Unfence
from dnm.model.pod import PodList, PodShape
from dnm.model.reason import Reason
from dnm.model.verdict import Verdict
from dnm.plan.planner import make_plan
from dnm.queues.source import LEDGER_ANNOTATION
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

QUEUE_CASES: dict[str, tuple[Callable[[], World], Reason, Verdict, int]] = {
    "nothing to do": (World, Reason.ENOUGH, Verdict.KEEP, 0),
    "quota and room": (lambda: wanting(3), Reason.LACKS_BOTH, Verdict.CONVERT, 3),
    "room only": (
        lambda: World().with_pods(*pods(2, SMALL)),
        Reason.LACKS_ROOM,
        Verdict.CONVERT,
        1,
    ),
    "quota only": (
        lambda: wanting(1).node("k2", mark=None),
        Reason.LACKS_QUOTA,
        Verdict.CONVERT,
        1,
    ),
    "nearly full without pending pods": (
        lambda: (
            World()
            .configured(headroom=0.95)
            .node("k2", mark=None)
            .with_pods(*pods(78, SMALL, node="k2", running=True))
        ),
        Reason.NEARLY_FULL,
        Verdict.CONVERT,
        1,
    ),
    "kept ready": (
        lambda: World().configured(namespaces=namespace_policy(a_config(), min_nodes=2)),
        Reason.MIN_NODES,
        Verdict.CONVERT,
        2,
    ),
    "bigger than any node": (
        lambda: World().with_pods(*pods(1, PodShape(request={"vcore": 10**6, "pods": 1}))),
        Reason.NOTHING_HELPS,
        Verdict.KEEP,
        0,
    ),
    "on the way": (
        lambda: wanting(1).recorded(requests=(a_request(ended=True),)),
        Reason.ON_THE_WAY,
        Verdict.WAIT,
        0,
    ),
    "too young": (
        lambda: World().configured(pending_grace=timedelta(hours=5)).with_pods(*pods(1)),
        Reason.TOO_YOUNG,
        Verdict.WAIT,
        0,
    ),
    "cap reached": (
        lambda: wanting(1).configured(max_converted_nodes=0),
        Reason.CAPPED,
        Verdict.WAIT,
        0,
    ),
    "cap per run reached": (
        lambda: wanting(3).configured(max_conversions_per_run=0),
        Reason.CAPPED,
        Verdict.WAIT,
        0,
    ),
    "no batch node": (lambda: wanting(1).set(batch={}), Reason.NO_BATCH_NODE, Verdict.WAIT, 0),
    "batch side mute": (
        lambda: wanting(1).set(batch=UNREAD),
        Reason.NO_BATCH_NODE,
        Verdict.WAIT,
        0,
    ),
    "batch side not asked": (
        lambda: wanting(1).set(batch=None),
        Reason.BATCH_NOT_ASKED,
        Verdict.WAIT,
        0,
    ),
    "cooldown": (
        lambda: wanting(1).recorded(last_conversion=NOW - timedelta(seconds=10)),
        Reason.COOLDOWN,
        Verdict.WAIT,
        0,
    ),
    "cooldown set by a wrong clock": (
        lambda: wanting(1).recorded(last_conversion=NOW + timedelta(days=9)),
        Reason.LACKS_BOTH,
        Verdict.CONVERT,
        1,
    ),
    "backing off": (
        lambda: wanting(1).recorded(
            backoffs={"a": Backoff(failures=2, until=NOW + timedelta(minutes=1), ask_at_most=1)}
        ),
        Reason.BACKOFF,
        Verdict.WAIT,
        0,
    ),
    "after a back-off fewer are asked for": (
        lambda: wanting(4).recorded(
            backoffs={"a": Backoff(failures=2, until=NOW - timedelta(minutes=1), ask_at_most=2)}
        ),
        Reason.LACKS_BOTH,
        Verdict.CONVERT,
        2,
    ),
    "breaker": (
        lambda: wanting(1).recorded(breakers={QUEUE: Breaker(unused=3)}),
        Reason.BREAKER,
        Verdict.WAIT,
        0,
    ),
    "breaker of another demand": (
        lambda: wanting(1).recorded(
            breakers={QUEUE: Breaker(unused=3, tripped_at=LONG_AGO, demand="other")}
        ),
        Reason.LACKS_BOTH,
        Verdict.CONVERT,
        1,
    ),
    "paused": (
        lambda: wanting(1).recorded(pause=Pause(since=LONG_AGO)),
        Reason.PAUSED,
        Verdict.WAIT,
        0,
    ),
    "a pause that is over": (
        lambda: wanting(1).recorded(pause=Pause(since=LONG_AGO, until=NOW - timedelta(minutes=1))),
        Reason.LACKS_BOTH,
        Verdict.CONVERT,
        1,
    ),
    "document unreadable": (
        lambda: wanting(1).set(maps=UNREAD),
        Reason.QUEUE_UNREADABLE,
        Verdict.WAIT,
        0,
    ),
    "document invalid": (
        lambda: wanting(1).set(
            maps=(queue_map(text=WORKSHOP_QUEUES.replace("vcore: 8\n", "vcore: 800\n")), None)
        ),
        Reason.QUEUE_UNREADABLE,
        Verdict.WAIT,
        0,
    ),
    "pods unreadable": (
        lambda: World().set(pods=UNREAD),
        Reason.DEMAND_UNREADABLE,
        Verdict.WAIT,
        0,
    ),
    "pods of the namespace unreadable": (
        lambda: World().set(pods=PodList(pods=(), unreadable={"dev": "403"})),
        Reason.DEMAND_UNREADABLE,
        Verdict.WAIT,
        0,
    ),
    "pods of one of its namespaces unreadable": (
        lambda: two_namespaces().set(pods=PodList(pods=pods(3), unreadable={"two": "403"})),
        Reason.DEMAND_UNREADABLE,
        Verdict.WAIT,
        0,
    ),
    "pods of one of its namespaces unreadable, and no node left": (
        lambda: two_namespaces().set(
            pods=PodList(pods=pods(3), unreadable={"two": "403"}), batch={}
        ),
        Reason.DEMAND_UNREADABLE,
        Verdict.WAIT,
        0,
    ),
}


@pytest.mark.parametrize("name", QUEUE_CASES)
def test_a_queue_s_verdict(name: str) -> None:
    make, reason, verdict, nodes = QUEUE_CASES[name]
    plan = make().plan()
    (found,) = plan.queues
    assert (found.reason, found.verdict) == (reason, verdict), found.sentence
    asked = [a.request.count for a in plan.actions if isinstance(a, StartConversion)]
    assert sum(asked) == nodes


def other_queue_world() -> World:
    """Two queues want the last node; the one with the higher priority gets it."""
    world = wanting(1).configured(max_converted_nodes=1)
    urgent = NamespacePolicy(
        name="urgent", queue="root.anvil.services.notebook", node_types=("a",), priority=5
    )
    world.configured(namespaces={**world.config.namespaces, "urgent": urgent})
    return world.with_pods(*pods(3, namespace="urgent", queue=urgent.queue, app_id="other"))


def test_priority_decides_who_gets_the_last_node() -> None:
    plan = other_queue_world().plan()
    assert {v.queue: v.reason for v in plan.queues}[QUEUE] in (Reason.OTHERS_FIRST, Reason.CAPPED)
    (conversion,) = [a for a in plan.actions if isinstance(a, StartConversion)]
    assert conversion.request.queue == "root.anvil.services.notebook"


NODE_CASES: dict[str, tuple[Callable[[], World], Reason, tuple[type, ...], Phase | None]] = {
    "joining": (lambda: World().lent("a001", Phase.JOINING), Reason.JOINING, (), Phase.JOINING),
    "joined": (
        lambda: World().lent("a001", Phase.JOINING).node("a001", mark=None),
        Reason.JOINED,
        (MarkNode, SetQueueLimits),
        Phase.SERVING,
    ),
    "in use": (
        lambda: serving().with_pods(*pods(1, node="a001")),
        Reason.IN_USE,
        (),
        Phase.SERVING,
    ),
    "idle": (serving, Reason.IDLE, (), Phase.SERVING),
    "mark lost": (
        lambda: World().lent("a001").node("a001", mark=None),
        Reason.IDLE,
        (MarkNode,),
        Phase.SERVING,
    ),
    "fence left by a killed run": (
        lambda: World().lent("a001").node("a001", is_cordoned=True, mark=FENCED),
        Reason.IDLE,
        (Unfence,),
        Phase.SERVING,
    ),
    "goes back": (
        lambda: serving(idle_since=LONG_AGO),
        Reason.IDLE_LONG_ENOUGH,
        (SetQueueLimits, Fence),
        Phase.RELEASING,
    ),
    "over this run's budget": (
        lambda: serving(idle_since=LONG_AGO).configured(max_reversions_per_run=0),
        Reason.BUDGET,
        (),
        Phase.SERVING,
    ),
    "needed": (
        lambda: (
            serving(idle_since=LONG_AGO)
            .node("k2", mark=None)
            .with_pods(*pods(1, node="k2"), *pods(1, SMALL, created="2026-03-02T11:59:59Z"))
        ),
        Reason.NEEDED,
        (),
        Phase.SERVING,
    ),
    "kept ready": (
        lambda: serving(idle_since=LONG_AGO).configured(
            namespaces=namespace_policy(a_config(), min_nodes=1)
        ),
        Reason.KEPT_READY,
        (),
        Phase.SERVING,
    ),
    "held": (
        lambda: serving(idle_since=LONG_AGO).recorded(held=("a001",)),
        Reason.HELD,
        (),
        Phase.SERVING,
    ),
    "held by an administrator": (
        lambda: World().lent("a001", idle_since=LONG_AGO).node("a001", is_cordoned=True),
        Reason.HELD_BY_ADMIN,
        (),
        Phase.SERVING,
    ),
    "paused": (
        lambda: serving(idle_since=LONG_AGO).recorded(pause=Pause(since=LONG_AGO)),
        Reason.PAUSED,
        (),
        Phase.SERVING,
    ),
    "seen fenced, is returned": (fenced, Reason.RETURNING, (ReturnNode,), Phase.RETURNING),
    "fence not there yet": (
        lambda: World().lent("a001", Phase.RELEASING).node("a001"),
        Reason.FENCED,
        (Fence,),
        Phase.RELEASING,
    ),
    "fenced but Slurm is mute": (
        lambda: fenced().set(batch=UNREAD),
        Reason.UNKNOWN,
        (),
        Phase.RELEASING,
    ),
    "demand came back": (
        lambda: fenced().with_pods(*pods(1)),
        Reason.DEMAND_RETURNED,
        (Unfence, SetQueueLimits),
        Phase.SERVING,
    ),
    "held while fenced": (
        lambda: fenced().recorded(held=("a001",)),
        Reason.HELD,
        (Unfence, SetQueueLimits),
        Phase.SERVING,
    ),
    "queue not shrunk yet": (
        lambda: fenced().set(maps=(queue_map({"a001": COUNTED}), None)),
        Reason.FENCED,
        (SetQueueLimits,),
        Phase.RELEASING,
    ),
    "back": (
        lambda: World().lent("a001", Phase.RETURNING).set(batch={"a001": a_batch_node()}),
        Reason.RETURNED,
        (),
        None,
    ),
    "tried again": (
        lambda: (
            World()
            .lent("a001", Phase.RETURNING, attempts=1, retry_after=LONG_AGO)
            .set(batch={"a001": a_batch_node(in_service=False)})
        ),
        Reason.RETURNING,
        (ReturnNode,),
        Phase.RETURNING,
    ),
    "given up": (
        lambda: World().lent("a001", Phase.FAILED, error="look at it"),
        Reason.GAVE_UP,
        (),
        Phase.FAILED,
    ),
    "left without dnm": (
        lambda: World().lent("a001").set(batch={"a001": a_batch_node()}),
        Reason.GONE,
        (SetQueueLimits,),
        None,
    ),
    "late": (
        lambda: World().lent("a001", Phase.JOINING, since=LONG_AGO),
        Reason.LATE,
        (),
        Phase.FAILED,
    ),
    "another instance's": (
        lambda: World().lent("a001", owner="validation").node("a001").set(maps=(queue_map(), None)),
        Reason.NOT_OURS,
        (),
        Phase.SERVING,
    ),
    "nodes unreadable": (lambda: serving().set(nodes=UNREAD), Reason.UNKNOWN, (), Phase.SERVING),
    "pods unreadable": (
        lambda: serving(idle_since=LONG_AGO).set(pods=UNREAD),
        Reason.UNKNOWN,
        (),
        Phase.SERVING,
    ),
}


@pytest.mark.parametrize("name", NODE_CASES)
def test_a_node_s_verdict(name: str) -> None:
    make, reason, actions, after = NODE_CASES[name]
    plan = make().plan()
    (found,) = plan.nodes
    assert found.reason is reason, found.sentence
    assert tuple(type(action) for action in plan.actions) == actions
    entry = plan.registry.nodes.get("a001")
    assert (entry.phase if entry else None) is after


ELSEWHERE = {
    Reason.RETRY, Reason.CAPPED, Reason.OTHERS_FIRST, Reason.CLAIMED, Reason.KUBELET_SETTINGS,
    Reason.BATCH_FLOOR, Reason.HOURS_SPENT, Reason.LEAVING,
    Reason.BRIDGE_EVICTS, Reason.EVICTS, Reason.BY_HAND, Reason.ASKED_FOR, Reason.MOVING,
    Reason.MOVED, Reason.STAYS, Reason.OPENING, Reason.NOT_OPENED,
}  # fmt: skip


def test_every_reason_is_shown_by_a_case() -> None:
    shown = {case[1] for case in (*QUEUE_CASES.values(), *NODE_CASES.values())}
    assert set(Reason) == shown | ELSEWHERE


def test_a_pause_says_why_to_every_node_that_it_keeps() -> None:
    why = Pause(since=LONG_AGO, reason="rack 7")
    for world in (serving(idle_since=LONG_AGO), fenced()):
        assert world.recorded(pause=why).plan().nodes[0].sentence == "dnm is paused: rack 7"


def test_a_lost_registry_is_rebuilt_from_the_marks() -> None:
    world = World().node("a001").set(maps=(queue_map({"a001": COUNTED}), None))
    plan = world.plan()
    assert plan.registry.nodes["a001"].phase is Phase.SERVING
    assert plan.registry.nodes["a001"].queue == QUEUE
    assert not any(isinstance(action, SetQueueLimits) for action in plan.actions)


def test_another_instance_s_mark_is_not_ours() -> None:
    mark = Mark(instance="validation", node_type="a", namespace="dev", queue=QUEUE)
    plan = World().node("a001", mark=mark).plan()
    assert not plan.registry.nodes and not plan.actions


def test_a_node_offered_to_both_is_shouted_about() -> None:
    plan = serving().set(batch={"a001": a_batch_node(in_service=True)}).plan()
    assert any("at once" in error for error in plan.errors)


def test_a_failed_node_offered_to_both_is_shouted_about() -> None:
    world = World().lent("a001", Phase.FAILED, error="late").node("a001")
    world.set(batch={"a001": a_batch_node(in_service=True)})
    assert any("at once" in error for error in world.plan().errors)
    world.nodes.clear()
    plan = world.node("a001", is_cordoned=True).plan()
    assert not any("at once" in error for error in plan.errors)


def _with_invalid_other_queue() -> ConfigMap:
    good = queue_map({"a001": dict(COUNTED)})
    text = good.data["queues.yaml"].replace("vcore: 128}", "vcore: 1280}")  # guaranteed > max
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
def test_where_no_limit_can_be_changed_nobody_is_fenced_and_others_go_on(
    document: ConfigMap,
) -> None:
    idle = serving(idle_since=LONG_AGO, was_used=True).set(maps=(document, None))
    plan = idle.plan()
    assert plan.registry.nodes["a001"].phase is Phase.SERVING and not plan.actions
    assert plan.nodes[0].reason is Reason.QUEUE_UNREADABLE and plan.errors
    for phase in (Phase.RELEASING, Phase.RETURNING):
        world = World().lent("a001", phase, was_used=True, since=NOW)
        world.node("a001", is_cordoned=True, mark=FENCED).lent("a002", Phase.JOINING, since=NOW)
        world.node("a002", mark=None).set(maps=(document, None))
        plan = world.plan()
        assert plan.registry.nodes["a002"].phase is Phase.SERVING, phase
        assert not any(isinstance(action, ReturnNode | Fence) for action in plan.actions)
        if phase is Phase.RELEASING:
            assert Unfence(node="a001") in plan.actions


def test_a_queue_outside_the_prefixes_keeps_its_nodes_and_says_why() -> None:
    idle = serving(idle_since=LONG_AGO, was_used=True)
    plan = idle.configured(allowed_queue_prefixes=("root.other",)).plan()
    assert not plan.actions and "outside allowed_queue_prefixes" in plan.nodes[0].sentence
    fenced_before = World().lent("a001", Phase.RELEASING, was_used=True, since=LONG_AGO)
    fenced_before.node("a001", is_cordoned=True, mark=FENCED)
    fenced_before.set(maps=(queue_map({"a001": dict(COUNTED)}), None))
    fenced_before.set(batch={"a001": a_batch_node(in_service=False)})
    plan = fenced_before.configured(allowed_queue_prefixes=("root.other",)).plan()
    assert Unfence(node="a001") in plan.actions


def test_a_breaker_that_tripped_in_the_future_waits_no_longer_than_one_that_trips_now() -> None:
    verdicts = [
        wanting(1)
        .recorded(breakers={QUEUE: Breaker(unused=3, tripped_at=tripped_at, demand="other")})
        .plan()
        .queues
        for tripped_at in (NOW, NOW + timedelta(days=3650))
    ]
    assert verdicts[0] == verdicts[1]


def test_names_that_a_run_has_heard_before_it_left_are_not_all() -> None:
    process = ConverterProcess(pid=1, start_ticks=1)
    request = a_request(count=2, names=("a001",), ended=False, converter=process)
    world = World().recorded(requests=(request,))
    world.set(batch={name: a_batch_node(name, in_service=False) for name in ("a001", "a002")})
    ended = {request.id: Ended(exit_code=0, names=("a001", "a002"))}
    snapshot = msgspec.structs.replace(world.snapshot(), ended=ended)
    plan = make_plan(world.config, world.registry, snapshot)
    assert sorted(plan.registry.nodes) == ["a001", "a002"]


def test_an_unreadable_namespace_stops_only_its_own_queue() -> None:
    world = other_queue_world().configured(max_converted_nodes=9)
    snapshot = world.snapshot()
    assert isinstance(snapshot.pods, PodList)
    partly = msgspec.structs.replace(snapshot.pods, unreadable={"urgent": "403"})
    plan = make_plan(world.config, world.registry, msgspec.structs.replace(snapshot, pods=partly))
    reasons = {verdict.queue: verdict.reason for verdict in plan.queues}
    assert reasons["root.anvil.services.notebook"] is Reason.DEMAND_UNREADABLE
    assert [a.request.queue for a in plan.actions if isinstance(a, StartConversion)] == [QUEUE]
    assert any("urgent" in error for error in plan.errors)


def test_nodes_that_were_there_before_are_never_the_request_s() -> None:
    plan = wanting(1).node("a007", mark=None).plan()
    (action,) = [a for a in plan.actions if isinstance(a, StartConversion)]
    assert action.request.known_nodes == ("a007",)


def test_the_cap_counts_marked_nodes_and_conversions_under_way() -> None:
    world = wanting(5).configured(max_converted_nodes=4).node("a001")
    world.recorded(requests=(a_request(count=2, ended=True, since=NOW),))
    world.set(maps=(queue_map({"a001": COUNTED}), None))
    (action,) = [a for a in world.plan().actions if isinstance(a, StartConversion)]
    assert action.request.count == 1


def test_several_late_nodes_are_one_failed_conversion() -> None:
    world = World()
    for number in range(4):
        world.lent(f"a00{number}", Phase.JOINING, since=LONG_AGO)
    backoff = world.plan().registry.backoffs["a"]
    assert backoff.failures == 1
    assert backoff.last_error.startswith("a000 did not join in time: a000 is not in Kubernetes")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        pytest.param("puppet failed", "puppet failed", id="after-an-error"),
        pytest.param("", "its converter reported no error", id="without-an-error"),
    ],
)
def test_nodes_that_did_not_join_are_said_to_with_the_cause(error: str, why: str) -> None:
    late = a_request(ended=True, since=LONG_AGO, error=error)
    world = World().recorded(requests=(late,))
    world.batch["a001"] = a_batch_node("a001", in_service=False)  # it may have been half converted
    plan = world.plan()
    (line,) = [line for line in plan.errors if f"did not join in time: {why}; " in line]
    assert f"converter={late.id}" in line and "`dnm nodes`" in line
    assert plan.registry.backoffs["a"].last_error == line


def test_a_killed_run_s_converter_that_failed_is_the_cause_of_the_back_off() -> None:
    world = World().recorded(requests=(a_request(converter=CONVERTER),))
    end = Ended(exit_code=3, last_lines=("puppet failed",))
    ended = msgspec.structs.replace(world.snapshot(), ended={a_request().id: end})
    backoff = make_plan(world.config, world.registry, ended).registry.backoffs["a"]
    assert backoff.last_error == end.error


def test_a_conversion_waits_a_run_for_the_batch_side_that_was_not_asked() -> None:
    plan = wanting(1).set(batch=None).plan()
    assert not plan.actions and plan.queues[0].reason is Reason.BATCH_NOT_ASKED
    assert plan.status[QUEUE].verdict == "wait"  # so the next snapshot asks


def test_a_queue_that_gets_a_node_is_not_said_to_wait() -> None:
    """Two namespaces share a queue; what the run can't start for one is started for the other."""
    world = two_namespaces().configured(max_conversions_per_run=3)
    world.with_pods(*pods(3), *pods(3, namespace="two", app_id="b"))
    plan = world.plan()
    assert any(isinstance(action, StartConversion) for action in plan.actions)
    assert plan.queues[0].verdict is Verdict.CONVERT


def test_status_keeps_what_people_ask_for() -> None:
    status = serving().with_pods(*pods(1, node="a001"), *pods(2)).plan().status[QUEUE]
    assert status.lent == COUNTED and status.pending_pods == 2
    assert status.limit["vcore"] == status.baseline["vcore"] + SIZE["vcore"]
    assert isinstance(status, QueueStatus)


def test_equal_facts_give_equal_plans() -> None:
    for make, *_ in (*QUEUE_CASES.values(), *NODE_CASES.values()):
        assert make().plan() == make().plan()


def test_what_a_plan_says_does_not_change_with_the_minute() -> None:
    """So that a run without a change rewrites nothing."""
    world = serving(idle_since=NOW - timedelta(minutes=3))
    later = msgspec.structs.replace(world.snapshot(), taken_at=NOW + timedelta(minutes=2))
    first, second = world.plan(), make_plan(world.config, world.registry, later)
    assert (first.nodes, first.queues, first.registry) == (
        second.nodes, second.queues, second.registry
    )  # fmt: skip


def test_a_type_that_the_configuration_no_longer_knows_strands_no_node() -> None:
    world = serving(idle_since=LONG_AGO).configured(
        node_types={"b": NodeType(name="b", size=SIZE)},
        namespaces=namespace_policy(a_config(), node_types=("b",)),
    )
    assert isinstance(world.nodes[-1], Node)
    assert [type(a) for a in world.plan().actions] == [SetQueueLimits, Fence]
