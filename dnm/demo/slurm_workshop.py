"""`dnm demo --slurm`: the workshop with a real Slurm, node-convert and the sandbox's Kubernetes.

Slurm's daemons run on loopback as this user, from Debian's packages; a node leaves by its slurmd
and comes back by it. dnm is the real command, run again and again as cron would. At the end the
books are checked in Slurm and in Kubernetes: every node and job where it was, the queue document
the same byte for byte.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dnm.convert.lab import SlurmLab
from dnm.convert.lab_hooks import write_lab_hooks
from dnm.demo.view import State, View, lent_nodes, open_view, pods_of
from dnm.demo.workshop import ended_by_signals
from dnm.model.errors import ExitCode, SandboxError, SlurmError
from dnm.sandbox import manifests
from dnm.sandbox.client import ask
from dnm.sandbox.commands import child_environment, start, stop
from dnm.sandbox.site import WORKSHOP_PODS, WORKSHOP_QUEUE, write_configuration
from dnm.slurm.text import SlurmNode

NAMESPACE = "dev"
NODES = tuple(f"a{number:03}" for number in range(1, 9))
_WORKING = ("a001", "a005")  # nodes with a batch job on them, from the beginning to the end
_DEADLINE_SECONDS = 240.0
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


class SlurmDemo:
    """The lab, the sandbox, dnm's configuration, and what was there at the beginning."""

    def __init__(self, place: Path, session_seconds: float) -> None:
        self.place = place
        self.session_seconds = session_seconds
        self.lab = SlurmLab(place / "slurm", NODES)
        self.jobs: list[str] = []
        self.runs = 0
        self.problems: list[str] = []
        self.lent: set[str] = set()
        self.ended = 0

    def build(self) -> None:
        """Raises SlurmError where Slurm is not installed, SandboxError for the sandbox."""
        self.lab.start()
        self.url = start(self.place / "sandbox", ["--nodes", "0"]).url
        size = {"cpu": "128", "memory": "256G", "pods": "110"}
        write_lab_hooks(self.place / "hooks", self.lab.directory, self.url, size)
        converter = self.place / "node-convert"
        converter.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dnm.convert.cli "$@"\n')
        converter.chmod(0o755)
        self.config = write_configuration(
            self.place / "sandbox", self.url, {**_SETTINGS, "node_convert_path": str(converter)}
        )
        with self.config.open("a") as file:
            file.write(_NODE_CONVERT)
        self.jobs = [self.lab.submit("-w", node, "--exclusive") for node in _WORKING]
        self.lab.wait_for(lambda: all(map(self._is_running, self.jobs)), 15)
        self.document = self.read_document()
        self.kube_nodes = set(self.state()["nodes"])

    def _is_running(self, job: str) -> bool:
        return self.lab.client.read_job(job).state == "RUNNING"

    def read_document(self) -> str:
        path = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"
        return str(ask(self.url, "GET", path)["data"]["queues.yaml"])

    def state(self) -> State:
        """The sandbox's, with Slurm's own nodes as its machines."""
        state: State = ask(self.url, "GET", "/sandbox/state")
        state["machines"] = {
            node.name: {
                "state": node.state.text,
                "place": _place(node),
                "jobs": int(node.state.has_work),
            }
            for node in self.lab.read_nodes()
        }
        self.lent |= set(lent_nodes(state))
        self.ended = max(self.ended, pods_of(state, NAMESPACE)["ended"])
        return state

    def open_sessions(self) -> None:
        for number in range(1, WORKSHOP_PODS + 1):
            pod = manifests.pod_manifest(
                f"session-{number:02}", NAMESPACE, {"cpu": "4", "memory": "16G"},
                queue=WORKSHOP_QUEUE,
                annotations={manifests.RUN_SECONDS: str(self.session_seconds)},
            )  # fmt: skip
            ask(self.url, "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)

    def run_dnm(self, view: View) -> State:
        """One run of the real command, watched while it works."""
        environment = {**child_environment(), **self._environment()}
        command = [sys.executable, "-m", "dnm.cli", "run", "--config", str(self.config)]
        with tempfile.TemporaryFile("w+") as output:
            child = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
            try:
                while child.poll() is None:
                    view.show(self.state())
                    time.sleep(0.3)
            finally:
                if child.poll() is None:
                    child.terminate()
                    child.wait()
            output.seek(0)
            lines = [line for line in output.read().splitlines() if line.strip()]
        self.runs += 1
        for line in lines:
            view.hear(line)
        if child.returncode:
            last = lines[-1] if lines else "without a word"
            self.problems.append(f"run {self.runs} of dnm ended with {child.returncode}: {last}")
        return self.state()

    def _environment(self) -> dict[str, str]:
        """The lab's slurm.conf, and nothing of the caller's own site."""
        own = {"SLURM_CONF": self.lab.environ["SLURM_CONF"]}
        return own | dict.fromkeys(("DNM_CONFIG", "KUBECONFIG", "RES_NAME"), "")

    def play(self, view: View) -> None:
        """Until everything is at rest again, or the time is over."""
        begun = time.monotonic()
        view.tell("A real Slurm of eight nodes; jobs run on two of them, and nobody waits.")
        self.run_dnm(view)
        self.open_sessions()
        view.tell(f"A workshop begins: {WORKSHOP_PODS} sessions of 4 CPUs and 16 GB each.")
        is_over = False
        while time.monotonic() - begun < _DEADLINE_SECONDS:
            state = self.run_dnm(view)
            view.show(state)
            if not is_over and self.ended == WORKSHOP_PODS:
                is_over = True
                view.tell("The workshop is over. The lent nodes are idle, and soon go back.")
            if is_over and self._is_at_rest(state):
                view.tell("Every node is back in Slurm.")
                self.run_dnm(view)
                return
            time.sleep(0.5)

    def _is_at_rest(self, state: State) -> bool:
        return set(state["nodes"]) == self.kube_nodes and not self._find_unreturned()

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

    def check_books(self) -> list[str]:
        """Every way in which the end is not the beginning."""
        problems = [*self.problems, *self._find_unreturned()]
        if self.read_document() != self.document:
            problems.append("the queue document is not byte for byte what it was")
        if set(self.state()["nodes"]) != self.kube_nodes:
            problems.append(f"Kubernetes has the nodes {', '.join(self.state()['nodes'])}")
        if self.ended != WORKSHOP_PODS:
            problems.append(f"{self.ended} of {WORKSHOP_PODS} sessions ran to their end")
        if not self.lent:
            problems.append("no node was lent at all")
        if self.lent & set(_WORKING):
            problems.append("a node with a batch job on it was lent")
        problems += [f"job {job} does not run" for job in self.jobs if not self._is_running(job)]
        return problems

    def end(self) -> None:
        with contextlib.suppress(SandboxError):
            stop(self.place / "sandbox")
        self.lab.stop()


def _place(node: SlurmNode) -> str:
    return "leaving" if "DRAIN" in node.state.flags else "batch"


@ended_by_signals()
def demo_slurm(session_seconds: float = 8) -> int:
    """Plays it: 0 if the books balance, 1 if they don't or it can't be played, 130 on Ctrl-C."""
    place = Path(tempfile.mkdtemp(prefix="dnm-slurm-demo-"))
    place.chmod(0o755)  # the lab's jobs and daemons read below it
    demo = SlurmDemo(place, session_seconds)
    problems: list[str] = []
    try:
        problems = _play_and_check(demo)
    except (SlurmError, SandboxError) as error:
        problems = [str(error)]
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print("\ndnm: stopped; Slurm and the sandbox are gone", file=sys.stderr)
        return 130
    finally:
        demo.end()
        if not problems:
            shutil.rmtree(place, ignore_errors=True)
    for problem in problems:
        print(f"dnm: {problem}", file=sys.stderr)
    if problems:
        print(f"dnm: what was written is in {place}", file=sys.stderr)
    return ExitCode.FAILED if problems else ExitCode.OK


def _play_and_check(demo: SlurmDemo) -> list[str]:
    """Prints what came of it, returns what is wrong."""
    begun = time.monotonic()
    demo.build()
    view = open_view(WORKSHOP_QUEUE, NAMESPACE)
    try:
        demo.play(view)
    finally:
        view.close()
    problems = [f"the books don't balance: {problem}" for problem in demo.check_books()]
    print(
        f"\n{demo.ended} of {WORKSHOP_PODS} sessions ran to their end on {len(demo.lent)} lent "
        f"nodes ({', '.join(sorted(demo.lent))}), in {demo.runs} runs of dnm and "
        f"{time.monotonic() - begun:.0f} s."
    )
    if not problems:
        print("The books balance: Slurm, Kubernetes and the queue document are as they were.")
    return problems
