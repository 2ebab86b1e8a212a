"""`dnm demo`: a workshop on an embedded cluster, with the real command, and the books at the end.

The sandbox is a process of its own, and nothing is taken from it but what anybody could see: the
Kubernetes API, and its list of things that must never happen. Ctrl-C leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import time
from pathlib import Path

import msgspec

from dnm.lab.demo.play import NAMESPACE, Play, play_in_scratch
from dnm.lab.demo.view import State, View, open_view
from dnm.lab.sandbox.client import ask
from dnm.lab.sandbox.commands import start, stop
from dnm.lab.sandbox.site import WORKSHOP_PODS, WORKSHOP_QUEUE, write_configuration
from dnm.model.errors import SandboxError

_MACHINES = 12
_SESSION_SECONDS = 8
_EVERY_SECONDS = 1.0  # between two runs
_DEADLINE_SECONDS = 85.0
_SETTINGS = {
    "global_cooldown_seconds": 2.0,
    "reversion_idle_seconds": 3.0,
}
_TIMING = {"pod_start": 1.5, "pod_stop": 0.5, "convert": 2, "revert": 2, "join": 0.5, "ready": 1,
           "completing": 1, "take_up": 0.2}  # fmt: skip


def demo(*, speed: float = 1.0) -> int:
    """Plays it and returns the exit code: 0 if the books balance, 1 if they don't or it can't be
    played, 130 on Ctrl-C. `speed` shortens all waiting, but not the work of dnm itself."""

    def end(place: Path) -> None:
        with contextlib.suppress(SandboxError):
            stop(place / "sandbox")

    return play_in_scratch(
        "dnm-demo-", lambda place: _play_and_check(place, speed), end, "the sandbox is gone"
    )


def _play_and_check(place: Path, speed: float) -> list[str]:
    """Plays the workshop, prints what came of it, returns what is wrong."""
    server = start(place / "sandbox", ["--nodes", str(_MACHINES), "--speed", str(speed)])
    play = _begin(server.url, place / "sandbox", speed)
    begun = time.monotonic()
    view = open_view(WORKSHOP_QUEUE, NAMESPACE)
    try:
        _play(play, view, _EVERY_SECONDS / speed)
    finally:
        view.close()
    problems = _check_books(play)
    print(_summary(play, time.monotonic() - begun))
    if not problems:
        digest = hashlib.sha256(play.document.encode()).hexdigest()[:12]
        print(
            "The books balance: every node and every batch job is where it was, and the queue "
            f"document is the same byte for byte (sha256 {digest})."
        )
    return problems


def _begin(url: str, place: Path, speed: float) -> Play:
    ask(url, "POST", "/sandbox/timing", _TIMING)
    settings = {key: f"{seconds / speed:.2f}" for key, seconds in _SETTINGS.items()}
    settings["check_interval_seconds"] = "1"
    config = write_configuration(place, url, settings)

    def read_state() -> State:
        state: State = ask(url, "GET", "/sandbox/state")
        return state

    return Play(url, config, read_state)


def _play(play: Play, view: View, every: float) -> None:
    view.show(play.beginning)
    view.narrate("The cluster is full and nobody waits: a run of dnm has nothing to do.")
    play.run_dnm(view)
    play.open_sessions(_SESSION_SECONDS)
    view.narrate(
        f"A workshop begins: {WORKSHOP_PODS} people open a session of 4 CPUs and 16 GB each. The "
        "queue may use 80 CPUs and 320 GB, and no node has room."
    )
    play.play_to_rest(view, lambda state: _is_at_rest(play, state), every, _DEADLINE_SECONDS)


def _is_at_rest(play: Play, state: State) -> bool:
    are_home = all(machine["place"] == "batch" for machine in state["machines"].values())
    return are_home and not _status(play)["nodes"]


def _status(play: Play) -> State:
    """dnm's own view, from its state file."""
    command = play.command("status", "--output", "json")
    done = subprocess.run(command, capture_output=True, env=play.environment, check=False)
    try:
        status: State = msgspec.json.decode(done.stdout)
    except msgspec.DecodeError as error:
        raise SandboxError(f"dnm status printed no JSON: {done.stderr.decode()[-200:]}") from error
    return status


def _check_books(play: Play) -> list[str]:
    """Every way in which the end is not the beginning."""
    problems = play.check_books()
    for name, machine in play.look()["machines"].items():
        was = play.beginning["machines"][name]
        if machine != was:
            problems.append(f"{name} is {machine['state']} in Slurm and was {was['state']}")
    if _status(play)["nodes"]:
        problems.append("dnm still has lent nodes in its registry")
    for violation in ask(play.url, "GET", "/sandbox/violations"):
        problems.append(f"{violation['kind']}: {violation['node']}, {violation['detail']}")
    return problems


def _summary(play: Play, seconds: float) -> str:
    waits = sorted(play.waits)
    waited = f", after {waits[0]:.0f} to {waits[-1]:.0f} s of waiting" if waits else ""
    return f"""
{play.ended} of {WORKSHOP_PODS} sessions ran to their end{waited}.
{len(play.lent)} nodes were lent: {", ".join(sorted(play.lent))}.
{play.runs} runs of dnm, {len(play.failed_runs)} failed.
{seconds:.0f} s in all. On a site the same takes minutes: a node boots on each way."""
