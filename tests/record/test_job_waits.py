"""Tests of history lines about how many nodes waiting jobs lack while nodes are lent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dnm.cli.terminal.logs import log_line
from dnm.model.batch import WaitingJobs
from dnm.model.history import ALL, JOBS, NONE, UNKNOWN, Memory, Operation
from dnm.model.registry import Registry, RunRecord
from dnm.record.recording import record_change, record_operation
from dnm.record.transitions import Cause, list_job_waits, seen_waits
from tests.builders import NOW, a_lent_node

CAUSE = Cause(now=NOW, run="r1", instance="prod")


def jobs(*nodes: int, node_type: str = "a") -> tuple[WaitingJobs, ...]:
    return tuple(
        WaitingJobs(partition=f"p{at}", node_type=node_type, jobs=1, nodes=count)
        for at, count in enumerate(nodes)
    )


def registry(lent: int, waiting: tuple[WaitingJobs, ...] | None, told: str = UNKNOWN) -> Registry:
    return Registry(
        nodes={f"a{number:03}": a_lent_node() for number in range(lent)},
        last_run=RunRecord(waiting_jobs=waiting),
        memory=Memory(jobs={"a": told} if told else {}),
    )


@pytest.mark.parametrize(
    ("lent", "waiting", "amount"),
    [
        pytest.param(0, jobs(9), None, id="nothing-is-lent"),
        pytest.param(4, None, UNKNOWN, id="not-reported"),
        pytest.param(4, (), NONE, id="none-waits"),
        pytest.param(4, jobs(9, node_type="b"), NONE, id="for-another-type"),
        pytest.param(4, jobs(0), NONE, id="for-no-node"),
        pytest.param(1, jobs(1), ALL, id="one-for-one"),
        pytest.param(4, jobs(1), "1", id="one"),
        pytest.param(4, jobs(2), "2", id="two"),
        pytest.param(9, jobs(3), "4", id="three-are-rounded-up"),
        pytest.param(9, jobs(2, 3), "8", id="of-two-partitions"),
        pytest.param(8, jobs(2, 3), ALL, id="rounded-up-to-all"),
        pytest.param(4, jobs(4), ALL, id="as-many-as-are-lent"),
        pytest.param(4, jobs(10**12), ALL, id="more-than-are-lent"),
    ],
)
def test_amount_of_waiting_jobs_is_graded_against_lent_nodes(
    lent: int, waiting: tuple[WaitingJobs, ...] | None, amount: str | None
) -> None:
    assert seen_waits(registry(lent, waiting)).get("a") == amount


@given(st.integers(1, 3000), st.integers(0, 5000))
def test_recorded_job_amount_is_at_least_the_real_amount(lent: int, wanted: int) -> None:
    (amount,) = seen_waits(registry(lent, jobs(wanted))).values()
    nodes = {ALL: lent, NONE: 0}.get(amount)
    nodes = int(amount) if nodes is None else nodes
    assert min(wanted, lent) <= nodes <= min(max(2 * wanted - 1, 0), lent)


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("told", "waiting", "unseen", "line"),
    [
        pytest.param(UNKNOWN, None, False, None, id="never-reported"),
        pytest.param(UNKNOWN, (), False, "none  > none", id="none-for-the-first-time"),
        pytest.param(NONE, (), False, None, id="none-still"),
        pytest.param(NONE, jobs(9), False, "wait none > all", id="jobs-wait"),
        pytest.param(ALL, jobs(7), False, None, id="other-jobs-wait"),
        pytest.param(ALL, jobs(2), False, "wait all > 2", id="fewer"),
        pytest.param(ALL, (), False, "none all > none", id="all-have-begun"),
        pytest.param(ALL, None, False, "unknown all > ", id="no-longer-reported"),
        pytest.param(ALL, jobs(9), True, "unseen all > all", id="unobserved"),
        pytest.param(NONE, jobs(9), True, "unseen none > all", id="arrival-unobserved"),
        pytest.param(NONE, None, True, "unseen none > ", id="unobserved-and-not-reported"),
        pytest.param(UNKNOWN, None, True, None, id="unknown-stays-unknown"),
        pytest.param(UNKNOWN, (), True, "none  > none", id="unknown-becomes-reported"),
    ],
)
def test_changed_job_amount_is_a_line_and_steady_state_is_none(
    told: str, waiting: tuple[WaitingJobs, ...] | None, unseen: bool, line: str | None
) -> None:
    since = NOW - DAY if unseen else None
    there = registry(4, waiting, told)
    after = record_change(there, there, replace(CAUSE, unseen_since=since))
    lines = after.memory.unwritten
    messages = [f"{line.event} {line.before} > {line.after}" for line in lines]
    assert messages == ([] if line is None else [line])
    for item in lines:
        assert (item.kind, item.object, item.node_type, item.numbers["lent"]) == (JOBS, "a", "a", 4)
        assert ("since" in item.numbers) is (item.event == "unseen")
        if waiting is not None:
            wanted = sum(row.nodes for row in waiting)
            assert (item.numbers["jobs"], item.numbers["nodes"]) == (len(waiting), wanted)
        assert log_line(item) == ""
    again = record_change(after, after, CAUSE)
    assert again.memory == after.memory, "a written line is not repeated"


def test_returned_nodes_of_an_unobserved_time_are_recorded_as_unseen() -> None:
    before, after = registry(2, jobs(2), ALL), registry(0, jobs(2), ALL)
    (line,) = list_job_waits(before, after, replace(CAUSE, unseen_since=NOW - DAY))
    assert (line.event, line.before, line.after) == ("unseen", ALL, UNKNOWN)
    assert not list(list_job_waits(before, after, CAUSE))


def test_unlent_nodes_of_an_unobserved_time_are_not_recorded() -> None:
    before, after = registry(0, (), NONE), registry(2, (), NONE)
    assert not list(list_job_waits(before, after, replace(CAUSE, unseen_since=NOW - DAY)))


def test_next_run_records_the_job_amount_after_a_command() -> None:
    """A command writes one line only. The next run compares with the last recorded amount."""
    before = registry(4, jobs(2), "2")
    after = record_operation(
        before, replace(before, nodes={"a000": a_lent_node()}), Operation(verb="forget"), CAUSE
    )
    assert [line.kind for line in after.memory.unwritten] == ["verb"]
    memory = record_change(after, after, CAUSE).memory
    assert [line.after for line in memory.unwritten[1:]] == [ALL] and memory.jobs == {"a": ALL}


def test_return_keeps_the_last_recorded_job_amount() -> None:
    """After all nodes are returned, a later line still continues from this amount."""
    before = registry(1, jobs(1), ALL)
    memory = record_change(before, replace(before, nodes={}), CAUSE).memory
    assert memory.jobs == {"a": ALL} and [line.kind for line in memory.unwritten] == ["node"]


def test_registry_of_an_earlier_release_has_no_job_amounts() -> None:
    plain: dict[str, Any] = msgspec.to_builtins(Registry())
    del plain["memory"]["jobs"]
    assert msgspec.convert(plain, Registry).memory.jobs == {}
