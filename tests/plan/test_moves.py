"""Tests of `move_in_place`, which gives a lent node to another queue without a reboot: which may
move, and what facts mean meanwhile. An interrupted move ends in one of the two queues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.model.batch import BatchClaim
from dnm.model.cluster import RefusedPods
from dnm.model.config import NamespacePolicy
from dnm.model.departure import Leaving
from dnm.model.lent import Phase
from dnm.model.lent_state import MovePause, Moving, Serving
from dnm.model.node import Node
from dnm.model.node_type import NodeType, Taint
from dnm.model.observed import Breaker, SpentHours
from dnm.model.orders import Keeping, Pause, Way
from dnm.model.plan import (
    Fence,
    Plan,
    RelabelNode,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    Unfence,
)
from dnm.model.pod import PodList, Toleration
from dnm.model.quota import ResourceQuota
from dnm.model.share import Share
from dnm.model.value import Unreadable
from dnm.model.verdict import Verdict
from dnm.plan.breaker import after_transition
from dnm.plan.rules.moving import MOVING, change_labels
from dnm.plan.rules.node_hours import hour_bounds, hours_left, record_hours, week_of
from dnm.queues.resource_quota.objects import QuotaFacts
from dnm.sizing.caps import count_caps, lent_in
from tests.builders import COUNTED, MARK, NOW, SIZE, a_batch_node, a_lent_node, a_request
from tests.plan.worlds import BIG, CONVERTER, LONG_AGO, SMALL, World, pods, queue_map

OTHER = "root.anvil.services.notebook"
DEV, NOTEBOOK = (Taint(key="for", value=name, effect="NoSchedule") for name in ("dev", "notebook"))
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
MIXED = {"kubernetes.io/os": "linux"}
TYPE = NodeType(
    name="a",
    size=SIZE,
    labels={"site/for": "{namespace}", "site/{namespace}": "yes", "site/pool": "lent"},
    taints=(Taint(key="for", value="{namespace}", effect="NoSchedule"),),
)
LABELS = {
    name: {name: "true", "site/for": name, f"site/{name}": "yes", "site/pool": "lent"}
    for name in ("dev", "notebook")
}
IDLE = NOW - timedelta(minutes=2)
MOVE = Moving(since=NOW, to="notebook")
HALF = Share(percent=50)
SILENT = Unreadable(subject="batch", error="the converter's list did not answer")


def site(**policy: Any) -> World:
    """Builds two namespaces, each with its own queue; `policy` is that of the second one."""
    world = World()
    more = NamespacePolicy(
        name="notebook", queue=OTHER, node_types=policy.pop("node_types", ("a",)), **policy
    )
    types = {"a": TYPE, "b": NodeType(name="b", size=SIZE)}
    return world.configured(
        namespaces={**world.config.namespaces, "notebook": more},
        node_types=types,
        move_in_place=True,
    )


def wanted(world: World, count: int = 1) -> World:
    """Adds pending pods of the second namespace that only its own nodes accept."""
    tolerates = Toleration(key="for", value="notebook")
    shape = msgspec.structs.replace(BIG, tolerations=(tolerates,))
    return world.with_pods(*pods(count, shape, namespace="notebook", queue=OTHER, app_id="other"))


def wanted_back(world: World) -> World:
    """Adds a pending pod of the first namespace that only its own nodes accept."""
    shape = msgspec.structs.replace(BIG, tolerations=(Toleration(key="for", value="dev"),))
    return world.with_pods(*pods(1, shape))


def node_fields(namespace: str, **changes: Any) -> dict[str, Any]:
    """Returns the Node fields of a node that is lent to the namespace."""
    taint = DEV if namespace == "dev" else NOTEBOOK
    mark = msgspec.structs.replace(MARK, namespace=namespace, queue=OTHER)
    mark = MARK if namespace == "dev" else mark
    return {"labels": {**MIXED, **LABELS[namespace]}, "taints": (taint,), "mark": mark, **changes}


def idle(**changes: Any) -> World:
    """Builds an empty node of the first namespace, and pods of the second one that need it."""
    return of_idle(wanted(site()), **changes)


def of_idle(world: World, **changes: Any) -> World:
    entry = {"idle_since": IDLE, "was_used": True, "since": LONG_AGO, **changes}
    return world.lent("a001", **entry).node("a001", **node_fields("dev"))


def fenced(namespace: str, **changes: Any) -> dict[str, Any]:
    """Returns the Node fields of a node that dnm has fenced."""
    carried = node_fields(namespace)
    mark = msgspec.structs.replace(carried["mark"], fenced=True)
    taints = (*carried["taints"], CORDON)
    return {**carried, "mark": mark, "taints": taints, "is_cordoned": True, **changes}


def moving(world: World | None = None, node: dict[str, Any] | None = None, **entry: Any) -> World:
    """Builds the world after a run that began a move: the node is fenced, and no limit has it."""
    world = wanted(site()) if world is None else world
    changes = {"to": "notebook", "was_used": True, "since": NOW - timedelta(minutes=1), **entry}
    world.lent("a001", Phase.MOVING, **changes)
    if node is None or node:
        world.node("a001", **(node or fenced("dev")))
    batch = {"a001": a_batch_node(in_service=False), "a050": a_batch_node("a050")}
    return world.set(batch=batch)


def kinds(plan: Plan) -> list[type]:
    return [type(action) for action in plan.actions if not isinstance(action, StartConversion)]


def test_moving_node_is_fenced_and_its_queue_shrinks_first() -> None:
    plan = idle().plan()
    entry = plan.registry.nodes["a001"]
    assert (entry.state, entry.namespace) == (MOVE, "dev")
    assert kinds(plan) == [SetQueueLimits, Fence]
    assert plan.nodes[0].reason is MOVING
    assert not plan.registry.requests, "it is on its way to the queue that wants one"
    assert not any(plan.status[queue].lent for queue in plan.status)


WORLDS: dict[str, Callable[[], World]] = {
    "the key is off": lambda: idle().configured(move_in_place=False),
    "idle for half a minute": lambda: idle(idle_since=NOW - timedelta(seconds=30)),
    "in use": lambda: idle().with_pods(*pods(1, SMALL, node="a001")),
    "held": lambda: idle().recorded(held=("a001",)),
    "excluded": lambda: idle().recorded(excluded={"a001": Keeping(since=LONG_AGO)}),
    "kept out by the configuration": lambda: idle().configured(exclude_nodes=frozenset({"a001"})),
    "a person's": lambda: idle(stays_until=NOW + timedelta(hours=1)),
    "it leaves": lambda: idle(leaves=Leaving.MANUAL),
    "it failed to move": lambda: idle(
        move_pause=MovePause(attempts=1, until=NOW + timedelta(minutes=1))
    ),
    "its converter is at work": lambda: _converting(idle()),
    "a converter has it": lambda: idle().set(
        batch={
            "a001": a_batch_node(
                in_service=False, claim=BatchClaim(instance="prod", direction="batch")
            )
        }
    ),
    "paused": lambda: idle().recorded(pause=Pause(since=LONG_AGO)),
    "lending is paused": lambda: idle().recorded(pause=Pause(since=LONG_AGO, half=Way.LENDING)),
    "its own queue wants it": lambda: wanted_back(idle()),
    "min_nodes": lambda: _dev(idle(), min_nodes=1),
    "nobody wants one": lambda: of_idle(site()),
    "another type is wanted": lambda: of_idle(wanted(site(node_types=("b",)))),
    "a cap": lambda: of_idle(wanted(site(max_nodes=0))),
    "a budget": lambda: of_idle(wanted(site(options={"node_hours_per_week": 1}))).recorded(
        spent_hours={"notebook": SpentHours(week=week_of(NOW), seconds=3600)}
    ),
    "a breaker": lambda: idle().recorded(
        breakers={OTHER: Breaker(unused=3, tripped_at=NOW, trips=3)}
    ),
    "it carries the other one's label already": lambda: _labelled(idle()),
    "the pods are another's": lambda: of_idle(site()).with_pods(
        *pods(1, namespace="lab", queue="root.lab")
    ),
}


def _converting(world: World) -> World:
    """Adds a lend request of the first namespace, of which the converter runs."""
    world.with_facts(running_converters=frozenset((CONVERTER,)))
    return world.recorded(requests=(a_request(converter=CONVERTER),))


def _labelled(world: World) -> World:
    world.nodes[-1] = msgspec.structs.replace(
        world.nodes[-1], labels={**world.nodes[-1].labels, "notebook": "true"}
    )
    return world


def _dev(world: World, **changes: Any) -> World:
    policy = msgspec.structs.replace(world.config.namespaces["dev"], **changes)
    return world.configured(namespaces={**world.config.namespaces, "dev": policy})


@pytest.mark.parametrize("name", WORLDS)
def test_node_does_not_move_if_anything_keeps_it(name: str) -> None:
    plan = WORLDS[name]().plan()
    assert plan.registry.nodes["a001"].phase is not Phase.MOVING
    assert RelabelNode not in kinds(plan)


@pytest.mark.parametrize("share", [0.001, 1e-9])  # the smallest permitted value
def test_headroom_alone_moves_no_node_of_another_queue(share: float) -> None:
    world = of_idle(site()).with_pods(*pods(3, SMALL, namespace="notebook", queue=OTHER, node="k1"))
    world.configured(headroom=share)
    assert world.plan().registry.nodes["a001"].phase is Phase.SERVING


def test_queue_below_its_min_nodes_may_take_an_idle_node() -> None:
    assert of_idle(site(min_nodes=1)).plan().registry.nodes["a001"].state == MOVE


@pytest.mark.parametrize("opened_by", ["pods", ""])
def test_move_for_min_nodes_takes_no_chance_of_the_breaker(opened_by: str) -> None:
    """Once, such a move closed the breaker, so that the next run lent a node for the same pods."""
    breakers = {OTHER: Breaker(unused=3, tripped_at=NOW, trips=3, demand=opened_by)}
    after = of_idle(site(min_nodes=1)).recorded(breakers=breakers).plan().registry
    assert after.nodes["a001"].state == MOVE and after.breakers == breakers


def test_move_for_pods_takes_the_chance_of_a_breaker_that_is_due() -> None:
    breakers = {OTHER: Breaker(unused=3, tripped_at=LONG_AGO, trips=1, demand="other pods")}
    after = idle().recorded(breakers=breakers).plan().registry
    assert after.nodes["a001"].state == MOVE
    assert after.breakers == {OTHER: Breaker(unused=2, trips=1)}


def test_moves_at_once_are_bounded_by_the_run_limit() -> None:
    world = wanted(site(), 9)
    for number in range(1, 6):
        name = f"a{number:03}"
        world.lent(name, idle_since=IDLE, was_used=True).node(name, **node_fields("dev"))
    moved = [
        node.phase is Phase.MOVING
        for node in world.configured(max_reversions_per_run=3).plan().registry.nodes.values()
    ]
    assert sum(moved) == 3


@pytest.mark.parametrize(("cap", "phase"), [(None, Phase.MOVING), (HALF, Phase.SERVING)])
def test_no_move_begins_under_a_percentage_of_an_unknown_total(
    cap: Share | None, phase: Phase
) -> None:
    world = of_idle(wanted(site(max_nodes=cap))).set(batch=SILENT)
    assert world.plan().registry.nodes["a001"].phase is phase


def test_move_continues_under_a_percentage_of_an_unknown_total() -> None:
    plan = moving(wanted(site(max_nodes=HALF))).set(batch=SILENT).plan()
    assert RelabelNode in kinds(plan)


def test_moving_node_counts_under_both_namespace_caps_and_once_in_total() -> None:
    world = moving(site(max_nodes=1))
    _dev(world, max_nodes=1)
    lent = lent_in(world.registry)
    assert {count_cap.cap: count_cap.lent for count_cap in count_caps(world.config, lent)} == {
        "all": 1, "namespace dev": 1, "namespace notebook": 1,
    }  # fmt: skip


# --- on its way --------------------------------------------------------------------------------


def test_labels_taints_and_mark_are_changed_in_a_single_request() -> None:
    plan = moving().plan()
    (action,) = [action for action in plan.actions if isinstance(action, RelabelNode)]
    assert action == RelabelNode(
        node="a001",
        mark=node_fields("notebook")["mark"],
        labels={
            "dev": None, "site/dev": None,
            "notebook": "true", "site/notebook": "yes", "site/for": "notebook",
        },
        off=(DEV,),
        on=(NOTEBOOK,),
    )  # fmt: skip
    assert kinds(plan) == [RelabelNode]
    assert plan.registry.nodes["a001"].phase is Phase.MOVING


POD = pods(1, SMALL, node="a001")
LATE = NOW - timedelta(hours=1)

STAYS: dict[str, Callable[[], World]] = {
    "a pod landed": lambda: moving().with_pods(*POD),
    "held": lambda: moving().recorded(held=("a001",)),
    "extended": lambda: moving(stays_until=NOW + timedelta(hours=1)),
    "the key is off": lambda: moving().configured(move_in_place=False),
    "the second queue is not monitored": lambda: moving(World()),
    "nobody wants it": lambda: moving(site()),
    "its queue wants it": lambda: wanted_back(moving()),
    "its time is over": lambda: moving(since=LATE),
    "its fence was lifted": lambda: moving(node=fenced("dev", is_cordoned=False)),
    "an administrator's cordon": lambda: moving(node=node_fields("dev", is_cordoned=True)),
    "it leaves": lambda: moving(leaves=Leaving.MANUAL),
    "a converter is at work": lambda: _converting(moving()),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_move_is_cancelled_before_relabeling_by_any_reason(name: str) -> None:
    plan = STAYS[name]().plan()
    entry = plan.registry.nodes["a001"]
    assert (entry.phase, entry.namespace, entry.failed_move) == (Phase.SERVING, "dev", "")
    assert RelabelNode not in kinds(plan) and ReturnNode not in kinds(plan)


@pytest.mark.parametrize(("count", "phase"), [(2, Phase.MOVING), (3, Phase.SERVING)])
def test_move_continues_only_if_the_moving_nodes_complete_a_workload(
    count: int, phase: Phase
) -> None:
    """The node holds two of these pods."""
    half = {**BIG.request, "cpu": SIZE["cpu"] // 2}
    tolerates = Toleration(key="for", value="notebook")
    shape = msgspec.structs.replace(BIG, request=half, tolerations=(tolerates,))
    (pod,) = pods(1, shape, namespace="notebook", queue=OTHER, app_id="other")
    refused = RefusedPods(pod=pod, count=count, workload="notebook/w", least=count)
    world = moving(site())
    facts = world.snapshot().queue_facts
    facts = msgspec.structs.replace(facts, refused=(refused,), used={"other": {}})
    plan = world.with_facts(queue_facts=facts).plan()
    assert plan.registry.nodes["a001"].phase is phase


def test_relabeled_node_is_not_recalled_while_its_pods_are_unknown() -> None:
    """The node has the new namespace's labels, and may have its pods, so it stays with it."""
    world = _with_partial_pods(moving(site(), node=fenced("notebook")))
    assert world.plan().registry.nodes["a001"].phase is Phase.MOVING
    assert world.with_facts().plan().registry.nodes["a001"].namespace == "notebook"


WAITS: dict[str, Callable[[], World]] = {
    "paused": lambda: moving().recorded(pause=Pause(since=LONG_AGO)),
    "the document counts it": lambda: moving().set(maps=(queue_map({"a001": SIZE}), None)),
    "pods are unknown": lambda: _with_partial_pods(moving()),
    "its Node can't be read": lambda: moving(
        World(), node=fenced("dev", unreadable="a bad amount")
    ),
    "it is not Ready": lambda: moving(node=fenced("dev", is_ready=False)),
    "dressed, pods are unknown": lambda: _with_partial_pods(moving(node=fenced("notebook"))),
}


def _with_partial_pods(world: World) -> World:
    """Makes dnm able to list the pods of some namespaces only."""
    return world.with_facts(pods=PodList(pods=world.pods, cluster_wide=False))


@pytest.mark.parametrize("name", WAITS)
def test_move_waits_for_unknown_or_missing_facts(name: str) -> None:
    plan = WAITS[name]().plan()
    assert plan.registry.nodes["a001"].phase is Phase.MOVING
    assert not {RelabelNode, Unfence} & set(kinds(plan))


def of_quotas(world: World, unread: str) -> World:
    """Gives each namespace a ResourceQuota, of which dnm can't read that of `unread`."""
    policies = world.config.namespaces.values()
    own = [msgspec.structs.replace(policy, queue=policy.name, queue_system="resource_quota")
           for policy in policies]  # fmt: skip
    world.configured(namespaces={policy.name: policy for policy in own})
    hard = {"requests.cpu": "900", "requests.memory": "9T"}
    why = Unreadable(subject=f"the ResourceQuotas of {unread}", error="the API answers 503")
    facts = QuotaFacts(
        quotas=tuple(
            ResourceQuota(namespace=policy.name, name="q", version="1", hard=hard)
            for policy in own
            if policy.name != unread
        ),
        unread_queues={unread: why} if unread else {},
    )
    return world.with_facts(queue_facts=facts)


@pytest.mark.parametrize("unread", ["", "dev", "notebook"])
def test_move_waits_while_limits_of_a_queue_are_unread(unread: str) -> None:
    plan = of_quotas(moving(queue="dev"), unread).plan()
    assert plan.registry.nodes["a001"].phase is Phase.MOVING
    assert (RelabelNode in kinds(plan)) is not bool(unread)
    (verdict,) = plan.nodes
    assert (verdict.verdict is Verdict.WAIT) is bool(unread)
    assert ("503" in verdict.sentence) is bool(unread), verdict.sentence


def test_move_waits_while_the_pods_of_its_new_queue_are_unread() -> None:
    world = of_quotas(moving(site(), queue="dev"), "")
    listed = PodList(pods=(), unreadable={"notebook": "the API answers 503"})
    plan = world.with_facts(**world.facts, pods=listed).plan()
    assert plan.registry.nodes["a001"].phase is Phase.MOVING
    assert RelabelNode not in kinds(plan) and "namespace notebook" in plan.nodes[0].sentence


def test_fence_missing_after_a_killed_run_is_set() -> None:
    assert kinds(moving(node=node_fields("dev")).plan()) == [Fence]


def test_failed_move_is_retried_with_growing_delay() -> None:
    entry = moving(since=LATE, attempts=2).plan().registry.nodes["a001"]
    assert "could not be moved to notebook" in entry.error
    assert isinstance(entry.state, Serving)
    assert entry.state.move_pause == MovePause(attempts=3, until=NOW + timedelta(minutes=8))


def test_cancelled_move_keeps_the_idle_clock_and_delays_the_next_move() -> None:
    """After the move is cancelled, its idle time continues, and it may not move again at once."""
    entry = moving(site(), idle_since=IDLE, attempts=1).plan().registry.nodes["a001"]
    pause = MovePause(attempts=2, until=NOW + timedelta(minutes=4))
    assert isinstance(entry.state, Serving)
    assert (entry.idle_since, entry.state.move_pause) == (IDLE, pause)
    landed = moving(idle_since=IDLE).with_pods(*POD).plan().registry.nodes["a001"]
    assert isinstance(landed.state, Serving)
    assert (landed.idle_since, landed.was_used, landed.state.move_pause) == (None, True, None)


def test_relabeled_node_is_unfenced_after_its_new_queue_grows() -> None:
    plan = moving(node=fenced("notebook"), order="o1").plan()
    entry = plan.registry.nodes["a001"]
    assert (entry.phase, entry.namespace, entry.queue) == (Phase.SERVING, "notebook", OTHER)
    assert (entry.failed_move, entry.moved_at, entry.was_used, entry.order) == ("", NOW, False, "")
    assert kinds(plan) == [Unfence, SetQueueLimits]
    assert plan.status[OTHER].lent["cpu"] == 128_000
    assert not plan.status[entry.mark.queue.replace("notebook", "dev")].lent.get("cpu")


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(moving(node=fenced("notebook")).with_pods(*POD), id="a-pod-of-the-old-queue"),
        pytest.param(moving(World(), node=fenced("notebook")), id="the-second-queue-is-missing"),
    ],
)
def test_relabeled_node_is_relabeled_back_if_it_may_not_be_opened(world: World) -> None:
    world.configured(node_types={"a": TYPE})
    plan = world.plan()
    entry = plan.registry.nodes["a001"]
    assert entry.state == Moving(since=NOW, to="notebook", is_back=True)
    (action,) = [action for action in plan.actions if isinstance(action, RelabelNode)]
    assert (action.is_back, action.mark, action.on) == (True, MARK, (DEV,))
    assert kinds(plan) == [RelabelNode]


BACK: dict[str, Any] = {"to": "notebook", "is_back": True}


@pytest.mark.parametrize(
    ("node", "entry", "phase", "does"),
    [
        (fenced("notebook"), {}, Phase.MOVING, [RelabelNode]),
        (fenced("dev"), {}, Phase.SERVING, [Unfence, SetQueueLimits]),
        (fenced("notebook"), {"since": LATE}, Phase.FAILED, []),
        (node_fields("notebook"), {}, Phase.MOVING, [RelabelNode]),
    ],
    ids=["not-yet", "it-is", "it-can't", "opened-manually"],
)  # fmt: skip
def test_node_relabeled_back_serves_its_previous_queue(
    node: dict[str, Any], entry: dict[str, Any], phase: Phase, does: list[type]
) -> None:
    plan = moving(node=node, **BACK, **entry).with_pods(*POD).plan()
    after = plan.registry.nodes["a001"]
    assert (after.phase, after.namespace, kinds(plan)) == (phase, "dev", does)


def test_failed_move_serves_no_queue_under_foreign_labels() -> None:
    for labelled, phase in (("notebook", Phase.FAILED), ("dev", Phase.SERVING)):
        world = (
            site()
            .lent("a001", Phase.FAILED, failed_move="notebook")
            .node("a001", **node_fields(labelled))
        )
        world.set(batch={"a001": a_batch_node(in_service=False)})
        assert world.plan().registry.nodes["a001"].phase is phase


def test_moved_node_that_registers_again_serves_no_queue() -> None:
    """The kubelet registers the Node with the labels of its first namespace, so it fails."""
    entry: dict[str, Any] = {"namespace": "notebook", "queue": OTHER, "moved_at": LONG_AGO}
    for phase in (Phase.SERVING, Phase.FAILED):
        world = site().lent("a001", phase, **entry).node("a001", **node_fields("dev"))
        world.set(batch={"a001": a_batch_node(in_service=False)})
        assert world.plan().registry.nodes["a001"].phase is Phase.FAILED
    world = site().lent("a001", **entry).node("a001", **node_fields("notebook"))
    assert world.plan().registry.nodes["a001"].phase is Phase.SERVING


def test_vanished_node_fails_its_move() -> None:
    world = moving()
    world.nodes = world.nodes[:1]
    assert world.plan().registry.nodes["a001"].phase is Phase.FAILED


# --- what is booked ----------------------------------------------------------------------------


def test_node_hours_belong_to_the_namespace_that_the_node_served() -> None:
    config = _dev(
        site(options={"node_hours_per_week": 10}), options={"node_hours_per_week": 10}
    ).config
    hour = timedelta(hours=1)
    before = a_lent_node(lent_since=NOW - 3 * hour)
    after = a_lent_node(lent_since=NOW - 3 * hour, namespace="notebook", moved_at=NOW)
    was, now = (site().recorded(nodes={"a001": node}).registry for node in (before, after))
    booked = record_hours(config, was, now, NOW)
    assert hours_left(config, booked, NOW + hour) == {"dev": 7.0, "notebook": 9.0}
    comes = msgspec.structs.replace(before, state=MOVE)
    coming = msgspec.structs.replace(was, nodes={"a001": comes})
    assert [hour_bound.left for hour_bound in hour_bounds(config, coming, NOW)] == [6, 9]


def test_move_between_queues_neither_counts_nor_closes_a_breaker() -> None:
    before = a_lent_node(Phase.MOVING, to="notebook")
    after = a_lent_node(namespace="notebook", queue=OTHER)
    breakers = {before.queue: Breaker(unused=1)}
    assert after_transition(breakers, before, after) == breakers


# --- the exchange itself -----------------------------------------------------------------------

names = st.sampled_from(("dev", "lab", "notebook"))
texts = st.sampled_from(("{namespace}", "x-{namespace}", "all"))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(texts, texts, max_size=3),
    st.lists(st.builds(Taint, key=texts, value=texts, effect=st.just("NoSchedule")), max_size=3),
    names,
    names,
)
def test_move_back_restores_labels_and_taints(
    labels: dict[str, str], taints: list[Taint], old: str, new: str
) -> None:
    taints = list({taint.key: taint for taint in taints}.values())  # a Node has one taint of a key
    node_type = NodeType(name="a", size=SIZE, labels=labels, taints=tuple(taints))
    config = site().configured(node_types={"a": node_type}).config
    there, back = change_labels(config, "a", old, new), change_labels(config, "a", new, old)
    begun = Node(
        name="a001",
        allocatable={},
        labels={**MIXED, **node_type.labels_for(old), old: "true"},
        taints=tuple(sorted((*node_type.taints_for(old), CORDON), key=str)),
    )
    removed = _relabeled(begun, there)
    assert there.is_done(removed) and (old == new or not there.is_done(begun))
    assert (
        _relabeled(removed, back) == begun and not there.is_begun(_relabeled(removed, back))
    ) or old == new


def _relabeled(node: Node, change: Any) -> Node:
    labels = {**node.labels, **change.labels}
    return msgspec.structs.replace(
        node,
        labels={key: text for key, text in labels.items() if text is not None},
        taints=tuple(sorted({*node.taints, *change.on} - {*change.off}, key=str)),
    )


def test_node_without_the_devices_of_its_type_is_not_moved() -> None:
    """Pods of the new queue request devices that the node lacks."""
    gpu = "nvidia.com/gpu"
    world = site()
    with_gpus = msgspec.structs.replace(world.config.node_types["a"], size={**SIZE, gpu: 8})
    world.configured(node_types={**world.config.node_types, "a": with_gpus})
    shape = msgspec.structs.replace(
        BIG, request={**BIG.request, gpu: 8},
        tolerations=(Toleration(key="for", value="notebook"),),
    )  # fmt: skip
    world.with_pods(*pods(1, shape, namespace="notebook", queue=OTHER, app_id="other"))
    counted = {**COUNTED, gpu: 8}
    world.lent("a001", idle_since=IDLE, was_used=True, since=LONG_AGO, counted=counted)
    for has, moves in ((0, False), (8, True)):
        world.set(nodes=world.nodes[:1])
        world.node("a001", **node_fields("dev", allocatable={**COUNTED, gpu: has}))
        assert (world.plan().registry.nodes["a001"].phase is Phase.MOVING) is moves
