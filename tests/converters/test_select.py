"""Tests of which nodes node-convert may lend (OK, SKIP, PREEMPT), in which order, and how fast."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.converter.node_list import parse_list
from dnm.converters.listing import list_as_json, list_as_text, reservations_of
from dnm.converters.select import (
    Judged,
    ListVerdict,
    SlurmFacts,
    format_duration,
    judge_nodes,
    service_of,
)
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import Reservation, SlurmJob, SlurmNode, parse_nodes
from dnm.model.calendar import occurrence_name
from dnm.model.slurm_state import FLAGS, parse_state

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RULES = Settings(preempt_user="fill", preempt_account="spare", instance="test")
RESERVED = f"{occurrence_name('w', NOW, 'test')}-a001"
RESERVED_LATER = f"{occurrence_name('w', NOW + timedelta(hours=4), 'test')}-a001"
FOREIGN = f"{occurrence_name('w', NOW, 'other')}-a001"


_NODE = SlurmNode(
    name="a001", state=parse_state("IDLE"), cpus_allocated=0, memory_allocated=0,
    partitions=("main",), slurmd_started=NOW - timedelta(days=2),
    last_busy=NOW - timedelta(hours=1),
)  # fmt: skip
_JOB = SlurmJob(
    id="7", display_id="7", state="RUNNING", user="fill", account="spare", partitions=("main",),
    node_count=1, priority=100, start=NOW - timedelta(minutes=5), reservation="", nodes=("a001",),
    planned_nodes=(),
)  # fmt: skip


def node(name: str = "a001", state: str = "IDLE", **fields: Any) -> SlurmNode:
    return msgspec.structs.replace(_NODE, name=name, state=parse_state(state), **fields)


def job(**fields: Any) -> SlurmJob:
    return msgspec.structs.replace(_JOB, **fields)


def reservation(name: str, begins: timedelta, *nodes: str, lasts: int = 60) -> Reservation:
    start = NOW + begins
    return Reservation(
        name=name, start=start, end=start + timedelta(minutes=lasts), nodes=nodes or ("a001",)
    )


def facts(*nodes: SlurmNode, jobs: Any = (), reservations: Any = ()) -> SlurmFacts:
    return SlurmFacts(nodes=nodes, jobs=tuple(jobs), reservations=tuple(reservations), read_at=NOW)


def judge(*nodes: SlurmNode, rules: Settings = RULES, **more: Any) -> dict[str, Judged]:
    return {
        judged_node.node.name: judged_node
        for judged_node in judge_nodes(facts(*nodes, **more), rules)
    }


def busy(**fields: Any) -> SlurmNode:
    return node(state="ALLOCATED", cpus_allocated=8, memory_allocated=100, **fields)


OK, PREEMPT, SKIP = ListVerdict.OK, ListVerdict.PREEMPT, ListVerdict.SKIP
CASES = {
    "idle for long enough": (facts(node()), OK, "-"),
    "idle, but not for long": (
        facts(node(last_busy=NOW - timedelta(seconds=599))), SKIP, "idle only 599s (< 600s)"),
    "idle exactly long enough": (facts(node(last_busy=NOW - timedelta(seconds=600))), OK, "-"),
    "clock behind slurmctld's": (
        facts(node(last_busy=NOW + timedelta(hours=1))), SKIP, "idle only 0s"),
    "never busy since slurmd started": (facts(node(last_busy=None)), OK, "-"),
    "never busy, slurmd's start unknown": (
        facts(node(last_busy=None, slurmd_started=None)), SKIP, "Slurm has no idle time"),
    "20.11 does not tell": (
        facts(node(last_busy=None, has_last_busy=False)), SKIP, "before 21.08"),
    "drained by an administrator": (
        facts(node(state="IDLE+DRAIN", reason="disk")), SKIP, "state flag DRAIN: disk"),
    "down": (facts(node(state="DOWN", reason="fan")), SKIP, "not idle (DOWN): fan"),
    "a node of a cloud": (facts(node(state="IDLE+CLOUD")), SKIP, "not a machine of its own"),
    "a flag nobody knows": (facts(node(state="IDLE+NOVELTY")), SKIP, "not idle (IDLE)"),
    "slurmctld just started": (facts(node(state="UNKNOWN")), SKIP, "not idle (UNKNOWN)"),
    "completing": (facts(node(state="IDLE+COMPLETING")), SKIP, "still completing"),
    "planned, by the job's SchedNodes": (
        facts(node(), jobs=[job(state="PENDING", nodes=(), planned_nodes=("a001",))]),
        SKIP, "planned for pending job 7"),
    "reserved now": (
        facts(node(), reservations=[reservation("class", timedelta(minutes=-1))]),
        SKIP, "reservation class"),
    "reserved within the look-ahead": (
        facts(node(), reservations=[reservation("class", timedelta(hours=23))]),
        SKIP, "reservation class"),
    "reserved within the look-ahead, and broken": (
        facts(node(state="IDLE+DRAIN", reason="fan"),
              reservations=[reservation("class", timedelta(hours=23))]),
        SKIP, "state flag DRAIN: fan"),
    "planned, and broken": (
        facts(node(state="IDLE+DRAIN+PLANNED", reason="fan"),
              jobs=[job(state="PENDING", nodes=(), planned_nodes=("a001",))]),
        SKIP, "state flag DRAIN: fan"),
    "reserved later": (
        facts(node(), reservations=[reservation("class", timedelta(hours=25))]), OK, "-"),
    "booked for an event that nodes are lent for now": (
        facts(node(state="IDLE+RESERVED+PLANNED", last_busy=NOW - timedelta(seconds=9)),
              jobs=[job(state="PENDING", nodes=(), planned_nodes=("a001",))],
              reservations=[reservation(RESERVED, timedelta(minutes=-1))]), OK, "-"),
    "booked now, and for the next day of the series": (
        facts(node(state="IDLE+RESERVED"),
              reservations=[reservation(RESERVED_LATER, timedelta(hours=4)),
                            reservation(RESERVED, timedelta(minutes=-1))]), OK, "-"),
    "booked now, and another's is ahead": (
        facts(node(state="IDLE+RESERVED"),
              reservations=[reservation(RESERVED, timedelta(minutes=-1)),
                            reservation("class", timedelta(hours=4))]), SKIP, "reservation class"),
    "booked for one that is ahead": (
        facts(node(), reservations=[reservation(RESERVED, timedelta(hours=1))]), SKIP, "dnm-ev-w-"),
    "booked by another instance": (
        facts(node(state="IDLE+RESERVED"),
              reservations=[reservation(FOREIGN, timedelta(minutes=-1))]), SKIP, "dnm-ev-w-"),
    "booked, and a job that should be over is there": (
        facts(busy(), jobs=[job(user="ann")],
              reservations=[reservation(RESERVED, timedelta(minutes=-1))]), SKIP, "job 7 of ann"),
    "reservation over": (
        facts(node(), reservations=[reservation("class", timedelta(hours=-2))]), OK, "-"),
    "reservation without times": (
        facts(node(), reservations=[Reservation(name="odd", start=None, end=None,
                                                nodes=("a001",))]),
        SKIP, "reservation odd"),
    "lent": (
        facts(node(state="IDLE+DRAIN+RESERVED"),
              reservations=[reservation("k8s-a001", timedelta(0))]),
        SKIP, "lent or being lent (reservation k8s-a001)"),
    "lent by the script before": (
        facts(node(state="IDLE+DRAIN+RESERVED"), reservations=[reservation("k8s", timedelta(0))]),
        SKIP, "lent or being lent (reservation k8s)"),
    "a reservation of many that is called like ours": (
        facts(node(), reservations=[reservation("k8s-a001", timedelta(0), "a001", "a002")]),
        SKIP, "reservation k8s-a001"),
    "reserved as another node's": (
        facts(node(), reservations=[reservation("k8s-a0011", timedelta(0))]),
        SKIP, "reservation k8s-a0011"),
    "suspended job on 22.05": (
        facts(node(memory_allocated=500), jobs=[job(state="SUSPENDED")]),
        SKIP, "not idle (IDLE): job 7 of fill is SUSPENDED"),
    "memory allocated to an unknown job": (
        facts(node(memory_allocated=500)), SKIP, "500 MB allocated"),
    "allocated, the job not in the list": (facts(busy()), SKIP, "not idle (ALLOCATED"),
    "the user's job in another account": (
        facts(busy(), jobs=[job(account="paying")]), SKIP, "job 7 of fill"),
    "the account's job of another user": (
        facts(busy(), jobs=[job(user="bob")]), SKIP, "job 7 of bob"),
    "preemptible": (facts(busy(), jobs=[job()]), PREEMPT, "job 7 (fill/spare) running 5m"),
    "preemptible and mixed": (
        facts(node(state="MIXED", cpus_allocated=1), jobs=[job(), job(id="8", display_id="8")]),
        PREEMPT, "job 7 and 1 more"),
    "one of two is not preemptible": (
        facts(busy(), jobs=[job(), job(id="8", display_id="8", user="ann")]), SKIP, "job 8 of ann"),
    "spans two nodes": (
        facts(busy(), jobs=[job(node_count=2, nodes=("a001", "a002"))]), SKIP, "several nodes"),
    "part of a heterogeneous job": (
        facts(busy(), jobs=[job(display_id="6+1")]), SKIP, "several nodes"),
    "a job without a start": (facts(busy(), jobs=[job(start=None)]), SKIP, "no start time"),
    "preemptible but reserved": (
        facts(busy(), jobs=[job()], reservations=[reservation("class", timedelta(hours=1))]),
        SKIP, "reservation class"),
    "preemptible but draining": (
        facts(node(state="ALLOCATED+DRAIN", reason="fan"), jobs=[job()]), SKIP, "DRAIN: fan"),
    "reason of a healthy node (23.11 without slurmdbd)": (facts(node(reason="old")), OK, "-"),
}  # fmt: skip


@pytest.mark.parametrize(("given_facts", "verdict", "reason"), CASES.values(), ids=CASES)
def test_verdict_follows_from_node_jobs_and_reservations(
    given_facts: SlurmFacts, verdict: ListVerdict, reason: str
) -> None:
    judged = judge_nodes(given_facts, RULES)[0]
    assert (judged.verdict, reason in judged.reason) == (verdict, True), judged.reason


def test_jobs_are_not_preempted_without_preempt_user() -> None:
    for rules in (Settings(), Settings(preempt_user="fill"), Settings(preempt_account="spare")):
        assert judge(busy(), jobs=[job()], rules=rules)["a001"].verdict is SKIP
        nameless = job(user="", account="")
        assert judge(busy(), jobs=[nameless], rules=rules)["a001"].verdict is SKIP


def test_long_running_job_is_not_preempted() -> None:
    rules = msgspec.structs.replace(RULES, preempt_max_runtime_seconds=timedelta(minutes=4))
    judged = judge(busy(), jobs=[job()], rules=rules)["a001"]
    assert judged.verdict is SKIP and "too long" in judged.reason


def test_idle_time_may_be_unknown_without_a_minimum() -> None:
    rules = Settings(min_idle_seconds=timedelta(0))
    judged = judge(node(last_busy=None, has_last_busy=False), rules=rules)["a001"]
    assert (judged.verdict, judged.idle) == (OK, None)


@given(st.sets(st.sampled_from(sorted(FLAGS)), min_size=1))
def test_any_state_flag_keeps_a_node_from_being_lent(flags: set[str]) -> None:
    results = judge(
        node(state="+".join(("IDLE", *flags))), rules=Settings(min_idle_seconds=timedelta(0))
    )
    assert results["a001"].verdict is SKIP and results["a001"].reason


def test_chooses_longest_idle_node_and_youngest_job() -> None:
    nodes = [node(f"a{n:03}", last_busy=NOW - timedelta(hours=n)) for n in (3, 5, 4)]
    nodes += [busy(name="b001"), busy(name="b002")]
    jobs = [
        job(nodes=("b001",), start=NOW - timedelta(hours=2)),
        job(id="8", nodes=("b002",), start=NOW - timedelta(hours=1)),
    ]
    assert list(judge(*nodes, jobs=jobs)) == ["a005", "a004", "a003", "b002", "b001"]


@pytest.mark.parametrize(("url", "verdict"), [("", OK), ("unix:/run/s", SKIP)])
def test_slurmrestd_does_not_lend_reserved_nodes(url: str, verdict: ListVerdict) -> None:
    """Another host of the instance has reserved the node with scontrol."""
    rules = Settings(instance="test", slurmrestd_url=url)
    results = judge(
        node(), reservations=[reservation(RESERVED, timedelta(minutes=-1))], rules=rules
    )
    assert results["a001"].verdict is verdict


def test_largest_pending_job_keeps_no_reserved_node() -> None:
    """The job cannot get a node that an event has reserved, so that node can be lent."""
    rules = msgspec.structs.replace(RULES, protect_largest_pending=True)
    pending = job(state="PENDING", nodes=(), start=None, node_count=9)
    there = reservation(RESERVED, timedelta(minutes=-1))
    results = judge(node(), node("a002"), jobs=[pending], reservations=[there], rules=rules)
    assert {name: judged_node.verdict for name, judged_node in results.items()} == {
        "a001": OK,
        "a002": SKIP,
    }


def test_largest_pending_job_keeps_the_nodes_that_it_needs() -> None:
    rules = Settings(protect_largest_pending=True)
    nodes = [node(f"a{n:03}", last_busy=NOW - timedelta(hours=n)) for n in range(1, 5)]
    nodes.append(node("b001", partitions=("big",)))

    def kept(*jobs: SlurmJob) -> list[str]:
        results = judge(*nodes, jobs=jobs, rules=rules)
        return sorted(name for name, judged_node in results.items() if judged_node.verdict is SKIP)

    pending = {"state": "PENDING", "nodes": (), "start": None}
    assert kept() == []
    assert kept(job(node_count=3, **pending)) == ["a001", "a002", "a003"]
    assert kept(job(node_count=9, **pending)) == ["a001", "a002", "a003", "a004"]
    assert kept(job(node_count=9, priority=0, **pending)) == []  # held
    assert kept(job(node_count=9, reservation="class", **pending)) == []
    assert kept(job(node_count=1, partitions=("main", "big"), **pending)) == ["b001"]
    assert kept(
        job(node_count=2, **pending), job(id="8", node_count=1, partitions=("big",), **pending)
    ) == ["a001", "a002", "b001"]


@pytest.mark.parametrize(
    ("given_node", "jobs", "reservations", "in_service"),
    [
        (node(), [], [], True),
        (node(), [], [reservation("k8s-a001", timedelta(0))], False),
        (node(), [job()], [reservation("k8s-a001", timedelta(0))], True),
        (node(state="IDLE+DRAIN"), [], [], False),
        (node(state="IDLE+DRAIN", memory_allocated=1), [], [], True),
        (node(state="IDLE+DRAIN"), [job(state="SUSPENDED")], [], True),
        (node(state="DOWN+DRAIN+NOT_RESPONDING"), [], [], False),
        (node(state="IDLE+NOT_RESPONDING"), [], [], None),
        (node(state="UNKNOWN"), [], [], None),
        (node(), [], [reservation("class", timedelta(0))], True),
    ],
)
def test_recognises_nodes_in_service(
    given_node: SlurmNode, jobs: Any, reservations: Any, in_service: bool | None
) -> None:
    results = judge(given_node, jobs=jobs, reservations=reservations)
    assert results["a001"].in_service is in_service


def test_list_reports_the_begin_of_reservations() -> None:
    slurm_facts = facts(node(), reservations=[reservation(RESERVED_LATER, timedelta(hours=4))])
    reserved = reservations_of(slurm_facts, RULES.res_name)
    listed = parse_list(list_as_json(judge_nodes(slurm_facts, RULES), reserved=reserved).encode())
    assert listed is not None
    assert listed.nodes["a001"].reservations == (RESERVED_LATER,)
    begins = listed.nodes["a001"].reservations_begin
    assert begins == {RESERVED_LATER: NOW + timedelta(hours=4)}


def test_dnm_parses_both_forms_of_the_list() -> None:
    judged = judge_nodes(
        facts(node(), node("a002", state="IDLE+DRAIN", reason="two\twords\x1b[31m")), RULES
    )
    from_json = parse_list(list_as_json(judged).encode())
    from_text = parse_list(list_as_text(judged, (), Settings(), "").encode())
    assert from_json is not None and from_text is not None
    assert {name: batch_node.verdict for name, batch_node in from_text.nodes.items()} == {
        "a001": "OK",
        "a002": "SKIP",
    }
    assert from_text.nodes["a002"].reason == "state flag DRAIN: two?words?[31m"
    assert from_json.nodes["a001"].in_service and from_json.nodes["a002"].in_service is False


def test_recognises_own_reservations() -> None:
    held = (("k8s-a001", "a001"), ("k8s", "a002"), ("k8s-a003", "a004"), ("maint", "a005"))
    reservations = tuple(
        Reservation(name=name, start=NOW, end=None, nodes=(on,)) for name, on in held
    )
    slurm_facts = SlurmFacts(nodes=(), jobs=(), reservations=reservations, read_at=NOW)
    assert slurm_facts.in_own_reservations("k8s") == {"a001", "a002"}


def test_node_type_is_a_prefix_with_digits() -> None:
    is_of_type = Settings().is_of_type
    assert is_of_type("a001", "a")
    assert not any(is_of_type(name, "a") for name in ("anvil001", "a", "a01-ib", "b001", "aa1"))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(5, "5s"), (60, "1m"), (7500, "2h5m"), (183600, "2d3h"), (-1, "0s")]
)
def test_durations_are_formatted(seconds: int, shown: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == shown


def test_list_time_grows_linearly_with_nodes_and_jobs() -> None:
    """The test counts calls of Python and C: five times the nodes take about five times the
    calls."""
    calls = {count: calls_of_a_list(count) for count in (200, 1000)}
    assert calls[1000] < 6 * calls[200], calls


def calls_of_a_list(count: int) -> int:
    """Returns how many functions are called to judge `count` nodes. A quarter of them has work; a
    tenth of the pending jobs has planned nodes."""
    names = [f"a{n:05}" for n in range(count)]
    nodes = [busy(name=name) if n % 4 == 1 else node(name) for n, name in enumerate(names)]
    jobs = [job(id=f"r{n}", nodes=(name,)) for n, name in enumerate(names) if n % 4 == 1]
    waits = {"state": "PENDING", "nodes": (), "start": None}
    jobs += [
        job(id=str(n), node_count=n % 32 + 1, planned_nodes=tuple(names[n : n + 4 * (n % 10 == 0)]),
            **waits) for n in range(count)
    ]  # fmt: skip
    everything, calls = facts(*nodes, jobs=jobs), 0

    def listen(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(listen)
    try:
        judged = judge_nodes(everything, Settings(protect_largest_pending=True))
        text = list_as_json(judged) + list_as_text(judged, everything.jobs, Settings(), "")
    finally:
        sys.setprofile(before)
    assert text.count("SKIP") + text.count("OK") >= 2 * count
    return calls


def test_service_state_of_recorded_nodes() -> None:
    """Reads only node records: a suspended job shows just in the node's allocated memory."""
    sample = Path(__file__).parents[1] / "data" / "slurm" / "22.05" / "states3" / "nodes.txt"
    nodes = parse_nodes(sample.read_text())
    assert {node.name: (node.state.text, service_of(node, (), "")) for node in nodes} == {
        "a001": ("IDLE", True),
        "a002": ("ALLOCATED", True),
        "a003": ("IDLE+PLANNED", True),
        "a004": ("IDLE+RESERVED", True),
        "b001": ("IDLE+NOT_RESPONDING", None),
        "b002": ("IDLE+MAINTENANCE+RESERVED", True),
        "g001": ("DOWN+DRAIN+REBOOT_ISSUED", False),
    }
