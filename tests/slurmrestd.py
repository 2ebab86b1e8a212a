"""slurmrestd for a test's real Slurm: on a unix socket, or on loopback with tokens.

It refuses to run as root, so it runs as an unprivileged user. Over the socket, or with that user's
token, it may only read. slurmctld needs the tokens' key at its start (`allow_tokens`)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dnm.model.errors import SlurmError
from tests.real_slurm import SlurmLab

NOBODY = 65534
WAIT = 300.0  # seconds until it listens


def allow_tokens(lab: SlurmLab) -> None:
    """Configures a Slurm, which is not started yet, for tokens."""
    key = lab.directory / "jwt.key"
    lab.directory.mkdir(exist_ok=True)
    key.touch(0o600)
    key.write_bytes(os.urandom(32))
    lab.more += f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n"


def write_token(lab: SlurmLab, file: Path, user: str = "root", seconds: int = 1800) -> Path:
    """Writes a file with a token, as `scontrol token` prints it. Returns its path."""
    message = lab.run("scontrol", "token", f"username={user}", f"lifespan={seconds}")
    file.touch(0o600)
    file.write_text(message + "\n")
    return file


@contextmanager
def slurmrestd(lab: SlurmLab, listen: str) -> Iterator[str]:
    """Runs slurmrestd on the port `listen`, or on a socket if that is empty. Yields the URL."""
    place = lab.directory / "run" / "rest"
    place.mkdir(mode=0o700, exist_ok=True)
    os.chown(place, NOBODY, NOBODY)
    socket = place / f"{time.monotonic_ns()}.sock"
    address = f"127.0.0.1:{listen}" if listen else f"unix:{socket}"
    # From 23.11 on the plugin has no version of its own; 22.05 would load the accounting's too.
    plugins = (
        "slurmctld"
        if lab.version >= (23, 11)
        else "openapi/v0.0.36,openapi/v0.0.37,openapi/v0.0.38"
    )
    command = [
        f"{lab.programs}/setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
        "/usr/sbin/slurmrestd", "-s", plugins,
        "-a", "rest_auth/jwt" if listen else "rest_auth/local", address,
    ]  # fmt: skip
    environment = lab.environ | ({"SLURM_JWT": "daemon"} if listen else {})
    log = lab.directory / "log" / f"slurmrestd-{listen or 'local'}.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        deadline = time.monotonic() + WAIT
        while not _listens(listen, socket):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SlurmError(f"slurmrestd does not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield f"http://{address}" if listen else address
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: str, path: Path) -> bool:
    import socket

    family = socket.AF_INET if port else socket.AF_UNIX
    with socket.socket(family) as probe:
        return not probe.connect_ex(("127.0.0.1", int(port)) if port else str(path))
