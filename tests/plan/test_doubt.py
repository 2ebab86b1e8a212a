"""Tests that dnm distrusts valid but implausible lists, such as a list without any pods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.cluster import QueueFacts, SchedulerView
from dnm.model.lent import Phase
from dnm.model.plan import ReturnNode, Snapshot
from dnm.model.pod import Pod, PodList, PodShape
from dnm.model.registry import NodePods, Registry, RunRecord
from dnm.model.value import Unreadable
from dnm.plan.incomplete_lists import reject_incomplete_lists
from dnm.plan.planner import make_plan
from tests.builders import FENCED, NOW, QUEUE, a_batch_node, a_config, a_lent_node, a_node
from tests.plan.worlds import facts_of

HOUR = timedelta(hours=1)


def snapshot(pods: int = 0, **changes: Any) -> Snapshot:
    shape = PodShape(request={"cpu": 1000, "pods": 1})
    names = (f"p{number}" for number in range(pods))
    listed = PodList(
        pods=tuple(Pod(namespace="dev", name=n, shape=shape, node="k1") for n in names)
    )
    values: dict[str, Any] = {
        "nodes": (a_node(),),
        "queue_facts": facts_of((None, None)),
        "pods": listed,
    }
    return Snapshot(taken_at=NOW, **{**values, **changes})


def checked_snapshot(registry: Registry, seen: Snapshot) -> Snapshot:
    return reject_incomplete_lists(registry, "prod", seen)[0]


def recorded_run(registry: Registry, seen: Snapshot) -> RunRecord:
    return reject_incomplete_lists(registry, "prod", seen)[1]


@pytest.mark.parametrize(
    ("phase", "is_believed"),
    [
        (Phase.JOINING, True),
        (Phase.SERVING, False),
        (Phase.RELEASING, False),
        (Phase.RETURNING, True),
        (Phase.FAILED, True),
    ],
)
def test_empty_node_list_is_rejected_while_lent_nodes_serve(
    phase: Phase, is_believed: bool
) -> None:
    registry = Registry(nodes={"a001": a_lent_node(phase)})
    seen = checked_snapshot(registry, snapshot(nodes=()))
    assert isinstance(seen.nodes, Unreadable) is not is_believed
    if not is_believed:
        assert isinstance(seen.nodes, Unreadable) and "a001" in seen.nodes.error
        assert isinstance(seen.pods, Unreadable) and seen.queue_facts.unread


def test_empty_node_list_is_accepted_if_only_another_instance_lends() -> None:
    registry = Registry(nodes={"a001": a_lent_node(owner="validation")})
    assert checked_snapshot(registry, snapshot(nodes=())).nodes == ()


DAY = timedelta(days=1)
LAST = RunRecord(attended=("a001", "k1"))


def listed(*stays: str, work: Mapping[str, int] = {}, kind: str = "is_daemonset") -> Snapshot:
    """Builds a snapshot with DaemonSet pods on the Nodes `stays`, and `work` pods on others."""
    shape = PodShape(request={"cpu": 1000, "pods": 1})
    flags: dict[str, Any] = {kind: True}
    pods = [
        Pod(namespace="kube-system", name=f"s{node}", shape=shape, node=node, **flags)
        for node in stays
    ]
    for node, count in work.items():
        pods += [
            Pod(namespace="dev", name=f"p{number}", shape=shape, node=node)
            for number in range(count)
        ]
    return msgspec.structs.replace(
        snapshot(), pods=PodList(pods=tuple(pods)), nodes=(a_node("k1"), a_node("a001"))
    )


def record(last: RunRecord, phase: Phase = Phase.SERVING) -> Registry:
    return Registry(nodes={"a001": a_lent_node(phase)}, last_run=last)


@pytest.mark.parametrize("kind", ["is_daemonset", "is_mirror"])
def test_nodes_with_daemon_pods_are_recorded_in_steady_state(kind: str) -> None:
    seen = listed("a001", "k1", work={"k2": 3}, kind=kind)
    last = recorded_run(record(RunRecord()), seen)
    assert last == LAST == recorded_run(record(last), seen)


def test_three_unlent_nodes_with_daemon_pods_are_recorded() -> None:
    names = [f"k{number}" for number in range(9)]
    last = recorded_run(Registry(), listed(*names[3:]))
    assert last.attended == ("k3", "k4", "k5")
    assert recorded_run(Registry(last_run=last), listed(*names)) == last
    assert recorded_run(Registry(last_run=last), listed(*names[4:])).attended == (
        "k4", "k5", "k6",
    )  # fmt: skip


BELIEVED, NOT_OF_NODE, NOT_AT_ALL = "believed", "not of the node", "not at all"


@pytest.mark.parametrize(
    ("last", "seen", "result"),
    [
        pytest.param(RunRecord(), listed(), BELIEVED, id="nothing is recorded yet"),
        pytest.param(LAST, listed("a001", "k1"), BELIEVED, id="all have them"),
        pytest.param(LAST, listed("a001", "k1", work={"a001": 9}), BELIEVED, id="and work"),
        pytest.param(LAST, listed(), NOT_AT_ALL, id="an empty list"),
        pytest.param(LAST, listed(work={"a001": 9}), NOT_AT_ALL, id="a namespace is filtered"),
        pytest.param(LAST, listed("k1"), NOT_OF_NODE, id="the lent node has none"),
        pytest.param(LAST, listed("a001"), BELIEVED, id="another Node has no pod"),
        pytest.param(RunRecord(attended=("a001",)), listed(work={"k1": 1}), NOT_OF_NODE,
            id="the only one that had any"),
        pytest.param(RunRecord(attended=("a001",)), listed(), NOT_AT_ALL, id="and an empty list"),
        pytest.param(RunRecord(attended=("gone",)), listed(), BELIEVED, id="its Node is missing"),
        pytest.param(msgspec.structs.replace(LAST, contradicted_since=NOW - DAY / 2), listed(),
            NOT_AT_ALL, id="empty for half a day"),
        pytest.param(msgspec.structs.replace(LAST, contradicted_since=NOW - DAY), listed(),
            BELIEVED, id="empty for a day"),
        pytest.param(msgspec.structs.replace(LAST, contradicted_since=NOW - HOUR), listed("k1"),
            BELIEVED, id="the lent node has none for an hour"),
        pytest.param(msgspec.structs.replace(LAST, contradicted_since=NOW + HOUR), listed(),
            BELIEVED, id="a wrong clock"),
    ],
)  # fmt: skip
def test_pod_list_that_contradicts_recorded_pods_is_unverified(
    last: RunRecord, seen: Snapshot, result: str
) -> None:
    results = checked_snapshot(record(last), seen)
    if result is NOT_AT_ALL:
        assert isinstance(results.pods, Unreadable) and "kubectl get pods -A" in results.pods.error
    else:
        assert results.pods == seen.pods
        assert results.unseen_nodes == ({"a001"} if result is NOT_OF_NODE else frozenset())


def test_unread_or_partial_pod_list_is_neither_recorded_nor_rejected() -> None:
    unread = msgspec.structs.replace(snapshot(), pods=Unreadable(subject="pods", error="x"))
    part = msgspec.structs.replace(snapshot(), pods=PodList(pods=(), cluster_wide=False))
    for seen in (unread, part):
        assert recorded_run(record(LAST), seen) == LAST
        assert checked_snapshot(record(LAST), seen) == seen


@pytest.mark.parametrize(
    ("seen", "patience"), [(listed(), DAY), (listed("k1"), HOUR)], ids=["of all", "of a node"]
)
def test_pod_list_is_unverified_until_pods_return_or_time_passes(
    seen: Snapshot, patience: timedelta
) -> None:
    last = recorded_run(record(LAST), seen)
    assert last == msgspec.structs.replace(LAST, contradicted_since=NOW)
    later = msgspec.structs.replace(seen, taken_at=NOW + patience / 2)
    assert recorded_run(record(last), later) == last
    assert recorded_run(record(last), listed("a001", "k1")) == LAST
    over = msgspec.structs.replace(seen, taken_at=NOW + patience)
    believed = recorded_run(record(last), over)
    assert "a001" not in believed.attended
    assert checked_snapshot(record(believed), over) == over


USED = RunRecord(pods={"a001": NodePods(count=3, namespaces={"dev": 2, "lab": 1})})
RUNS, ENDED = {"u1": QUEUE, "u2": "root.other"}, {"u2": QUEUE}


@pytest.mark.parametrize(
    ("last", "phase", "seen", "is_seen"),
    [
        pytest.param(USED, Phase.RELEASING, listed("k1"), False, id="its namespaces are empty"),
        pytest.param(USED, Phase.RELEASING, listed(), False, id="all are"),
        pytest.param(USED, Phase.SERVING, listed("k1"), True, id="it has to fall idle first"),
        pytest.param(USED, Phase.RETURNING, listed("k1"), True, id="it is on its way"),
        pytest.param(USED, Phase.RELEASING, listed("k1", work={"k1": 1}), True, id="one is not"),
        pytest.param(RunRecord(), Phase.RELEASING, listed("k1"), True, id="none had run"),
    ],
)
def test_fenced_node_with_suddenly_empty_namespaces_is_checked_again(
    last: RunRecord, phase: Phase, seen: Snapshot, is_seen: bool
) -> None:
    result = checked_snapshot(record(last, phase), seen)
    assert result.unseen_nodes == (frozenset() if is_seen else {"a001"})
    noted = recorded_run(record(last, phase), seen)
    assert noted.contradicted_since is None and "a001" not in noted.attended


@pytest.mark.parametrize(
    ("queue_of_pod", "allocated", "is_seen"),
    [
        pytest.param(RUNS, {QUEUE: {"cpu": 1}}, False, id="it runs one that is not listed"),
        pytest.param(RUNS, {QUEUE: {"cpu": 0}}, True, id="it waits"),
        pytest.param(RUNS | ENDED, {QUEUE: {"cpu": 1}}, True, id="another of the queue is"),
        pytest.param(RUNS, {}, True, id="the queue is unknown"),
    ],
)
def test_yunikorn_allocation_contradicts_a_pod_list_without_pods_of_the_queue(
    queue_of_pod: Mapping[str, str], allocated: Mapping[str, Mapping[str, int]], is_seen: bool
) -> None:
    pod = Pod(namespace="x", name="x", shape=PodShape(request={}), node="k1", uid="u2")
    seen = msgspec.structs.replace(
        listed(), pods=PodList(pods=(pod,)),
        queue_facts=QueueFacts(
            view=SchedulerView(queue_of_pod=queue_of_pod, allocated=allocated, pending={})
        ),
    )  # fmt: skip
    last = recorded_run(record(RunRecord()), seen)
    for hours, unverified in ((0, not is_seen), (1, False)):
        later = msgspec.structs.replace(seen, taken_at=NOW + hours * HOUR)
        result = checked_snapshot(record(last), later)
        assert result.unseen_nodes == ({"a001"} if unverified else frozenset())


@pytest.mark.parametrize("count", [0, 56])
def test_node_does_not_become_idle_on_an_incomplete_pod_list(count: int) -> None:
    entry = a_lent_node(idle_since=NOW - HOUR, was_used=True)
    registry = Registry(nodes={"a001": entry}, last_run=LAST)
    seen = listed("k1", work={"k1": count})
    plan = make_plan(a_config(), registry, seen)
    assert plan.registry.nodes["a001"].phase is Phase.SERVING
    assert plan.registry.nodes["a001"].idle_since is None


def test_fenced_node_is_not_returned_on_an_empty_pod_list() -> None:
    config = a_config()
    registry = record(RunRecord(attended=("a001",)), Phase.RELEASING)
    fenced = a_node(is_cordoned=True, mark=FENCED)
    batch = {"a001": a_batch_node(in_service=False)}
    plan = make_plan(config, registry, snapshot(nodes=(fenced,), batch=batch))
    assert not [action for action in plan.actions if isinstance(action, ReturnNode)]
    assert any("none of a DaemonSet" in error for error in plan.errors)
