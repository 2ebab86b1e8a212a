"""Tests of a workshop (an event) on a real Slurm in which jobs always wait, with and without nodes
reserved ahead: how many nodes serve at the start, how long nodes idle before, and lost jobs.

A day takes five minutes here. Each try is a site that reserves nodes, with four nodes of its own.
Several are played at once; the first has a site without reservations beside it, with the same jobs.
DNM_PROOF_ROUNDS=20 plays twenty tries; by default one."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from dnm.run.runner import run_pass
from tests.real_slurm import SlurmLab
from tests.real_slurm_hooks import write_lab_hooks
from tests.site import WORKSHOP_QUEUES, Site
from tests.slurm_lab import end_with_us, needs_slurm

pytestmark = needs_slurm

TRIES = int(os.environ.get("DNM_PROOF_ROUNDS", "1"))
AT_ONCE = 6
NODES, WANTED = 4, 3
INTERVAL = 45  # seconds: the latest that a run may start if several sites run at once
AHEAD = timedelta(seconds=200 + INTERVAL)  # the longest limit of a job, and lending
EVERY = 4.0  # seconds between two runs of a site
QUEUED = 6  # jobs that wait, in each site
SIZE = {"cpu": "128", "memory": "256G", "pods": "110"}
_NODE_CONVERT = """
[node_type:{type}]
[event:workshop]
namespace = dev
nodes = {wanted}
from = {begins:%Y-%m-%d %H:%M}
until = {ends:%Y-%m-%d %H:%M}
[node_convert]
hooks_dir = {hooks}
min_idle_seconds = 0
"""


def type_of(number: int, reserves: bool) -> str:
    """Returns the name of a node type, of letters only, since digits number the node."""
    return f"{'b' if reserves else 'n'}{'abcdefghij'[number]}"


def nodes_of(node_type: str) -> list[str]:
    return [f"{node_type}{number:02}" for number in range(1, NODES + 1)]


class Half:
    """A site in a try, with or without reservations, and the jobs on its nodes."""

    def __init__(
        self, lab: SlurmLab, directory: Path, node_type: str, begins: datetime, seed: int
    ) -> None:
        self.lab, self.type, self.begins = lab, node_type, begins
        self.jobs = random.Random(seed)
        self.submitted: list[str] = []
        self.outcomes: list[str] = []
        self.idle_seconds = 0.0
        self.looked = time.monotonic()
        self.sandbox = Sandbox(directory / "sandbox", manual=False).start()
        self.sandbox.set_queues(WORKSHOP_QUEUES)
        hooks = directory / "hooks"
        write_lab_hooks(hooks, lab.directory, self.sandbox.url, SIZE)
        converter = directory / "node-convert"
        converter.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dnm.converters.cli "$@"\n')
        converter.chmod(0o755)
        self.reserves = node_type.startswith("b")
        self.site = Site(
            self.sandbox, directory / "site",
            sections=_NODE_CONVERT.format(
                type=node_type, wanted=WANTED, begins=begins, ends=begins + timedelta(minutes=30),
                hooks=hooks),
            node_type=node_type, node_convert_path=converter, instance_id=node_type,
            check_interval_seconds=INTERVAL, event_reservations=str(self.reserves).lower(),
            verify_seconds=0.5, poll_seconds=0.2, boot_timeout_seconds=120,
        )  # fmt: skip

    def submit(self) -> None:
        """Submits jobs until some wait: most are short, one in four lasts up to two minutes."""
        waiting = sum(
            job.state == "PENDING" and job.partitions == (self.type,)
            for job in self.lab.client.read_jobs()
        )
        for _ in range(QUEUED - waiting):
            minutes = self.jobs.choice((1, 1, 1, 2))
            seconds = self.jobs.randint(15, minutes * 60 - 5)
            nodes = self.jobs.choice((1, 1, 2))
            self.submitted.append(
                self.lab.submit(
                    "-p", self.type, "-N", str(nodes), "--exclusive", "-t", str(minutes),
                    script=f"sleep {seconds}",
                )
            )  # fmt: skip

    def run(self) -> None:
        config = replace(self.site.config, lead=timedelta(minutes=1))
        result = run_pass(config, self.lab.environ, lambda: False)
        outcome = result.outcome
        assert outcome is not None
        self.outcomes += [*outcome.actions, *outcome.errors]
        self.outcomes += [
            f"{datetime.now(UTC):%H:%M:%S} {queue.sentence}" for queue in result.plan.queues
        ]

    def run_until(self, begins: datetime) -> None:
        """Plays runs until a time as a timer would, while other sites do the same."""
        while datetime.now(UTC) < begins:
            self.run()
            time.sleep(EVERY)

    def count_idle_time(self, busy: set[str]) -> None:
        """Adds the time since the last call in which nodes were neither working nor lent."""
        now = time.monotonic()
        lent = set(self.site.registry.nodes)
        idle = [name for name in nodes_of(self.type) if name not in busy | lent]
        self.idle_seconds += (now - self.looked) * len(idle)
        self.looked = now

    def serving(self) -> int:
        return len(self.site.registry.nodes_of(self.type, Phase.SERVING))

    def lost_jobs(self) -> list[str]:
        """Returns the jobs that ended neither by themselves nor by their own limit."""
        lines = [self.lab.run("scontrol", "-o", "show", "job", job) for job in self.submitted]
        good = tuple(
            f" JobState={item} " for item in ("COMPLETED", "RUNNING", "PENDING", "COMPLETING")
        )
        return [
            name[:200] for name in lines
            if not any(state in name for state in good) or " Restarts=0 " not in name
        ]  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    types = [type_of(number, True) for number in range(min(TRIES, AT_ONCE))] + [type_of(0, False)]
    more = "".join(
        f"PartitionName={kind} Nodes={','.join(nodes_of(kind))} MaxTime=INFINITE State=UP\n"
        for kind in types
    )
    directory = tmp_path_factory.mktemp("lab")
    lab = SlurmLab(directory, [node for node_type in types for node in nodes_of(node_type)], more)
    lab.patience = 5
    end = end_with_us(directory)
    lab.start()
    yield lab
    end()


def play(lab: SlurmLab, directory: Path, tries: range) -> list[tuple[Half, int]]:
    """Plays the tries. Returns each site with the number of nodes that served at the start."""
    begins = datetime.now(UTC) + AHEAD + timedelta(minutes=1)
    begins = begins.replace(second=0, microsecond=0)
    halves = [
        Half(
            lab,
            directory / f"{number}-{reserves}",
            type_of(number % AT_ONCE, reserves),
            begins,
            seed=number,
        )
        for number in tries
        for reserves in (True, False)
        if reserves or not number % AT_ONCE  # one site is enough to compare with
    ]
    for half in halves:
        half.submit()
    time.sleep(6)  # until the first jobs run
    for half in halves:
        half.looked = time.monotonic()
    timers = [threading.Thread(target=half.run_until, args=(begins,)) for half in halves]
    for timer in timers:
        timer.start()
    while (now := datetime.now(UTC)) < begins:
        running = [job for job in lab.client.read_jobs() if job.state in ("RUNNING", "COMPLETING")]
        busy = {node for job in running for node in job.nodes}
        for half in halves:
            half.count_idle_time(busy)
            half.submit()
        time.sleep(max(0.0, min(1.0, (begins - now).total_seconds())))
    rows = [(half, half.serving()) for half in halves]
    for timer in timers:
        timer.join()
    return rows


def clean(lab: SlurmLab, halves: list[Half]) -> None:
    """Ends jobs and reservations, so that the next tries begin in the same state."""
    for half in halves:
        half.sandbox.stop()
    if jobs := sorted({job.id for job in lab.client.read_jobs()}):
        lab.run("scancel", *jobs)
    for reservation in lab.client.read_reservations():
        lab.run("scontrol", "delete", f"ReservationName={reservation.name}")
    for node in lab.read_nodes():
        if not lab.has_slurmd(node.name):
            lab.start_slurmd(node.name)
        if node.state.flags & {"DRAIN"} or node.state.base == "DOWN":
            lab.run("scontrol", "update", f"nodename={node.name}", "state=resume", "comment=")
    lab.wait_for(lambda: all(node.state.text == "IDLE" for node in lab.read_nodes()), 60)


def test_reserved_nodes_serve_at_the_begin_of_an_event_in_a_real_slurm(
    lab: SlurmLab, tmp_path: Path
) -> None:
    serving: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    idle: dict[bool, list[float]] = {True: [], False: []}
    lost: list[str] = []
    for first in range(0, TRIES, AT_ONCE):
        tries = range(first, min(first + AT_ONCE, TRIES))
        rows = play(lab, tmp_path, tries)
        for half, count in rows:
            serving[half.reserves][count] += 1
            idle[half.reserves].append(half.idle_seconds / 60)
            lost += half.lost_jobs()
            if half.reserves and count < WANTED:
                print(half.type, *half.outcomes, sep="\n  ")
        clean(lab, [half for half, _ in rows])
        print(_table(serving, idle, lost), flush=True)
    assert serving[True] == {WANTED: TRIES}
    assert not lost


def _table(
    serving: dict[bool, Counter[int]], idle: dict[bool, list[float]], lost: list[str]
) -> str:
    lines = [
        f"{'reserved' if reserves else 'not reserved'}: nodes serving at the start (of {WANTED}) "
        f"-> tries {dict(sorted(serving[reserves].items()))}; node-minutes idle before it: mean "
        f"{sum(idle[reserves]) / len(idle[reserves]):.1f}, most {max(idle[reserves]):.1f}"
        for reserves in (True, False)
    ]
    return "\n".join([*lines, f"jobs lost: {lost or 'none'}"])
