"""Tests of the annotation in which a tenant declares a gang: dnm counts all members up to a bound,
and reports a gang beyond it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dnm.demand.gangs import MOST_MEMBERS
from dnm.demand.pending import NotCounted
from dnm.model.pod import MOST_RESOURCES, MOST_TASK_GROUPS, Pod, TaskGroup
from dnm.model.quantity import QuantityError, parse_kubernetes
from dnm.queues.yunikorn.task_groups import task_groups
from dnm.sizing.allotment import MOST_NEW_NODES
from tests.scenes import (
    DEV,
    SMALL,
    bound,
    budget,
    config,
    demand,
    node,
    node_supply,
    pods,
    size,
    sizing_of,
    tree,
)

ONE_A_NODE = {**size(100, 16), "pods": 1}


def group(count: int, name: str = "w", **request: int) -> TaskGroup:
    return TaskGroup(name=name, min_member=count, min_resource={"pods": 1, **(request or SMALL)})


def first_pod(*groups: TaskGroup, **changes: Any) -> list[Pod]:
    return pods(1, SMALL, task_group="w", task_groups=groups, **changes)


def test_hundred_thousand_gang_members_are_a_single_number() -> None:
    result = demand(first_pod(group(MOST_MEMBERS)), config(), tree())
    assert sum(item.total for item in result.groups) == MOST_MEMBERS
    assert all(len(item.created) == 1 for item in result.groups), "members are multiplied"
    assert result.queues[DEV].pending["cpu"] == 4000 * MOST_MEMBERS
    assert result.queues[DEV].pending_pods == MOST_MEMBERS


def test_huge_gang_requests_a_bounded_number_of_nodes() -> None:
    """Each member needs a node, but even without a cap, as in `dnm check`, dnm stops at a bound."""
    some = first_pod(group(MOST_MEMBERS, "w", **ONE_A_NODE))
    assert sum(sizing_of(some).wanted().values()) == MOST_NEW_NODES
    assert sum(sizing_of(some, left=budget(total=2)).granted().values()) == 2


def test_huge_quota_shortage_requests_a_bounded_number_of_nodes() -> None:
    """One node has the capacity for all pods, so that nodes are needed only for more quota."""
    some = first_pod(group(MOST_MEMBERS, "w", **size(100, 1)))
    free = node("k1", cores=10**9, gb=10**9, more={"pods": 10**9})
    sizing = sizing_of(some, node_supply([free]), tree(dev=size(1, 1)))
    assert sizing.queues[DEV].without_capacity == 0
    assert sum(sizing.wanted().values()) == MOST_NEW_NODES


BEYOND = {
    "members": (group(2_000_000_000),),
    "one member too many": (group(MOST_MEMBERS + 1),),
    "members of all groups together": (group(MOST_MEMBERS), group(1, "x")),
    "task groups": tuple(group(1, f"w{n}") for n in range(MOST_TASK_GROUPS + 1)),
    "resources": (group(1, "w", **{f"example.com/r{n}": 1 for n in range(MOST_RESOURCES + 1)}),),
    "more memory than int64 holds": (group(2, memory=2**62),),
}
WITHIN = {
    "members": (group(MOST_MEMBERS),),
    "task groups": tuple(group(1, f"w{n}") for n in range(MOST_TASK_GROUPS)),
    "resources": (group(1, "w", **{f"example.com/r{n}": 1 for n in range(MOST_RESOURCES)}),),
    "as much memory as int64 holds": (group(1, memory=2**63 - 1),),
}


@pytest.mark.parametrize("groups", BEYOND.values(), ids=BEYOND.keys())
def test_gang_beyond_the_bound_is_named_and_requests_nothing(groups: Any) -> None:
    other = pods(2, SMALL, app="other")
    result = demand([*first_pod(*groups), *other], config(), tree())
    (left_out,) = result.uncounted
    assert (left_out.why, left_out.count, left_out.names) == (NotCounted.GANG, 1, ("p0",))
    assert [item.total for item in result.groups] == [2], "the others count as ever"
    assert result.queues[DEV].largest_gang == {}, "no limit is kept up for it"


@pytest.mark.parametrize("groups", WITHIN.values(), ids=WITHIN.keys())
def test_gang_at_the_bound_is_counted(groups: Any) -> None:
    result = demand(first_pod(*groups), config(), tree())
    assert not result.uncounted and result.queues[DEV].largest_gang


def test_used_amount_of_a_gang_beyond_the_bound_is_counted() -> None:
    running = bound(3, SMALL, "k1", task_groups=BEYOND["members"])
    result = demand(running, config(), tree())
    assert result.queues[DEV].used["cpu"] == 12_000 and result.nodes["k1"].work_pods == 3


def test_gangs_of_a_namespace_are_bounded_oldest_first() -> None:
    few = [
        pod
        for n in range(10)
        for pod in first_pod(group(MOST_MEMBERS // 4), app=f"app{n}", name=f"g{n}-", ago=600 - n)
    ]
    result = demand(few, config(), tree())
    assert result.queues[DEV].pending_pods == MOST_MEMBERS
    (left_out,) = result.uncounted
    assert (left_out.why, left_out.count) == (NotCounted.GANGS, 6)
    other = first_pod(group(3), app="mine", namespace="other", name="mine")
    again = demand([*few, *other], config(), tree())
    assert {uncounted.why for uncounted in again.uncounted if uncounted.namespace == "other"} <= {
        NotCounted.NO_QUEUE
    }
    assert again.queues[DEV].pending_pods == MOST_MEMBERS


def test_pod_that_names_a_foreign_application_is_not_in_its_gang() -> None:
    mine = first_pod(group(3), app="gang", name="mine")
    alone = demand(mine, config(), tree())
    theirs = first_pod(group(50_000), app="gang", name="a", namespace="other", ago=500)
    both = demand([*theirs, *mine], config(), tree())
    of_mine = [item for item in both.groups if item.namespace == "dev"]
    assert [item.total for item in of_mine] == [item.total for item in alone.groups] == [3]
    assert both.queues[DEV].largest_gang["cpu"] >= alone.queues[DEV].largest_gang["cpu"]


def annotation(count: Any = 3, cpu: Any = "1", **more: Any) -> str:
    return json.dumps([{"name": "w", "minMember": count, "minResource": {"cpu": cpu}, **more}])


REFUSED = {
    "none": "",
    "not JSON": "{not json",
    "no quantity": annotation(cpu="x"),
    "one group without members spoils them all": annotation()[:-1] + "," + annotation(0)[1:],
    "a negative amount": annotation(cpu="-1"),
    "one resource by two names": annotation(minResource={"cpu": "1", "vcore": "1"}),
    "more members than int32 holds": annotation(2**31),
    "a number of thirty digits": annotation(10**30),
    "no member": annotation(0),
    "a negative number": annotation(-1),
    "a quantity of five thousand digits": annotation(cpu="9" * 5000),
    "an exponent of five thousand digits": annotation(cpu="1e" + "9" * 5000),
    "no number of JSON": annotation(cpu=float("inf")),
    "no name": annotation(name=""),
    "no resources": '[{"name": "w", "minMember": 3}]',
}


@pytest.mark.parametrize("why", REFUSED)
def test_task_groups_refused_by_yunikorn_are_ignored(why: str) -> None:
    """k8shim pkg/cache/utils.go logs an error and schedules the pods one by one."""
    assert task_groups(annotation()) and task_groups(REFUSED[why]) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('[{"NAME": "w", "minmember": 2, "minResource": {"cpu": "1"}}]',
                     group(2, cpu=1000), id="keys in any case"),
        pytest.param(annotation(cpu="500m", minResource={"cpu": "500m", "memory": 1024},
                                nodeSelector={"a": "b"}),
                     group(3, cpu=500, memory=1024), id="text or number, further keys"),
    ],
)  # fmt: skip
def test_task_groups_are_parsed(text: str, expected: TaskGroup) -> None:
    assert task_groups(text) == (expected,)


def test_task_group_annotation_is_truncated_beyond_the_bound() -> None:
    groups = [
        {"name": f"w{n}", "minMember": 1, "minResource": {f"r{m}": 1 for m in range(99)}}
        for n in range(999)
    ]
    read = task_groups(json.dumps(groups))
    assert len(read) == MOST_TASK_GROUPS + 1
    assert {len(task_group.min_resource) for task_group in read} == {MOST_RESOURCES + 2}


def test_quantity_length_is_bounded() -> None:
    assert parse_kubernetes("memory", "0" * 255 + "7") == 7
    with pytest.raises(QuantityError, match="257 characters"):
        parse_kubernetes("memory", "0" * 256 + "7")
