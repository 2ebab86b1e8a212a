"""Tests of the count of waiting jobs, by Slurm's reason why each job is pending."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from dnm.converter.node_list import parse_list
from dnm.converters.listing import (
    MOST_JOBS,
    count_tasks,
    describe_waiting,
    list_as_json,
    list_waiting_jobs,
    would_start,
)
from dnm.converters.select import judge_nodes
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import SlurmJob
from dnm.model.batch import WaitingJobs
from tests.converters.test_select import NOW, facts, job, node, reservation

_DOWN = (
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions"
)


def pending(why: str = "Resources", **fields: Any) -> SlurmJob:
    settings = {
        "state": "PENDING",
        "nodes": (),
        "start": None,
        "submitted": NOW - timedelta(hours=1),
    }
    return job(**{**settings, "pending_reason": why, **fields})


def type_of(name: str) -> str:
    return name.rstrip("0123456789").replace("x", "")


@pytest.mark.parametrize(
    ("why", "fields", "counts"),
    [
        pytest.param("Resources", {}, True, id="first-in-line"),
        pytest.param("Priority", {}, True, id="behind-it"),
        pytest.param(_DOWN, {}, True, id="too-few-in-service"),
        pytest.param(
            "ReqNodeNotAvail,_UnavailableNodes:a[001-003]", {}, True, id="wants-a-claimed-node"
        ),
        pytest.param("ReqNodeNotAvail,_UnavailableNodes:b001", {}, False, id="wants-a-broken-one"),
        pytest.param("ReqNodeNotAvail,_UnavailableNodes:a[001-0", {}, False, id="cut-short"),
        pytest.param("ReqNodeNotAvail,_Reserved_for_maintenance", {}, False, id="maintenance"),
        pytest.param("Resources", {"priority": 0}, False, id="held-by-priority"),
        pytest.param("JobHeldUser", {}, False, id="held"),
        pytest.param("Dependency", {}, False, id="dependent"),
        pytest.param("BeginTime", {}, False, id="not-yet"),
        pytest.param("Licenses", {}, False, id="licence"),
        pytest.param("Reservation", {}, False, id="waits-for-a-reservation"),
        pytest.param("Resources", {"reservation": "class"}, False, id="in-a-reservation"),
        pytest.param("QOSMaxNodePerUserLimit", {}, False, id="over-a-limit"),
        pytest.param("AssocGrpNodeLimit", {}, False, id="over-its-account-s-limit"),
        pytest.param("PartitionNodeLimit", {}, False, id="too-large"),
        pytest.param("JobArrayTaskLimit", {}, False, id="its-array-s-limit"),
        pytest.param("None", {}, False, id="not-looked-at-yet"),
        pytest.param("Something_new", {}, False, id="unknown-word"),
    ],
)
def test_counts_jobs_that_lack_only_nodes(why: str, fields: dict[str, Any], counts: bool) -> None:
    assert would_start(pending(why, **fields), {"a002"}) is counts


@pytest.mark.parametrize(
    ("shown", "tasks"),
    [
        ("17", 1),
        ("17_3", 1),
        ("17_[0-9]", 10),
        ("17_[0-9%4]", 4),
        ("17_[1,3,5-7]", 5),
        ("17_[0-9:2]", 5),
        ("17_[0-9,...]", 10),
        ("17_[0-999999999]", MOST_JOBS),
        ("17_[9-0]", 1),
        ("17+0", 1),
    ],
)
def test_counts_tasks_of_an_array(shown: str, tasks: int) -> None:
    assert count_tasks(shown) == tasks


def waiting(*jobs: SlurmJob, **more: Any) -> tuple[WaitingJobs, ...]:
    nodes = [
        node("a001"),
        node("a002", partitions=("main", "big")),
        node("b001", partitions=("big",)),
        node("x9", partitions=("odd",)),
    ]
    return list_waiting_jobs(facts(*nodes, jobs=jobs, **more), "k8s", type_of)


def test_waiting_jobs_are_grouped_by_type_and_partition() -> None:
    waiting_kinds = waiting(
        pending(node_count=2, submitted=NOW - timedelta(hours=2)),
        pending(id="8", submitted=NOW - timedelta(hours=3)),
        pending(id="9", partitions=("big",), submitted=None),
        job(id="10", state="RUNNING"),
    )
    assert waiting_kinds == (
        WaitingJobs(partition="big", node_type="a", jobs=1, nodes=1),
        WaitingJobs(
            partition="main", node_type="a", jobs=2, nodes=3, since=NOW - timedelta(hours=3)
        ),
        WaitingJobs(partition="big", node_type="b", jobs=1, nodes=1),
    )


def test_job_of_two_partitions_counts_once_per_type() -> None:
    waiting_kinds = waiting(pending(partitions=("main", "big")))
    assert [(waiting.node_type, waiting.partition, waiting.jobs) for waiting in waiting_kinds] == [
        ("a", "main", 1), ("b", "big", 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "fields", [{"node_count": 3}, {"partitions": ("odd",)}, {"partitions": ("gone",)}]
)
def test_job_too_large_for_its_partition_is_not_counted(fields: dict[str, Any]) -> None:
    """The job requests more nodes than its partition has, or the partition has no lendable node."""
    assert waiting(pending(**fields)) == ()


def test_job_that_requires_a_claimed_node_is_counted() -> None:
    wants = pending("ReqNodeNotAvail,_UnavailableNodes:a002")
    assert waiting(wants) == ()
    own = reservation("k8s-a002", -timedelta(hours=1), "a002")
    assert [waiting_jobs.node_type for waiting_jobs in waiting(wants, reservations=[own])] == ["a"]


def test_number_of_counted_jobs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnm.converters.listing.MOST_JOBS", 3)
    assert [
        waiting_jobs.jobs for waiting_jobs in waiting(*(pending(id=str(n)) for n in range(9)))
    ] == [3]


def test_many_jobs_with_many_nodes_are_counted_fast() -> None:
    """Ten thousand jobs of one user that request missing nodes once delayed `--list`."""
    wants = "ReqNodeNotAvail,_UnavailableNodes:b[0001-2000]"
    jobs = [pending(wants, id=str(number)) for number in range(5_000)]
    began = time.process_time()
    assert waiting(*jobs) == ()
    assert time.process_time() - began < 2


def test_table_and_json_show_waiting_jobs() -> None:
    judged = judge_nodes(facts(node()), Settings())
    row = WaitingJobs(
        partition="main", node_type="a", jobs=2, nodes=3, since=NOW - timedelta(hours=3)
    )
    listed = parse_list(list_as_json(judged, None, [row]).encode())
    assert listed is not None and listed.waiting == (row,)
    assert listed.nodes["a001"].partitions == ("main",)
    assert describe_waiting([row], NOW) == [
        "Partition main: 2 jobs would start on 3 more nodes of type 'a', the first for 3h0m"
    ]
