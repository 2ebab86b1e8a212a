"""What both demos share: the sessions, runs of the real command, what was seen, and the books.

dnm is run again and again as cron would run it. The end is compared with the beginning by what
anybody could see: the Kubernetes API, exit codes, the queue document byte for byte.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from dnm.lab.demo.view import State, View, lent_nodes, pods_of
from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.client import ask
from dnm.lab.sandbox.commands import child_environment
from dnm.lab.sandbox.site import WORKSHOP_PODS, WORKSHOP_QUEUE
from dnm.model.errors import ExitCode, SandboxError, SlurmError

NAMESPACE = "dev"
_REDRAW_SECONDS = 0.2
_OWN_SITE = ("DNM_CONFIG", "KUBECONFIG", "RES_NAME")  # variables of the caller's, not of the demo


class Play:
    """A workshop on a cluster that is there, from its beginning to its books."""

    def __init__(
        self,
        url: str,
        config: Path,
        read_state: Callable[[], State],
        environment: Mapping[str, str] = {},
    ) -> None:
        """`url` is the sandbox's; the runs get `environment` too. Raises SandboxError."""
        self.url = url
        self.config = config
        self.read_state = read_state
        caller = child_environment()
        own = {name: text for name, text in caller.items() if name not in _OWN_SITE}
        self.environment = {**own, **environment}
        self.runs = 0
        self.failed_runs: list[str] = []
        self.lent: set[str] = set()
        self.ended = 0
        self.waits: list[float] = []  # seconds from a session's creation to its start
        self.document = self.read_document()
        self.beginning = self.look()

    def look(self) -> State:
        """Returns the state, and notes which nodes are lent and how many sessions have ended."""
        state = self.read_state()
        self.lent |= set(lent_nodes(state))
        self.ended = max(self.ended, pods_of(state, NAMESPACE)["ended"])
        return state

    def read_document(self) -> str:
        """Returns the queue document."""
        path = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"
        return str(ask(self.url, "GET", path)["data"]["queues.yaml"])

    def open_sessions(self, seconds: float) -> None:
        """Creates the sessions as JupyterHub would: a pod a person, through the Kubernetes API."""
        for number in range(1, WORKSHOP_PODS + 1):
            pod = manifests.pod_manifest(
                f"session-{number:02}", NAMESPACE, {"cpu": "4", "memory": "16G"},
                queue=WORKSHOP_QUEUE,
                annotations={manifests.RUN_SECONDS: str(seconds)},
            )  # fmt: skip
            ask(self.url, "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)

    def play_to_rest(
        self, view: View, is_at_rest: Callable[[State], bool], every: float, deadline: float
    ) -> None:
        """Runs dnm every so many seconds until the sessions have ended and all is at rest again,
        or the deadline, seconds from now, has passed."""
        until = time.monotonic() + deadline
        is_over = False
        while time.monotonic() < until:
            state = self.run_dnm(view)
            if not self.waits and _all_have_begun(state):
                self.waits = _waiting_seconds(self.url)
                view.narrate("All sessions run, on nodes that Slurm can spare.")
            if not is_over and self.ended == WORKSHOP_PODS:
                is_over = True
                view.narrate("The workshop is over. The lent nodes are idle, and soon go back.")
            if is_over and is_at_rest(state):
                view.narrate("Every node is back in Slurm, and the queue is as it was.")
                self.run_dnm(view)
                return
            self.watch(view, every)

    def run_dnm(self, view: View) -> State:
        """Runs the real command once, watched while it works; returns the state after it."""
        with tempfile.TemporaryFile("w+") as output:
            child = subprocess.Popen(
                self.command("run"), stdout=output, stderr=output, env=self.environment
            )
            try:
                state = self.watch(view, 0.0)
                while child.poll() is None:
                    state = self.watch(view, _REDRAW_SECONDS)
            finally:
                _end(child)
            output.seek(0)
            lines = [line for line in output.read().splitlines() if line.strip()]
        self.runs += 1
        for line in lines:
            view.show_output(line)
        if child.returncode:
            last = lines[-1] if lines else "without a word"
            self.failed_runs.append(f"run {self.runs} of dnm ended with {child.returncode}: {last}")
        return state

    def command(self, *words: str) -> list[str]:
        """Returns the command line of a verb of dnm."""
        return [sys.executable, "-m", "dnm.cli", *words, "--config", str(self.config)]

    def watch(self, view: View, seconds: float) -> State:
        """Shows the state for so long, and returns the last one."""
        until = time.monotonic() + seconds
        while True:
            state = self.look()
            view.show(state)
            left = until - time.monotonic()
            if left <= 0:
                return state
            time.sleep(min(left, _REDRAW_SECONDS))

    def check_books(self) -> list[str]:
        """Returns every way in which the end is not the beginning, as far as both demos have it."""
        problems = list(self.failed_runs)
        if self.read_document() != self.document:
            problems.append("the queue document is not byte for byte what it was")
        nodes = self.look()["nodes"]
        if set(nodes) != set(self.beginning["nodes"]):
            problems.append(f"Kubernetes has the nodes {', '.join(nodes)}")
        if self.ended != WORKSHOP_PODS:
            problems.append(f"{self.ended} of {WORKSHOP_PODS} sessions ran to their end")
        if not self.lent:
            problems.append("no node was lent at all")
        return problems


def _all_have_begun(state: State) -> bool:
    pods = pods_of(state, NAMESPACE)
    return pods["pending"] + pods["starting"] == 0


def _end(child: subprocess.Popen[bytes]) -> None:
    """After Ctrl-C the run has heard it too and ends by itself, or is ended."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _waiting_seconds(url: str) -> list[float]:
    pods = ask(url, "GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return [
        _instant(pod["status"]["startTime"]) - _instant(pod["metadata"]["creationTimestamp"])
        for pod in pods
        if "startTime" in pod["status"]
    ]


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets SIGTERM and a terminal that is closed end a demo as Ctrl-C does, but not under nohup."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = {
        sent: handler
        for sent in (signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(sent)) is not signal.SIG_IGN
    }

    def interrupt(number: int, frame: object) -> None:
        for sent in before:  # a shell and the kernel both tell of a closed terminal
            signal.signal(sent, signal.SIG_IGN)
        raise KeyboardInterrupt

    for sent in before:
        signal.signal(sent, interrupt)
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)


@ended_by_signals()
def play_in_scratch(
    prefix: str, play: Callable[[Path], list[str]], end: Callable[[Path], None], gone: str
) -> int:
    """Plays in a directory of its own: 0 if the books balance, 1 if they don't or it can't be
    played, 130 on Ctrl-C. `play` returns what is wrong; `end` stops what it has started, which
    `gone` names. What was written is kept only where something is wrong."""
    place = Path(tempfile.mkdtemp(prefix=prefix))
    problems: list[str] = []
    try:
        problems = [f"the books don't balance: {problem}" for problem in play(place)]
    except (SlurmError, SandboxError) as error:
        problems = [str(error)]
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"\ndnm: stopped; {gone}", file=sys.stderr)
        return 130
    finally:
        end(place)
        if not problems:
            shutil.rmtree(place, ignore_errors=True)
    for problem in problems:
        print(f"dnm: {problem}", file=sys.stderr)
    if problems:
        print(f"dnm: what was written is in {place}", file=sys.stderr)
    return ExitCode.FAILED if problems else ExitCode.OK
