"""`dnm demo --slurm`: the workshop with a real Slurm, node-convert and the sandbox's Kubernetes.

Slurm's daemons run on loopback as this user, from Debian's packages; a node leaves by its slurmd
and comes back by it. At the end the books are checked in Slurm and in Kubernetes: every node and
job where it was.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from dnm.converters.slurm.text import SlurmNode
from dnm.lab.demo.play import NAMESPACE, Play, play_in_scratch
from dnm.lab.demo.view import State, View, open_view
from dnm.lab.sandbox.client import ask
from dnm.lab.sandbox.commands import start, stop
from dnm.lab.sandbox.site import WORKSHOP_PODS, WORKSHOP_QUEUE, write_configuration
from dnm.lab.slurm.hooks import write_lab_hooks
from dnm.lab.slurm.lab import SlurmLab
from dnm.model.errors import SandboxError

NODES = tuple(f"a{number:03}" for number in range(1, 9))
_WORKING = ("a001", "a005")  # nodes with a batch job on them, from the beginning to the end
_DEADLINE_SECONDS = 240.0
_EVERY_SECONDS = 0.5  # between two runs
_SETTINGS = {
    "global_cooldown_seconds": "1",
    "reversion_idle_seconds": "2",
    "check_interval_seconds": "1",
}
_NODE_CONVERT = """
[node_convert]
hooks_dir = ../hooks
min_idle_seconds = 0
verify_seconds = 1
poll_seconds = 0.2
boot_timeout_seconds = 60
"""


def demo_slurm(session_seconds: float = 8) -> int:
    """Plays it and returns the exit code: 0 if the books balance, 1 if they don't or it can't be
    played, 130 on Ctrl-C."""
    labs: list[SlurmLab] = []

    def play(place: Path) -> list[str]:
        place.chmod(0o755)  # the lab's jobs and daemons read below it
        labs.append(SlurmLab(place / "slurm", NODES))
        return _play_and_check(labs[0], place, session_seconds)

    def end(place: Path) -> None:
        with contextlib.suppress(SandboxError):
            stop(place / "sandbox")
        for lab in labs:
            lab.stop()

    return play_in_scratch("dnm-slurm-demo-", play, end, "Slurm and the sandbox are gone")


def _play_and_check(lab: SlurmLab, place: Path, session_seconds: float) -> list[str]:
    """Plays the workshop, prints what came of it, returns what is wrong."""
    begun = time.monotonic()
    demo = SlurmDemo(lab, place)
    view = open_view(WORKSHOP_QUEUE, NAMESPACE)
    try:
        demo.run(view, session_seconds)
    finally:
        view.close()
    problems = demo.check_books()
    play = demo.play
    print(
        f"\n{play.ended} of {WORKSHOP_PODS} sessions ran to their end on {len(play.lent)} lent "
        f"nodes ({', '.join(sorted(play.lent))}), in {play.runs} runs of dnm and "
        f"{time.monotonic() - begun:.0f} s."
    )
    if not problems:
        print("The books balance: Slurm, Kubernetes and the queue document are as they were.")
    return problems


class SlurmDemo:
    """The lab with its batch jobs, and the workshop on it."""

    def __init__(self, lab: SlurmLab, place: Path) -> None:
        """Raises SlurmError where Slurm is not installed, SandboxError for the sandbox."""
        self.lab = lab
        lab.start()
        url = start(place / "sandbox", ["--nodes", "0"]).url
        config = _write_configuration(lab, place, url)
        self.jobs = [lab.submit("-w", node, "--exclusive") for node in _WORKING]
        lab.wait_for(lambda: all(map(self._is_running, self.jobs)), 15)
        environment = {"SLURM_CONF": lab.environ["SLURM_CONF"]}
        self.play = Play(url, config, lambda: self._read_state(url), environment)

    def run(self, view: View, session_seconds: float) -> None:
        """Plays until everything is at rest again, or the time is over."""
        view.narrate("A real Slurm of eight nodes; jobs run on two of them, and nobody waits.")
        self.play.run_dnm(view)
        self.play.open_sessions(session_seconds)
        view.narrate(f"A workshop begins: {WORKSHOP_PODS} sessions of 4 CPUs and 16 GB each.")
        self.play.play_to_rest(view, self._is_at_rest, _EVERY_SECONDS, _DEADLINE_SECONDS)

    def check_books(self) -> list[str]:
        """Returns every way in which the end is not the beginning."""
        problems = [*self.play.check_books(), *self._find_unreturned()]
        if self.play.lent & set(_WORKING):
            problems.append("a node with a batch job on it was lent")
        problems += [f"job {job} does not run" for job in self.jobs if not self._is_running(job)]
        return problems

    def _read_state(self, url: str) -> State:
        """The sandbox's, with Slurm's own nodes as its machines."""
        state: State = ask(url, "GET", "/sandbox/state")
        state["machines"] = {
            node.name: {
                "state": node.state.text,
                "place": _place(node),
                "jobs": int(node.state.has_work),
            }
            for node in self.lab.read_nodes()
        }
        return state

    def _is_running(self, job: str) -> bool:
        return self.lab.client.read_job(job).state == "RUNNING"

    def _is_at_rest(self, state: State) -> bool:
        is_home = set(state["nodes"]) == set(self.play.beginning["nodes"])
        return is_home and not self._find_unreturned()

    def _find_unreturned(self) -> list[str]:
        """Nodes that Slurm does not have as it had them."""
        reserved = {name for one in self.lab.client.read_reservations() for name in one.nodes}
        return [
            f"{node.name} is {node.state.text} in Slurm {node.reason}".rstrip()
            for node in self.lab.client.read_nodes()
            if node.name in reserved
            or node.comment
            or node.state.flags - {"PLANNED"}
            or node.state.base != ("ALLOCATED" if node.name in _WORKING else "IDLE")
        ]


def _write_configuration(lab: SlurmLab, place: Path, url: str) -> Path:
    """dnm's, with the shipped node-convert and hooks that work on the lab."""
    size = {"cpu": "128", "memory": "256G", "pods": "110"}
    write_lab_hooks(place / "hooks", lab.directory, url, size)
    converter = place / "node-convert"
    converter.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dnm.converters.cli "$@"\n')
    converter.chmod(0o755)
    settings = {**_SETTINGS, "node_convert_path": str(converter)}
    config = write_configuration(place / "sandbox", url, settings)
    with config.open("a") as file:
        file.write(_NODE_CONVERT)
    return config


def _place(node: SlurmNode) -> str:
    return "leaving" if "DRAIN" in node.state.flags else "batch"
