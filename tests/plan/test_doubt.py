"""Lists that are well formed, empty, and can't be true."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.cluster import Pod, PodList, PodShape
from dnm.model.plan import ReturnNode, Snapshot
from dnm.model.registry import Phase, Registry, RunRecord
from dnm.model.value import Unreadable
from dnm.plan.doubt import doubt_empty_lists, remember_pods
from dnm.plan.planner import make_plan
from tests.builders import FENCED, NOW, a_batch_node, a_config, a_lent_node, a_node

HOUR = timedelta(hours=1)


def snapshot(pods: int = 0, **changes: Any) -> Snapshot:
    shape = PodShape(request={"vcore": 1000, "pods": 1})
    names = (f"p{number}" for number in range(pods))
    listed = PodList(
        pods=tuple(Pod(namespace="dev", name=n, shape=shape, node="k1") for n in names)
    )
    values: dict[str, Any] = {"nodes": (a_node(),), "queue_maps": (None, None), "pods": listed}
    return Snapshot(taken_at=NOW, **{**values, **changes})


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
def test_no_node_at_all_is_not_believed_while_lent_ones_serve(
    phase: Phase, is_believed: bool
) -> None:
    registry = Registry(nodes={"a001": a_lent_node(phase)})
    seen = doubt_empty_lists(registry, "prod", snapshot(nodes=()))
    assert isinstance(seen.nodes, Unreadable) is not is_believed
    if not is_believed:
        assert isinstance(seen.nodes, Unreadable) and "a001" in seen.nodes.error
        assert isinstance(seen.pods, Unreadable) and isinstance(seen.queue_maps, Unreadable)


def test_another_instance_s_nodes_say_nothing() -> None:
    registry = Registry(nodes={"a001": a_lent_node(owner="validation")})
    assert doubt_empty_lists(registry, "prod", snapshot(nodes=())).nodes == ()


@pytest.mark.parametrize(
    ("last", "pods", "is_believed"),
    [
        pytest.param(RunRecord(), 0, True, id="the first run"),
        pytest.param(RunRecord(pods_seen=1000), 0, False, id="thousands a minute ago"),
        pytest.param(RunRecord(pods_seen=1000), 1, True, id="one is left"),
        pytest.param(
            RunRecord(pods_seen=1000, pods_doubted_since=NOW - HOUR / 2),
            0,
            False,
            id="half an hour",
        ),
        pytest.param(
            RunRecord(pods_seen=1000, pods_doubted_since=NOW - HOUR), 0, True, id="an hour"
        ),
        pytest.param(
            RunRecord(pods_seen=1000, pods_doubted_since=NOW + HOUR), 0, True, id="a wrong clock"
        ),
    ],
)
def test_no_pod_at_all_after_thousands(last: RunRecord, pods: int, is_believed: bool) -> None:
    seen = doubt_empty_lists(Registry(last_run=last), "prod", snapshot(pods))
    assert isinstance(seen.pods, PodList) is is_believed


@pytest.mark.parametrize(("count", "kept"), [(0, 0), (999, 0), (1000, 1000), (2345, 1000)])
def test_a_power_of_ten_is_remembered(count: int, kept: int) -> None:
    assert remember_pods(RunRecord(), snapshot(count)).pods_seen == kept


def test_what_was_not_read_or_not_whole_is_not_remembered() -> None:
    last = RunRecord(pods_seen=1000)
    unread = msgspec.structs.replace(snapshot(), pods=Unreadable(what="pods", error="x"))
    part = msgspec.structs.replace(snapshot(), pods=PodList(pods=(), cluster_wide=False))
    assert remember_pods(last, unread) == last == remember_pods(last, part)


def test_the_doubt_begins_once_and_ends_with_a_pod_or_an_hour() -> None:
    last = remember_pods(RunRecord(pods_seen=1000), snapshot())
    assert last == RunRecord(pods_seen=1000, pods_doubted_since=NOW)
    later = msgspec.structs.replace(snapshot(), taken_at=NOW + HOUR / 2)
    assert remember_pods(last, later) == last
    assert remember_pods(last, snapshot(1)) == RunRecord()
    over = msgspec.structs.replace(snapshot(), taken_at=NOW + HOUR)
    assert remember_pods(last, over) == RunRecord()


def test_a_fenced_node_is_not_returned_on_an_empty_list_of_pods() -> None:
    config = a_config()
    registry = Registry(
        nodes={"a001": a_lent_node(Phase.RELEASING)}, last_run=RunRecord(pods_seen=10_000)
    )
    fenced = a_node(is_cordoned=True, mark=FENCED)
    batch = {"a001": a_batch_node(in_service=False)}
    plan = make_plan(config, registry, snapshot(nodes=(fenced,), batch=batch))
    assert not [action for action in plan.actions if isinstance(action, ReturnNode)]
    assert any("the list of pods is empty" in error for error in plan.errors)
