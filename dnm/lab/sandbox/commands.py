"""`dnm sandbox up` and `dnm sandbox down`, which start and stop a sandbox in the background.

A directory with the marker file belongs to the sandbox. Any other directory that is not empty is
left alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import dnm
from dnm.converter.processes import process_of
from dnm.lab.sandbox.server import SERVER_FILE, Server
from dnm.model.errors import ExitCode, SandboxError

_MARKER = ".dnm-sandbox"
_LOG = "server.log"
_START_SECONDS = 20.0
_STOP_SECONDS = 10.0


def default_directory() -> Path:
    """Returns `$XDG_STATE_HOME/dnm/sandbox`, with the default of the XDG specification."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "dnm" / "sandbox"


def up(
    directory: Path | None = None,
    *,
    nodes: int = 12,
    workshop: bool = False,
    port: int = 0,
    speed: float = 1.0,
    queue_system: str = "yunikorn",
) -> int:
    """Starts a sandbox with `nodes` Slurm nodes and prints how to use it; returns the exit code."""
    place = (directory or default_directory()).absolute()
    arguments = ["--nodes", str(nodes), "--port", str(port), "--speed", str(speed)]
    arguments += ["--queue-system", queue_system]
    arguments += ["--workshop"] if workshop else []
    try:
        server = start(place, arguments)
    except SandboxError as error:
        print(f"dnm: {error}", file=sys.stderr)
        return ExitCode.FAILED
    print(_next_steps(place, server, workshop, queue_system))
    return ExitCode.OK


def down(directory: Path | None = None) -> int:
    """Ends the sandbox of a directory. The next `up` there starts a new one."""
    place = (directory or default_directory()).absolute()
    try:
        print(stop(place))
    except SandboxError as error:
        print(f"dnm: {error}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.OK


# --- starting ------------------------------------------------------------------------------


def start(place: Path, arguments: Sequence[str]) -> Server:
    """Starts the server in the background and waits until it serves. Raises SandboxError."""
    running = find_server(place)
    if running is not None:
        raise SandboxError(
            f"a sandbox runs in {place} already, at {running.url} (process {running.pid}); "
            f"`dnm sandbox down --dir {place}` ends it"
        )
    _prepare(place)
    command = [sys.executable, "-m", "dnm.lab.sandbox.server", str(place), *arguments]
    with (place / _LOG).open("wb") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=child_environment(),
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    try:
        while child.poll() is None and time.monotonic() < deadline:
            server = find_server(place)
            if server is not None and server.pid == child.pid:
                return server
            time.sleep(0.03)
    except KeyboardInterrupt:
        child.kill()
        child.wait()
        raise
    if child.poll() is None:
        child.kill()
        child.wait()
        raise SandboxError(f"the sandbox did not answer in time; see {place / _LOG}")
    lines = (place / _LOG).read_text(errors="replace").strip().splitlines()
    raise SandboxError(lines[-1] if lines else f"the sandbox ended at once; see {place / _LOG}")


def child_environment() -> dict[str, str]:
    """Returns the environment of a child process that runs the same code, installed or not."""
    root = str(Path(dnm.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def _prepare(place: Path) -> None:
    """Creates the directory, or removes an earlier sandbox's files from it. Raises SandboxError."""
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (place / _MARKER).exists() and any(place.iterdir()):
            raise SandboxError(
                f"{place} is not empty and not of a sandbox; name another directory with --dir"
            )
        (place / _MARKER).touch()
        (place / SERVER_FILE).unlink(missing_ok=True)
        (place / "dnm.ini").unlink(missing_ok=True)
        shutil.rmtree(place / "state", ignore_errors=True)
    except OSError as error:
        raise SandboxError(
            f"{place} can't be used: {error.strerror}; name another directory with --dir"
        ) from error


def _next_steps(place: Path, server: Server, workshop: bool, queue_system: str) -> str:
    missing = "need nodes" if queue_system == "resource_quota" else "are pending"
    waiting = f"\n75 pods of a workshop {missing} in namespace dev." if workshop else ""
    option = "" if place == default_directory() else f" --dir {place}"
    load = "" if workshop else "\n    dnm test-load dev --wait 30s   pods that need nodes"
    return f"""\
A sandbox runs at {server.url} (process {server.pid}), with a site to try dnm on.{waiting}

    export KUBECONFIG={place / "kubeconfig"}
    export DNM_CONFIG={place / "dnm.ini"}

    kubectl get nodes,pods -A     what is there
    dnm nodes                     which batch nodes could be lent{load}
    dnm plan                      what dnm would do now, and why
    dnm run                       one pass; again and again, as cron would
    dnm status                    what is lent

    dnm sandbox down{option}"""


# --- finding and stopping ------------------------------------------------------------------


def find_server(place: Path) -> Server | None:
    """Returns the running server of a directory; None if none runs, e.g. if the file is stale."""
    server = _recorded(place)
    if server is None:
        return None
    process = process_of(server.pid)
    return server if process and process.start_ticks == server.start_ticks else None


def _recorded(place: Path) -> Server | None:
    try:
        return msgspec.json.decode((place / SERVER_FILE).read_bytes(), type=Server)
    except (OSError, msgspec.MsgspecError):
        return None


def stop(place: Path) -> str:
    """Ends a sandbox and returns a sentence about it. Raises SandboxError if there is none."""
    server, recorded = find_server(place), _recorded(place)
    if server is None:
        if recorded is not None:
            (place / SERVER_FILE).unlink(missing_ok=True)
            return f"The sandbox in {place} had ended already (process {recorded.pid})."
        raise SandboxError(
            f"no sandbox runs in {place}; `dnm sandbox up --dir {place}` starts one"
            if (place / _MARKER).exists()
            else f"there is no sandbox in {place}; name its directory with --dir"
        )
    _end(server)
    (place / SERVER_FILE).unlink(missing_ok=True)
    return (
        f"The sandbox in {place} is down. The next `dnm sandbox up` starts with an empty cluster."
    )


def _end(server: Server) -> None:
    def lives() -> bool:
        process = process_of(server.pid)
        return process is not None and process.start_ticks == server.start_ticks

    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, number)
        deadline = time.monotonic() + _STOP_SECONDS
        while lives() and time.monotonic() < deadline:
            _reap(server.pid)
            time.sleep(0.02)
        if not lives():
            return


def _reap(pid: int) -> Any:
    """Removes the ended server from the process table if it is a child of this process."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)
    return None
