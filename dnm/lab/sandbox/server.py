"""The server process of a sandbox, which `dnm sandbox up` starts and `dnm sandbox down` ends."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec

from dnm.converter.processes import process_of
from dnm.lab.sandbox.clock import real_life
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.files import write_file
from dnm.lab.sandbox.site import add_workshop, build_site, write_configuration
from dnm.model.errors import SandboxError

SERVER_FILE = "server.json"


class Server(msgspec.Struct, kw_only=True):
    """The server process of a directory. Its start time identifies it, since numbers are reused."""

    pid: int
    start_ticks: int
    url: str


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dnm.lab.sandbox.server")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--workshop", action="store_true")
    parser.add_argument("--queue-system", default="yunikorn")
    parser.add_argument("--speed", type=float, default=1.0)
    options = parser.parse_args(arguments)
    try:
        serve(options)
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def serve(options: argparse.Namespace) -> None:
    """Serves until SIGTERM or SIGINT. Raises SandboxError if the start fails."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    directory: Path = options.directory
    sandbox = Sandbox(
        directory, manual=False, speed=options.speed, port=options.port, timing=real_life()
    )
    system = options.queue_system
    build_site(sandbox, options.nodes, system)
    if options.workshop:
        add_workshop(sandbox, queue_system=system)
    sandbox.start()
    if not (directory / "dnm.ini").exists():
        write_configuration(directory, sandbox.url, {"queue_system": system})
    process = process_of(os.getpid())
    ticks = process.start_ticks if process else 0
    server = Server(pid=os.getpid(), start_ticks=ticks, url=sandbox.url)
    write_file(directory / SERVER_FILE, msgspec.json.encode(server))
    try:
        ended.wait()
    finally:
        (directory / SERVER_FILE).unlink(missing_ok=True)
        sandbox.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
