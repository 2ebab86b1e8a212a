"""`dnm demo`: a workshop on an embedded cluster, with the real command, and the books at the end.

The sandbox is a process of its own, dnm is run again and again as cron would run it, and nothing is
taken from either but what anybody could see: the Kubernetes API, the exit codes, the sandbox's list
of things that must never happen. Ctrl-C leaves nothing behind.
"""

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
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from dnm.demo.view import State, View, lent_nodes, open_view, pods_of
from dnm.model.errors import ExitCode, SandboxError
from dnm.sandbox import manifests
from dnm.sandbox.client import ask
from dnm.sandbox.commands import child_environment, start, stop
from dnm.sandbox.site import WORKSHOP_PODS, WORKSHOP_QUEUE, write_configuration

NAMESPACE = "dev"
_MACHINES = 12
_SESSION_SECONDS = 8
_EVERY_SECONDS = 1.0  # between two runs
_DEADLINE_SECONDS = 85.0
_REDRAW_SECONDS = 0.2
_SETTINGS = {
    "global_cooldown_seconds": 2.0,
    "reversion_idle_seconds": 3.0,
}
_TIMING = {"pod_start": 1.5, "pod_stop": 0.5, "convert": 2, "revert": 2, "join": 0.5, "ready": 1,
           "completing": 1, "take_up": 0.2}  # fmt: skip


class Story(msgspec.Struct, kw_only=True):
    """What was at the beginning, and what has happened since."""

    url: str
    config: Path
    every: float  # seconds between two runs
    document: str
    beginning: State
    runs: int = 0
    failed_runs: list[str] = []
    lent: set[str] = msgspec.field(default_factory=set)
    waits: list[float] = []  # seconds from a session's creation to its start


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and a terminal that is closed end a demo as Ctrl-C does; under nohup it goes on."""
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
def demo(*, speed: float = 1.0) -> int:
    """Plays it: 0 if the books balance, 1 if they don't or it can't be played, 130 on Ctrl-C.

    `speed` shortens all waiting, but not the work of dnm itself.
    """
    place = Path(tempfile.mkdtemp(prefix="dnm-demo-"))
    problems: list[str] = []
    try:
        server = start(place / "sandbox", ["--nodes", str(_MACHINES), "--speed", str(speed)])
        problems = _play_and_check(_begin(server.url, place / "sandbox", speed))
    except SandboxError as error:
        problems = [str(error)]
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print("\ndnm: stopped; the sandbox is gone", file=sys.stderr)
        return 130
    finally:
        with contextlib.suppress(SandboxError):
            stop(place / "sandbox")
        if not problems:
            shutil.rmtree(place, ignore_errors=True)
    for problem in problems:
        print(f"dnm: the books don't balance: {problem}", file=sys.stderr)
    if problems:
        print(f"dnm: what the sandbox wrote is in {place}", file=sys.stderr)
    return ExitCode.FAILED if problems else ExitCode.OK


def _play_and_check(story: Story) -> list[str]:
    """Plays the workshop, prints what came of it, returns what is wrong."""
    begun = time.monotonic()
    view = open_view(WORKSHOP_QUEUE, NAMESPACE)
    try:
        _play(story, view, begun)
    finally:
        view.close()
    problems = _check_books(story)
    print(_summary(story, time.monotonic() - begun))
    if not problems:
        digest = hashlib.sha256(story.document.encode()).hexdigest()[:12]
        print(
            "The books balance: every node and every batch job is where it was, and the queue "
            f"document is the same byte for byte (sha256 {digest})."
        )
    return problems


# --- the play --------------------------------------------------------------------------------


def _begin(url: str, place: Path, speed: float) -> Story:
    ask(url, "POST", "/sandbox/timing", _TIMING)
    settings = {key: f"{seconds / speed:.2f}" for key, seconds in _SETTINGS.items()}
    settings["check_interval_seconds"] = "1"
    return Story(
        url=url,
        config=write_configuration(place, url, settings),
        every=_EVERY_SECONDS / speed,
        document=_queue_document(url),
        beginning=ask(url, "GET", "/sandbox/state"),
    )


def _play(story: Story, view: View, begun: float) -> None:
    view.show(story.beginning)
    view.tell("The cluster is full and nobody waits: a run of dnm has nothing to do.")
    _run_dnm(story, view)
    _open_sessions(story.url)
    view.tell(
        f"A workshop begins: {WORKSHOP_PODS} people open a session of 4 CPUs and 16 GB each. The "
        "queue may use 80 CPUs and 320 GB, and no node has room."
    )
    is_over = False
    while time.monotonic() - begun < _DEADLINE_SECONDS:
        state = _run_dnm(story, view)
        if not story.waits and _all_have_begun(state):
            story.waits = _waiting_seconds(story.url)
            view.tell("All sessions run, on nodes that Slurm can spare.")
        if not is_over and pods_of(state, NAMESPACE)["ended"] == WORKSHOP_PODS:
            is_over = True
            view.tell("The workshop is over. The lent nodes are idle, and soon go back.")
        if is_over and _is_at_rest(story, state):
            view.tell("Every node is back in Slurm, and the queue is as it was.")
            _run_dnm(story, view)
            return
        _watch(story, view, story.every)


def _all_have_begun(state: State) -> bool:
    pods = pods_of(state, NAMESPACE)
    return pods["pending"] + pods["starting"] == 0


def _is_at_rest(story: Story, state: State) -> bool:
    are_home = all(machine["place"] == "batch" for machine in state["machines"].values())
    return are_home and not _status(story)["nodes"]


def _open_sessions(url: str) -> None:
    """As JupyterHub would: one pod a person, through the Kubernetes API."""
    for number in range(1, WORKSHOP_PODS + 1):
        pod = manifests.pod_manifest(
            f"session-{number:02}", NAMESPACE, {"cpu": "4", "memory": "16G"}, queue=WORKSHOP_QUEUE,
            annotations={manifests.RUN_SECONDS: str(_SESSION_SECONDS)},
        )  # fmt: skip
        ask(url, "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)


def _run_dnm(story: Story, view: View) -> State:
    """One run of the real command, watched while it works."""
    command = [sys.executable, "-m", "dnm.cli", "run", "--config", str(story.config)]
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, env=_environment())
        try:
            state = _watch(story, view, 0.0)
            while child.poll() is None:
                state = _watch(story, view, _REDRAW_SECONDS)
        finally:
            _end(child)
        output.seek(0)
        lines = [line for line in output.read().splitlines() if line.strip()]
    story.runs += 1
    for line in lines:
        view.hear(line)
    if child.returncode:
        last = lines[-1] if lines else "without a word"
        story.failed_runs.append(f"run {story.runs} ended with {child.returncode}: {last}")
    return state


def _environment() -> dict[str, str]:
    """The caller's, but for the configuration that he may have."""
    environment = child_environment()
    for name in ("DNM_CONFIG", "KUBECONFIG"):
        environment.pop(name, None)
    return environment


def _end(child: subprocess.Popen[bytes]) -> None:
    """After Ctrl-C the run has heard it too and ends by itself, or is ended."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _watch(story: Story, view: View, seconds: float) -> State:
    """Shows the sandbox for so long."""
    until = time.monotonic() + seconds
    while True:
        state: State = ask(story.url, "GET", "/sandbox/state")
        story.lent |= set(lent_nodes(state))
        view.show(state)
        left = until - time.monotonic()
        if left <= 0:
            return state
        time.sleep(min(left, _REDRAW_SECONDS))


# --- the books -------------------------------------------------------------------------------


def _queue_document(url: str) -> str:
    path = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"
    return str(ask(url, "GET", path)["data"]["queues.yaml"])


def _status(story: Story) -> State:
    """dnm's own view, from its state file."""
    command = [sys.executable, "-m", "dnm.cli", "status", "--config", str(story.config)]
    done = subprocess.run(
        [*command, "--output", "json"], capture_output=True, env=_environment(), check=False
    )
    try:
        status: State = msgspec.json.decode(done.stdout)
    except msgspec.DecodeError as error:
        raise SandboxError(f"dnm status printed no JSON: {done.stderr.decode()[-200:]}") from error
    return status


def _check_books(story: Story) -> list[str]:
    """Every way in which the end is not the beginning."""
    state: State = ask(story.url, "GET", "/sandbox/state")
    problems = list(story.failed_runs)
    if _queue_document(story.url) != story.document:
        problems.append("the queue document is not byte for byte what it was")
    for name, machine in state["machines"].items():
        if machine != story.beginning["machines"][name]:
            was = story.beginning["machines"][name]["state"]
            problems.append(f"{name} is {machine['state']} in Slurm and was {was}")
    if set(state["nodes"]) != set(story.beginning["nodes"]):
        problems.append(f"Kubernetes has the nodes {', '.join(state['nodes'])}")
    ended = pods_of(state, NAMESPACE)["ended"]
    if ended != WORKSHOP_PODS:
        problems.append(f"{ended} of {WORKSHOP_PODS} sessions ran to their end")
    if not story.lent:
        problems.append("no node was lent at all")
    if _status(story)["nodes"]:
        problems.append("dnm still has lent nodes in its registry")
    for violation in ask(story.url, "GET", "/sandbox/violations"):
        problems.append(f"{violation['kind']}: {violation['node']}, {violation['detail']}")
    return problems


def _summary(story: Story, seconds: float) -> str:
    waits = sorted(story.waits)
    ended = pods_of(ask(story.url, "GET", "/sandbox/state"), NAMESPACE)["ended"]
    waited = f", after {waits[0]:.0f} to {waits[-1]:.0f} s of waiting" if waits else ""
    return f"""
{ended} of {WORKSHOP_PODS} sessions ran to their end{waited}.
{len(story.lent)} nodes were lent: {", ".join(sorted(story.lent))}.
{story.runs} runs of dnm, {len(story.failed_runs)} failed.
{seconds:.0f} s in all. On a site the same takes minutes: a node boots on each way."""


def _waiting_seconds(url: str) -> list[float]:
    pods = ask(url, "GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return [
        _instant(pod["status"]["startTime"]) - _instant(pod["metadata"]["creationTimestamp"])
        for pod in pods
        if "startTime" in pod["status"]
    ]


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
