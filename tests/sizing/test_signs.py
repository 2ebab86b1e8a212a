"""Tests of rules that a wrong sign or default would break, each with a scene and a result."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dnm.demand.gangs import GangApp, gang_demand, gang_total
from dnm.demand.pending import NotCounted
from dnm.model.kubelet import NumaRoom
from dnm.model.observed import StalledPods
from dnm.model.pod import NodeSelectorTerm, Requirement, TaskGroup, Toleration
from dnm.model.queue_path import present_lineage
from dnm.model.reason import Reason
from dnm.queues.yunikorn.pods import requested_queue
from dnm.sizing.caps import NodePool
from dnm.sizing.node_supply import traits_of
from dnm.sizing.queue_sizing import Sizing
from tests.scenes import (
    DEV,
    GPU,
    NOW,
    SMALL,
    TAINT,
    bound,
    budget,
    config,
    demand,
    node,
    node_supply,
    pods,
    policy,
    size,
    sizing_of,
    tree,
)

CARD = "nvidia.com/gpu"
TYPES = config().node_types


def by_type(sizing: Sizing, queue: str = DEV) -> dict[str, int]:
    return {pool.node_type: count for pool, count in sizing.queues[queue].wanted.items()}


# --- the nodes that would help ----------------------------------------------------------------


def test_missing_resource_of_a_type_is_not_expected_from_its_nodes() -> None:
    """A node of a type without GPUs, lent for one queue, gives no GPU to the next queue's pod."""
    open_to_all = {"tolerations": (Toleration(operator="Exists"),)}
    some = pods(1, SMALL, ago=900, shape=open_to_all)
    some += pods(1, {**SMALL, CARD: 1}, namespace="gpu", app="g", name="g", shape=open_to_all)
    sizing = sizing_of(some)
    assert (by_type(sizing), by_type(sizing, GPU)) == ({"a": 1}, {"g": 1})


def test_nodes_of_the_own_namespace_are_preferred() -> None:
    """Two namespaces share a queue and a node type, and each gets a node."""
    both = {name: policy(name, DEV, "a") for name in ("aaa", "dev", "zzz")}
    types = {"a": msgspec.structs.replace(TYPES["a"], taints=(TAINT,))}
    anything = {"tolerations": (Toleration(operator="Exists"),)}
    for namespace in both:
        some = pods(1, SMALL, namespace=namespace, shape=anything)
        sizing = sizing_of(some, namespaces=both, node_types=types)
        assert sizing.wanted() == {NodePool(DEV, namespace, "a"): 1}


def test_pod_that_names_its_node_uses_only_that_node() -> None:
    """The nodes differ only in their names, and the one that the pod does not name is full."""
    name = Requirement(key="metadata.name", operator="In", values=("k2",))
    own = {"node_affinity": (NodeSelectorTerm(fields=(name,)),)}
    nodes = node_supply([node("k1"), node("k2", cores=4, gb=16)])
    sizing = sizing_of(pods(2, SMALL, shape=own), nodes)
    assert sum(sizing.fits().values()) == 1
    assert [item.count for item in sizing.queues[DEV].unschedulable] == [1]


def test_node_type_settings_override_numa_reports_of_a_node() -> None:
    there = node("k1", zones=((("memory", 1), ("cpu", 6000)),))
    result = traits_of(there, NumaRoom(zones=((("cpu", 8000),),), by_pod=True)).numa
    assert result == NumaRoom(zones=((("cpu", 6000),),), by_pod=True)


# --- budgets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("cap", "granted"), [(0, 0), (2, 2), (3, 3), (9, 3)])
def test_min_nodes_request_no_more_than_the_budget(cap: int, granted: int) -> None:
    policies = {"dev": policy("dev", DEV, "a", min_nodes=3)}
    sizing = sizing_of([], left=budget(total=cap), namespaces=policies)
    assert sum(sizing.wanted().values()) == 3 and sum(sizing.granted().values()) == granted


def test_every_bound_of_a_pool_follows_its_budget() -> None:
    mine, other = NodePool(DEV, "dev", "a"), NodePool(GPU, "gpu", "g")
    left = budget(total=3, per_type={"a": 2}, per_namespace={"dev": 2}, batch={"a": 5, "g": 1})
    less = budget(total=1, per_type={"a": 0}, per_namespace={"dev": 0}, batch={"a": 3, "g": 1})
    assert left.changed([mine, mine], -1).left == less.left
    assert left.changed([mine, other], -1).changed([other, mine], 1) == left
    assert left.covers({mine: 2, other: 1}) and left.covers({})
    assert not left.covers({mine: 3}), "of its type"
    assert not left.covers({other: 2}), "at hand"
    assert not left.covers({mine: 2, other: 2}), "in all"


# --- going back -------------------------------------------------------------------------------


def test_recorded_stalled_pods_leave_other_pods_of_their_group_unchanged() -> None:
    stuck, more = pods(3, SMALL, ago=700), pods(2, SMALL, ago=100, name="more")
    name = demand(stuck, config(), tree()).groups[0].fingerprint
    memory = {name: StalledPods(count=3, until=stuck[0].created)}
    (group,) = demand(stuck + more, config(), tree(), stalled=memory).groups
    assert (group.count, group.total, group.created) == (2, 2, ((more[0].created, 2),))


# --- demand -----------------------------------------------------------------------------------


def test_gang_of_two_groups_requests_the_sum() -> None:
    groups = (
        TaskGroup(name="driver", min_member=1, min_resource={"cpu": 2000, "pods": 1}),
        TaskGroup(name="worker", min_member=3, min_resource={"cpu": 4000, "memory": 5}),
    )
    app = GangApp(app_id="app", namespace="dev", groups=groups, pods=())
    assert gang_total(app) == {"cpu": 14_000, "memory": 15, "pods": 1}


@pytest.mark.parametrize("larger", ["cpu", "memory"])
def test_placeholders_represent_the_smallest_pods(larger: str) -> None:
    small, large = {"cpu": 10, "memory": 10}, {"cpu": 10, "memory": 10, larger: 11}
    members = pods(1, small, name="small") + pods(1, large, name="large")
    holder = pods(1, small, name="holder", is_placeholder=True)
    app = GangApp(app_id="app", namespace="dev", groups=(), pods=(*members, *holder))
    assert [pod.name for pod in gang_demand(app, NOW).taken_over] == ["small0"]


@pytest.mark.parametrize(
    ("named", "path"),
    [("Flat", "root.flat"), ("a.b", "root.a_dot_b"), ("root.A", "root.a"), ("root", "root")],
)
def test_queue_named_without_root_is_below_root(named: str, path: str) -> None:
    assert requested_queue({"queue": named}, {}) == path


def test_queue_ancestors_exclude_root_and_unconfigured_queues() -> None:
    facts = {"root", "root.a", "root.a.b"}
    assert present_lineage("root.a.b", facts) == ["root.a.b", "root.a"]
    assert present_lineage("root.a.x", facts) == present_lineage("root", facts) == []
    assert present_lineage("root.a.b", facts - {"root.a"}) == ["root.a.b"]


def test_pods_without_quota_leave_free_capacity_to_other_queues() -> None:
    """All pods would fit on the only node, but just one fits the quota."""
    both = {"dev": policy("dev", DEV, "a"), "lab": policy("lab", "root.anvil.lab", "a")}
    some = pods(16, SMALL) + pods(15, SMALL, namespace="lab", name="l", app="l", ago=90)
    limits = tree(dev={"cpu": 4000}, lab={})
    left = budget(per_namespace={"dev": 0})
    sizing = sizing_of(some, node_supply([node("k1")]), limits, left, namespaces=both)
    assert not sizing.queues["root.anvil.lab"].wanted
    assert sizing.queues[DEV].wanted and not sizing.queues[DEV].granted
    assert sizing.verdicts[DEV].reason is Reason.CAPPED


# --- who is meant -----------------------------------------------------------------------------


def test_oldest_pod_decides_the_queue_of_an_application() -> None:
    young, old = pods(1, SMALL, queue=GPU, ago=10), pods(1, SMALL, queue=DEV, ago=99, name="old")
    assert {group.queue for group in demand(young + old, config(), tree()).groups} == {DEV}


def test_larger_of_two_gangs_is_the_largest_gang() -> None:
    def gang(app: str, members: int) -> list[Any]:
        group = TaskGroup(name="w", min_member=members, min_resource={"cpu": 1000, "pods": 1})
        return bound(1, SMALL, "k1", app=app, task_groups=(group,))

    result = demand([*gang("x", 5), *gang("y", 3)], config(), tree())
    assert result.queues[DEV].largest_gang == {"cpu": 5000, "pods": 5}


def test_promised_gang_members_have_no_volume_claims_yet() -> None:
    """The first pod's volume claim is lost. Pods that do not exist yet have none."""
    group = TaskGroup(name="w", min_member=3, min_resource={**SMALL, "pods": 1})
    first = pods(1, SMALL, task_group="w", task_groups=(group,), claims=("lost",))
    result = demand(first, config(), tree())
    assert [group.total for group in result.groups] == [2]
    assert [(uncounted.why, uncounted.count) for uncounted in result.uncounted] == [
        (NotCounted.CLAIM, 1)
    ]


def test_quota_granted_to_a_queue_is_used_up_for_its_sibling() -> None:
    """Two groups of pods of a queue use up the parent's limit, so that its sibling lacks quota."""
    lab = {"dev": policy("dev", DEV, "a"), "lab": policy("lab", "root.anvil.lab", "a")}
    some = pods(1, SMALL, ago=900) + pods(1, size(2, 8), ago=800, name="q")
    some += pods(1, size(2, 8), namespace="lab", app="l", name="l", ago=90)
    limits = tree(anvil={"cpu": 6000}, lab={})
    sizing = sizing_of(some, node_supply([node("k1")]), limits, namespaces=lab)
    assert not sizing.queues[DEV].wanted
    assert sizing.verdicts["root.anvil.lab"].reason is Reason.LACKS_QUOTA
