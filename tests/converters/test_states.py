"""What the text reader makes of Slurm in every state, against Slurm's own JSON as the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dnm.converters.select import ListVerdict, Rules, SlurmFacts, judge_nodes
from dnm.converters.slurm.text import (
    JobRecord,
    Reservation,
    SlurmJob,
    SlurmNode,
    parse_job_record,
    parse_jobs,
    parse_nodes,
    parse_reservations,
)
from tests.real_slurm import SlurmLab
from tests.slurm_lab import needs_other_slurm
from tests.slurm_states import SAMPLES, Moment, load, named, play, states_lab

FINISHED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "PREEMPTED")
MOMENTS = sorted(path.parent for path in SAMPLES.glob("*/*/nodes.txt"))


def seconds(moment: datetime | None) -> int | None:
    return int(moment.timestamp()) if moment else None


def facts_of_node(node: SlurmNode) -> dict[str, Any]:
    return {
        "state": "+".join(sorted({node.state.base, *node.state.flags})),
        "cpus_allocated": node.cpus_allocated,
        "memory_allocated": node.memory_allocated,
        "partitions": list(node.partitions),
        "slurmd_started": seconds(node.slurmd_started),
        "last_busy": seconds(node.last_busy),
        "reason": node.reason,
        "comment": node.comment,
        "extra": node.extra or "",
        "version": node.version,
    }


def facts_of_job(job: SlurmJob) -> dict[str, Any]:
    return {
        "user": job.user,
        "account": job.account,
        "partitions": list(job.partitions),
        "priority": job.priority,
        "start": seconds(job.start),
        "reservation": job.reservation,
        "nodes": list(job.nodes),
    }


def facts_of_record(record: JobRecord) -> dict[str, Any]:
    return {
        "state": record.state,
        "is_requeueable": record.is_requeueable,
        "is_batch": record.is_batch,
    }


def facts_of_reservation(one: Reservation) -> dict[str, Any]:
    return {
        "start": seconds(one.start),
        "end": seconds(one.end),
        "nodes": list(one.nodes),
        "users": one.users,
        "flags": sorted(one.flags),
    }


def assert_text_agrees(moment: Moment) -> None:
    """For every node, job and reservation, field by field."""
    nodes = {node.name: node for node in parse_nodes(moment.nodes)}
    for name, judged in moment.judged_nodes.items():
        told = facts_of_node(nodes[name])
        assert told == {key: judged[key] for key in told}, name
        assert nodes[name].state.is_understood
    jobs = {job.id: job for job in parse_jobs(moment.jobs)}
    lines = [line for line in moment.records.split("\n") if line]
    records = {line.split(" ", 1)[0].removeprefix("JobId="): line for line in lines}
    for name, judged in moment.judged_jobs.items():
        told = facts_of_record(parse_job_record(records[name]))
        if name in jobs:  # squeue is asked for the unfinished ones
            assert jobs[name].state == judged["state"]
            told |= facts_of_job(jobs[name])
        assert told == {key: judged[key] for key in told}, name
        assert (name in jobs) == (judged["state"] not in FINISHED), name
    reservations = {one.name: one for one in parse_reservations(moment.reservations)}
    for name, judged in moment.judged_reservations.items():
        assert facts_of_reservation(reservations[name]) == judged, name
    assert_only_free_nodes_are_lent(moment)


def assert_only_free_nodes_are_lent(moment: Moment) -> None:
    """What may be lent is what Slurm's JSON calls idle and nothing else, with nothing on it."""
    facts = SlurmFacts(
        nodes=parse_nodes(moment.nodes),
        jobs=parse_jobs(moment.jobs),
        reservations=parse_reservations(moment.reservations),
        read_at=datetime.now(UTC),
    )
    unfinished = [job for job in moment.judged_jobs.values() if job["state"] not in FINISHED]
    working = {name for job in unfinished for name in job["nodes"]}
    now = facts.read_at
    begun = [one for one in facts.reservations if one.start is None or one.start <= now]
    reserved = {name for one in begun for name in one.nodes}
    for judged in judge_nodes(facts, Rules(min_idle=timedelta(0))):
        if judged.verdict is ListVerdict.OK and judged.node.name in moment.judged_nodes:
            said = moment.judged_nodes[judged.node.name]
            assert (said["state"], said["cpus_allocated"]) == ("IDLE", 0), judged
            assert said["memory_allocated"] == 0, judged
            assert judged.node.name not in working | reserved, judged


@pytest.mark.parametrize("sample", MOMENTS, ids=[f"{at.parent.name}-{at.name}" for at in MOMENTS])
def test_the_text_of_a_sample_says_what_its_json_says(sample: Path) -> None:
    moment = load(sample)
    assert moment.judged_nodes or moment.judged_jobs
    assert_text_agrees(moment)


def assert_every_state_is_read_right(lab: SlurmLab) -> str:
    """Returns what was compared, in one line."""
    compared: Counter[str] = Counter()

    def look(moment: Moment) -> None:
        assert_text_agrees(moment)
        compared.update(
            nodes=len(moment.judged_nodes),
            jobs=len(moment.judged_jobs),
            reservations=len(moment.judged_reservations),
        )

    missing = play(lab, look)
    assert not missing, f"never met: {named(missing)}"
    told = ", ".join(f"{count} {kind}" for kind, count in compared.items() if count)
    return f"Slurm {lab.release}: {told} said by its text as by its JSON"


class TestLive:
    pytestmark = needs_other_slurm

    @pytest.fixture
    def lab(self) -> Iterator[SlurmLab]:
        with states_lab() as started:
            yield started

    def test_every_state_that_the_lab_brings_about_is_read_right(
        self, lab: SlurmLab, record_property: Callable[[str, object], None]
    ) -> None:
        record_property("figures", assert_every_state_is_read_right(lab))
