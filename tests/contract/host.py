"""A host with the files of the tool that dnm replaces, on their paths; tests read its syslog."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from dnm.lab.sandbox.cluster import Sandbox
from tests.site import Site

ROOT = Path(__file__).parents[2]
ETC = Path("etc/dynamic-node")
CONVERTER = Path("usr/site/rcac/sbin/node-convert")
QUEUE_MAP = {"dev": "root.anvil.services.dev", "notebook": "root.anvil.services.notebook"}
# The host's /etc, /usr and /dev with the files of the test in them, for one process alone.
ON_ITS_PATHS = """
mkdir -p {place}/old/usr {place}/old/etc {place}/old/dev
mount --bind /usr {place}/old/usr
mount --bind /etc {place}/old/etc
mount --rbind /dev {place}/old/dev
mount --bind {place}/usr /usr
mount --bind {place}/etc /etc
mount --bind {place}/dev /dev
exec "$@"
"""
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
_END = "end"
Run = Callable[..., subprocess.CompletedProcess[str]]


class Syslog:
    """The socket /dev/log. A thread reads it, since programs that log wait while it is full."""

    def __init__(self, directory: Path) -> None:
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._directory = os.open(directory, os.O_PATH)
        self._address = f"/proc/self/fd/{self._directory}/log"  # the whole path may be too long
        self._socket.bind(self._address)
        threading.Thread(target=self._collect, daemon=True).start()

    def read(self) -> list[str]:
        """Returns the syslog lines that have arrived since the last call."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(_END.encode(), self._address)
        return list(iter(self._lines.get, _END))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RD)
        os.close(self._directory)

    def _collect(self) -> None:
        while content := self._socket.recv(65536):
            self._lines.put(content.decode())


class Host(NamedTuple):
    """A host for a test. `run` runs a command of dnm on it; `record` is converted_nodes.json;
    `calls` is a file with the arguments of each call of the converter."""

    run: Run
    record: Path
    calls: Path
    syslog: Syslog


def set_up_host(sandbox: Sandbox, directory: Path, ini: str, record: str = "") -> Host:
    """Writes the files of dnm's predecessor. `record` is its converted_nodes.json, or empty."""
    place = directory / "host"
    for made in (ETC, CONVERTER.parent, Path("dev")):
        (place / made).mkdir(parents=True)
    Site.write(place / ETC / "dynamic_node_config.ini", ini)
    Site.write(place / ETC / "namespace_queue_paths.json", json.dumps(QUEUE_MAP))
    if record:
        Site.write(place / ETC / "converted_nodes.json", record)
    calls = directory / "calls"
    Site.write(
        place / CONVERTER,
        f'#!/bin/sh\necho "$*" >>{calls}\nexec {sandbox.node_convert_path} "$@"\n',
    )
    (place / CONVERTER).chmod(0o755)
    syslog = Syslog(place / "dev")
    for of in ("etc", "usr", "dev"):
        overlay(place, of)
    program = ON_ITS_PATHS.format(place=shlex.quote(str(place)))
    environ = {key: text for key, text in os.environ.items() if key != "DNM_CONFIG"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dnm.cli", *words]
        return subprocess.run(
            [*UNSHARE, "sh", "-euc", program, "sh", *command],
            env=environ, capture_output=True, text=True, timeout=120, cwd=ROOT,
        )  # fmt: skip

    return Host(run, place / ETC / "converted_nodes.json", calls, syslog)


def overlay(place: Path, of: str) -> None:
    """Fills a directory of the test's root with links to the machine's own files in it."""
    for entry in Path("/", of).iterdir():
        if not (there := place / of / entry.name).exists():
            there.symlink_to(place / "old" / of / entry.name)
