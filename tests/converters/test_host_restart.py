"""Tests of a host that goes down during a conversion, on a real Slurm. dnm, its converter and the
converter's parent die together at each stage. Later runs complete the conversion."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dnm.converter.processes import is_alive, started_at
from dnm.converters.journal import Journal, JournalStore
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from tests.real_slurm_hooks import write_lab_hooks
from tests.site import QUEUE, WORKSHOP_QUEUES, Site
from tests.slurm_lab import REPOSITORY, needs_other_slurm, restore_lab, the_lab

pytestmark = needs_other_slurm

NODE_CONVERT = """
[node_convert]
hooks_dir = {hooks}
min_idle_seconds = 0
"""
# Stops at the requested stage, and writes its progress to a file.
CONVERTER = """#!/bin/sh
export SLURM_CONF='{conf}' PYTHONPATH='{repository}'
if [ "$1" = --set ] && [ -e '{place}/fault' ]; then
    export DNM_FAULT="$(cat '{place}/fault')" DNM_FAULT_LOG='{place}/passed'
fi
exec '{python}' -m dnm.converters.cli "$@"
"""
# Stages before the Node is there: once it is Ready, any run takes it up before the host goes down.
LENDING = (
    ("convert.prepare:after", True),
    ("convert.reach:after", False),
    pytest.param("slurm.drain:after", False, marks=pytest.mark.night),
)  # fmt: skip
RETURNING = (pytest.param("convert.reset:after", marks=pytest.mark.night),)


class Place:
    """A site on the shared Slurm, with pods that need a node each."""

    def __init__(
        self, directory: Path, sandbox: Sandbox, pods: int = 1, **settings: object
    ) -> None:
        self.lab, self.sandbox, self.directory, self.pods = the_lab(), sandbox, directory, pods
        sandbox.set_queues(WORKSHOP_QUEUES)
        sandbox.add_pods(pods, "dev", queue=QUEUE, cpu="100", memory="200G")
        hooks, converter = directory / "hooks", directory / "node-convert"
        directory.mkdir(mode=0o755)
        size = {"cpu": "128", "memory": "256G", "pods": "110"}
        write_lab_hooks(hooks, self.lab.directory, sandbox.url, size)
        converter.write_text(
            CONVERTER.format(
                conf=self.lab.environ["SLURM_CONF"], repository=REPOSITORY, place=directory,
                python=sys.executable,
            )
        )  # fmt: skip
        converter.chmod(0o755)
        arguments = {
            "node_convert_path": converter, "check_interval_seconds": 1,
            "reversion_idle_seconds": 1, "max_converted_nodes": pods,
            "convert_timeout_seconds": 120, "join_timeout_seconds": 60,
            "verify_seconds": 0.3, "poll_seconds": 0.2, "stage_timeout_seconds": 30, **settings,
        }  # fmt: skip
        self.site = Site(sandbox, directory, sections=NODE_CONVERT.format(hooks=hooks), **arguments)
        self.fault, self.passed = directory / "fault", directory / "passed"
        self.store = JournalStore(directory / "state" / "node-convert")

    # --- what happens ------------------------------------------------------------------------

    def run(self) -> subprocess.CompletedProcess[str]:
        """Makes one real run, then checks the cap."""
        ended = self.site.command("run", **self.lab.environ)
        assert ended.returncode in (0, 1), (ended.stdout, ended.stderr)
        assert len(self.claimed()) <= self.pods, self.claimed()
        return ended

    def settle(self, is_so: Callable[[], bool], seconds: float = 600) -> None:
        """Plays runs until `is_so`, with growing intervals, because a retry takes a minute."""
        deadline, pause = time.monotonic() + seconds, 0.5
        while not is_so():
            ended = self.run()
            assert time.monotonic() < deadline, (self.claimed(), self.site.registry, ended)
            time.sleep(pause)
            pause = min(1.5 * pause, 8.0)

    def kill_in(self, point: str) -> None:
        """Starts a run, and kills all of its processes when the converter reaches this point."""
        self.passed.unlink(missing_ok=True)
        self.fault.write_text(f"{point}:hang")
        name, when = point.split(":")
        environment = {**self.lab.environ, "DNM_CONFIG": str(self.site.path)}
        deadline = time.monotonic() + 600
        while not self._has_stopped(name):
            run = subprocess.Popen([sys.executable, "-m", "dnm.cli", "run"], env=environment)
            assert time.monotonic() < deadline, (point, self.passed, self.site.registry)
            while run.poll() is None and not self._has_stopped(name):
                time.sleep(0.1)
            if not self._has_stopped(name):
                run.wait()
        time.sleep(2.5 if when == "after" else 0.3)
        run.kill()
        run.wait()
        self._kill_converters()
        self.fault.unlink()

    def _has_stopped(self, name: str) -> bool:
        return self.passed.exists() and name in self.passed.read_text().split()

    def _kill_converters(self) -> None:
        """Kills the converter, its parent, and a hook that it may have started."""
        for journal in self.journals():
            if journal.hook is not None and is_alive(journal.hook):
                os.killpg(journal.hook.pid, signal.SIGKILL)
        for path in (self.directory / "state" / "converter").glob("*.process"):
            started = started_at(path.with_suffix(""))
            if started.is_alive and started.keeper is not None:
                os.killpg(started.keeper.pid, signal.SIGKILL)
            while started.is_alive:
                time.sleep(0.02)

    # --- what is there -----------------------------------------------------------------------

    def journals(self) -> list[Journal]:
        return list(self.store.load_all(lambda node, why: None).values())

    def claimed(self) -> list[str]:
        """Returns the nodes that dnm has claimed in Slurm by a reservation or a drain."""
        reserved = {
            name
            for reservation in self.lab.client.read_reservations()
            for name in reservation.nodes
        }
        marked = {node.name for node in self.lab.client.read_nodes()
                  if "DRAIN" in node.state.flags and node.reason.startswith("dnm:")}  # fmt: skip
        return sorted(reserved | marked)

    def is_served(self) -> bool:
        phases = {entry.phase for entry in self.site.registry.nodes.values()}
        return phases == {Phase.SERVING} and "" not in self.site.pods().values()

    def is_back(self) -> bool:
        registry = self.site.registry
        return not (self.claimed() or registry.nodes or registry.requests or registry.claimed)

    def check(self) -> tuple[int, dict[str, str]]:
        """Runs `dnm check`; returns its exit code and, about claims, text -> next step."""
        ended = self.site.command("check", "--output", "json", **self.lab.environ)
        result = json.loads(ended.stdout)["checks"]
        return ended.returncode, {
            item["text"]: item["remedy"]
            for item in result
            if item["check"] == "claims" and item["result"] == "failed"
        }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    sandbox = Sandbox(tmp_path / "sandbox", manual=False).start()
    try:
        yield Place(tmp_path / "site", sandbox)
    finally:
        sandbox.stop()
        restore_lab(the_lab())


@pytest.mark.parametrize(("point", "is_wanted"), LENDING)
def test_interrupted_lending_is_continued_or_returned(
    place: Place, point: str, is_wanted: bool
) -> None:
    place.kill_in(point)
    claimed = place.claimed()
    code, document = place.check()
    if claimed:
        (text,) = document
        assert code == 1 and claimed[0] in text and "--set batch" in document[text], document
    if not is_wanted:
        for pod in place.site.pods():
            place.sandbox.delete("pods", pod, "dev")
    first = place.run()
    if claimed and not place.site.registry.nodes:
        shown = place.site.command("status")
        assert claimed[0] in shown.stdout and "all: 1 of 1 node lent" in shown.stdout, shown.stdout
    if claimed:
        assert claimed[0] in first.stdout + first.stderr
    place.settle(place.is_served if is_wanted else place.is_back)
    if is_wanted:
        assert place.claimed() == claimed or not claimed
        (name,) = place.site.lent()
        assert place.sandbox.get("nodes", name) is not None
    else:
        assert not place.sandbox.objects("nodes")
        # A conversion without a claim does no harm; the next lending of its type continues it.
        assert not claimed or not any(journal.is_open for journal in place.journals())
    assert place.check()[1] == {} and place.site.command("status").returncode == 0


@pytest.mark.parametrize("point", RETURNING)
def test_interrupted_return_is_continued(place: Place, point: str) -> None:
    place.settle(place.is_served)
    (name,) = place.site.lent()
    for pod in place.site.pods():
        place.sandbox.delete("pods", pod, "dev")
    place.kill_in(point)
    place.settle(place.is_back)
    assert place.lab.client.read_node(name).state.base == "IDLE"
    assert not place.sandbox.objects("nodes") and not any(j.is_open for j in place.journals())


def test_claims_survive_a_lost_registry(place: Place) -> None:
    """Without its registry, dnm finds converted nodes by its marks in Slurm, and adopts them."""
    place.kill_in("convert.prepare:after")
    (claimed,) = place.claimed()
    for path in (place.directory / "state").glob("converted_nodes*"):
        path.unlink()
    assert place.site.command("run", **place.lab.environ).returncode == 2  # a person has to look
    assert place.site.command("resume", **place.lab.environ).returncode == 0
    place.settle(place.is_served)
    assert place.site.lent() == [claimed]
