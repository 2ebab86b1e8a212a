"""`dnm demo`: a workshop on an embedded cluster, with the real command and final checks.

The sandbox is a separate process. The demo reads only its Kubernetes API and its list of
violations, and starts dnm repeatedly as cron does. Ctrl-C removes all files."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from dnm.lab.demo.view import State, View, lent_nodes, pods_of
from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.client import ask
from dnm.lab.sandbox.commands import child_environment, start, stop
from dnm.lab.sandbox.site import WORKSHOP_PODS, WORKSHOP_QUEUE, write_configuration
from dnm.model.errors import ExitCode, SandboxError

NAMESPACE = "dev"
_MACHINES = 12
_SESSION_SECONDS = 8
_EVERY_SECONDS = 1.0  # between two runs
_DEADLINE_SECONDS = 85.0
_REDRAW_SECONDS = 0.2
_OWN_SITE = ("DNM_CONFIG", "KUBECONFIG", "RES_NAME")  # variables of the caller's, not of the demo
_SETTINGS = {
    "global_cooldown_seconds": 2.0,
    "reversion_idle_seconds": 3.0,
}
_TIMING = {"pod_start": 1.5, "pod_stop": 0.5, "convert": 2, "revert": 2, "join": 0.5, "ready": 1,
           "completing": 1, "take_up": 0.2}  # fmt: skip


def demo(*, speed: float = 1.0) -> int:
    """Plays the workshop and returns the exit code: 0 if all final checks pass, 1 if one fails or
    the demo cannot start, 130 on Ctrl-C. `speed` shortens all waiting, but not the work of dnm. The
    files stay only if a check fails."""
    with _ended_by_signals() as ignore_signals:
        place = Path(tempfile.mkdtemp(prefix="dnm-demo-"))
        problems: list[str] = []
        try:
            problems = [f"a final check failed: {name}" for name in _play_and_check(place, speed)]
        except SandboxError as error:
            problems = [str(error)]
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):  # the terminal may be gone
                print("\ndnm: stopped; the sandbox is gone", file=sys.stderr)
            return 130
        finally:
            ignore_signals()
            with contextlib.suppress(SandboxError):
                stop(place / "sandbox")
            if not problems:
                shutil.rmtree(place, ignore_errors=True)
    for problem in problems:
        print(f"dnm: {problem}", file=sys.stderr)
    if problems:
        print(f"dnm: what was written is in {place}", file=sys.stderr)
    return ExitCode.FAILED if problems else ExitCode.OK


def _play_and_check(place: Path, speed: float) -> list[str]:
    """Plays the workshop, prints a summary, and returns the final checks that failed."""
    url = start(place / "sandbox", ["--nodes", str(_MACHINES), "--speed", str(speed)]).url
    ask(url, "POST", "/sandbox/timing", _TIMING)
    settings = {key: f"{seconds / speed:.2f}" for key, seconds in _SETTINGS.items()}
    settings["check_interval_seconds"] = "1"
    workshop = Workshop(url, write_configuration(place / "sandbox", url, settings))
    begun = time.monotonic()
    workshop.play(View(WORKSHOP_QUEUE, NAMESPACE), _EVERY_SECONDS / speed)
    problems = workshop.check_end()
    print(workshop.sum_up(time.monotonic() - begun))
    if not problems:
        digest = hashlib.sha256(workshop.document.encode()).hexdigest()[:12]
        print(
            "All checks passed: every node and every batch job is where it was, and the\n"
            f"queue document is the same byte for byte (sha256 {digest})."
        )
    return problems


class Workshop:
    """The workshop on a running sandbox, from its start to the final checks."""

    def __init__(self, url: str, config: Path) -> None:
        """Reads the initial state of the sandbox at `url`. Raises SandboxError."""
        self.url = url
        self.config = config
        caller = child_environment()
        self.environment = {name: item for name, item in caller.items() if name not in _OWN_SITE}
        self.runs = 0
        self.failed_runs: list[str] = []
        self.lent: set[str] = set()
        self.ended = 0
        self.waits: list[float] = []  # seconds from a session's creation to its start
        self.document = self.read_document()
        self.beginning = self.look()

    def play(self, view: View, every: float) -> None:
        """Runs dnm every `every` seconds until the sessions have ended and all nodes are back in
        Slurm, or until the time limit."""
        view.show(self.beginning)
        view.narrate("The cluster is full and no pod waits: a run of dnm has nothing to do.")
        self.run_dnm(view)
        self._open_sessions()
        view.narrate(
            f"A workshop begins: {WORKSHOP_PODS} people open a session of 4 CPUs and 16 GB each. "
            "The queue may use 80 CPUs and 320 GB, and no node has free capacity."
        )
        until = time.monotonic() + _DEADLINE_SECONDS
        is_over = False
        while time.monotonic() < until:
            state = self.run_dnm(view)
            if not self.waits and _all_have_begun(state):
                self.waits = _waiting_seconds(self.url)
                view.narrate("All sessions run, on nodes that Slurm can spare.")
            if not is_over and self.ended == WORKSHOP_PODS:
                is_over = True
                view.narrate("The workshop is over. The lent nodes are idle, and soon go back.")
            if is_over and self._is_at_rest(state):
                view.narrate("Every node is back in Slurm, and the queue is as it was.")
                self.run_dnm(view)
                return
            self.watch(view, every)

    def look(self) -> State:
        """Returns the sandbox's state. Records which nodes are lent and how many sessions ended."""
        state: State = ask(self.url, "GET", "/sandbox/state")
        self.lent |= set(lent_nodes(state))
        self.ended = max(self.ended, pods_of(state, NAMESPACE)["ended"])
        return state

    def read_document(self) -> str:
        """Returns the text of YuniKorn's queue document in the sandbox."""
        path = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"
        return str(ask(self.url, "GET", path)["data"]["queues.yaml"])

    def _open_sessions(self) -> None:
        """Creates a pod for each user by the Kubernetes API, as JupyterHub does for a session."""
        for number in range(1, WORKSHOP_PODS + 1):
            pod = manifests.pod_manifest(
                f"session-{number:02}", NAMESPACE, {"cpu": "4", "memory": "16G"},
                queue=WORKSHOP_QUEUE,
                annotations={manifests.RUN_SECONDS: str(_SESSION_SECONDS)},
            )  # fmt: skip
            ask(self.url, "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)

    def run_dnm(self, view: View) -> State:
        """Runs `dnm run` once and shows the state while it works. Returns the state after it."""
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
        """Returns a command line that calls dnm with these arguments on the sandbox."""
        return [sys.executable, "-m", "dnm.cli", *words, "--config", str(self.config)]

    def watch(self, view: View, seconds: float) -> State:
        """Shows the state repeatedly for these seconds, and returns the last state."""
        until = time.monotonic() + seconds
        while True:
            state = self.look()
            view.show(state)
            left = until - time.monotonic()
            if left <= 0:
                return state
            time.sleep(min(left, _REDRAW_SECONDS))

    def _is_at_rest(self, state: State) -> bool:
        are_home = all(machine["place"] == "batch" for machine in state["machines"].values())
        return are_home and not self._status()["nodes"]

    def _status(self) -> State:
        """Returns the output of `dnm status`, decoded."""
        command = self.command("status", "--output", "json")
        done = subprocess.run(command, capture_output=True, env=self.environment, check=False)
        try:
            status: State = msgspec.json.decode(done.stdout)
        except msgspec.DecodeError as error:
            error_text = done.stderr.decode()[-200:]
            raise SandboxError(f"dnm status printed no JSON: {error_text}") from error
        return status

    def check_end(self) -> list[str]:
        """Returns the final checks that failed: is everything as at the beginning again?"""
        problems = list(self.failed_runs)
        if self.read_document() != self.document:
            problems.append("the queue document is not byte for byte what it was")
        state = self.look()
        if set(state["nodes"]) != set(self.beginning["nodes"]):
            problems.append(f"Kubernetes has the nodes {', '.join(state['nodes'])}")
        if self.ended != WORKSHOP_PODS:
            problems.append(f"{self.ended} of {WORKSHOP_PODS} sessions ran to their end")
        if not self.lent:
            problems.append("no node was lent at all")
        for name, machine in state["machines"].items():
            was = self.beginning["machines"][name]
            if machine != was:
                problems.append(f"{name} is {machine['state']} in Slurm and was {was['state']}")
        if self._status()["nodes"]:
            problems.append("dnm still has lent nodes in its registry")
        for violation in ask(self.url, "GET", "/sandbox/violations"):
            problems.append(f"{violation['kind']}: {violation['node']}, {violation['detail']}")
        return problems

    def sum_up(self, seconds: float) -> str:
        """Returns a summary of the workshop, to be printed."""
        waits = sorted(self.waits)
        waited = f", after {waits[0]:.0f} to {waits[-1]:.0f} s of waiting" if waits else ""
        return f"""
{self.ended} of {WORKSHOP_PODS} sessions ran to their end{waited}.
{len(self.lent)} nodes were lent: {", ".join(sorted(self.lent))}.
{self.runs} runs of dnm, {len(self.failed_runs)} failed.
{seconds:.0f} s in all. On a site the same takes minutes: a node boots on each way."""


def _all_have_begun(state: State) -> bool:
    pods = pods_of(state, NAMESPACE)
    return pods["pending"] + pods["starting"] == 0


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends a run of dnm that still works, e.g. after Ctrl-C, which the run receives too."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(5)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
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
def _ended_by_signals() -> Iterator[Callable[[], None]]:
    """Makes SIGTERM and SIGHUP (not under nohup) end the demo like Ctrl-C. Yields a function after
    which the demo ignores all these signals: a second one, e.g. from a second Ctrl-C or from a
    closed terminal, must not interrupt the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    before = {
        sent: handler
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(sent)) is not signal.SIG_IGN
    }

    def ignore() -> None:
        for sent in before:
            signal.signal(sent, signal.SIG_IGN)

    def interrupt(number: int, frame: object) -> None:
        ignore()  # a shell and the kernel both tell of a closed terminal
        raise KeyboardInterrupt

    for sent in before:
        signal.signal(sent, interrupt)
    try:
        yield ignore
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)
