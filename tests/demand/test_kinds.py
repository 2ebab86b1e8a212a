"""Tests of kinds, groups of equal pods with the numbers of pending, bound and new ones. Permanent
nodes with equal free capacity are also one kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from dnm.demand.demand import gather_demand
from dnm.demand.kinds import MOST_CREATED, MOST_KINDS, Seen, list_free_capacity, list_kinds
from dnm.demand.waiting import DemandFacts
from dnm.model.cluster import QueueLimits
from dnm.model.history import NodeRoom, PodKind
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.pod import Pod, PodShape
from tests.builders import NOW, QUEUE, a_config

CONFIG = a_config(demand_keep=timedelta(days=1))
NEW_AT = int((NOW - timedelta(seconds=30)).timestamp())
OLD, NEW = "1970-01-01T00:01:00Z", f"{NOW - timedelta(seconds=30):%Y-%m-%dT%H:%M:%SZ}"
SMALL, LARGE = {"cpu": 1000, "pods": 1}, {"memory": 10**9, "cpu": 4000, "pods": 1}


def a_pod(name: str, request: dict[str, int], node: str = "", created: str = OLD,
          **more: object) -> Pod:  # fmt: skip
    """Returns a pod of the monitored queue."""
    values = {"app_id": name, "queue": QUEUE, "is_managed": True, **more}
    return Pod(namespace="dev", name=name, shape=PodShape(request=request), created=created,
               node=node, **values)  # type: ignore[arg-type]  # fmt: skip


def kinds_of(*pods: Pod) -> tuple[PodKind, ...]:
    queues = {QUEUE: QueueLimits(path=QUEUE, parent=None, is_leaf=True, max={"cpu": 80_000})}
    return gather_demand(pods, CONFIG, queues, DemandFacts(now=NOW)).kinds[QUEUE]


def test_equal_requests_are_a_single_kind_in_any_order() -> None:
    again = {"pods": 1, "cpu": 4000, "memory": 10**9}
    pod_kinds = kinds_of(
        a_pod("p1", LARGE), a_pod("p2", LARGE, created=NEW), a_pod("p3", SMALL),
        a_pod("p4", again, "k1"), a_pod("p5", again, "k1", NEW), a_pod("p6", LARGE, "k1", NEW),
        a_pod("p7", LARGE, created=NEW),
    )  # fmt: skip
    assert pod_kinds == (
        PodKind(request={"cpu": 1000}, pending=1, bound=0, came=0, sums=(60, 0)),
        PodKind(request={"memory": 10**9, "cpu": 4000}, pending=3, bound=3, came=4,
                came_at=(NEW_AT,) * 4, sums=(60 + 2 * NEW_AT, 60 + 2 * NEW_AT)),
    )  # fmt: skip


def test_gang_pods_are_a_separate_kind_with_their_size() -> None:
    """Two of the gang's three pods have a node. A pod without gang is of another kind."""
    gang: dict[str, Any] = {"app_id": "train", "is_placeholder": True, "task_group": "workers"}
    pod_kinds = kinds_of(
        a_pod("g1", SMALL, "k1", **gang), a_pod("g2", SMALL, "k1", NEW, **gang),
        a_pod("g3", SMALL, "", NEW, **gang), a_pod("alone", SMALL),
    )  # fmt: skip
    assert pod_kinds == (
        PodKind(request={"cpu": 1000}, pending=1, bound=0, came=0, gang=0, sums=(60, 0)),
        PodKind(request={"cpu": 1000}, pending=1, bound=2, came=2, gang=3,
                came_at=(NEW_AT,) * 2, sums=(NEW_AT, 60 + NEW_AT)),
    )  # fmt: skip


def test_kinds_with_the_most_pods_are_kept() -> None:
    some: dict[tuple[tuple[tuple[str, int], ...], int], Seen] = {}
    for number in range(1, MOST_KINDS + 11):
        seen = some[(("cpu", number),), 0] = Seen()
        seen.add(False, NEW_AT, number, True)
    pod_kinds = list_kinds([some])
    assert len(pod_kinds) == MOST_KINDS
    assert min(pod_kind.pending for pod_kind in pod_kinds) == 11
    assert max(len(kind.came_at) for kind in list_kinds([some, some])) == MOST_CREATED


def test_pod_with_an_unreadable_creation_time_is_counted() -> None:
    (pod_kind,) = kinds_of(a_pod("p1", SMALL, created="yesterday"))
    assert (pod_kind.pending, pod_kind.sums) == (1, (0, 0))


def test_empty_pod_list_has_no_kinds() -> None:
    assert kinds_of() == ()


def test_free_capacity_of_permanent_nodes_excludes_unusable_nodes() -> None:
    """Lent, cordoned, not ready or reserved nodes do not count. A reserved node with a pod of a
    monitored queue counts, because it serves that queue too."""
    size, kept = {"cpu": 8000}, (Taint(key="gpu", effect="NoSchedule"),)
    nodes = [
        Node(name="k1", allocatable=size), Node(name="k2", allocatable=size),
        Node(name="k3", allocatable=size), Node(name="a001", allocatable=size),
        Node(name="k4", allocatable=size, is_cordoned=True),
        Node(name="k5", allocatable=size, is_ready=False),
        Node(name="k6", allocatable=size, taints=kept),
        Node(name="k7", allocatable=size, taints=kept),
    ]  # fmt: skip
    other = Pod(namespace="kube-system", name="dns", shape=PodShape(request={"cpu": 500}),
                created=OLD, node="k2")  # fmt: skip
    pods = [a_pod("p1", LARGE, "k1"), a_pod("p2", LARGE, "k7"), other]
    assert list_free_capacity(CONFIG, nodes, ["a001"], pods) == (
        NodeRoom(free={"cpu": 7500}, count=1),
        NodeRoom(free={"cpu": 8000}, count=3),
    )
