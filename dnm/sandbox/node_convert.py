"""The process behind the sandbox's `node-convert`: it asks the server, waits, prints, ends.

Started as a file by an isolated interpreter, so it imports the standard library only, and little of
that: a test starts it thousands of times.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_GIVEN = ("RES_NAME", "DNM_INSTANCE", "DNM_CONFIG", "DNM_REQUEST", "KUBECONFIG")


def main(url: str, arguments: list[str]) -> int:
    environment = {name: os.environ[name] for name in _GIVEN if name in os.environ}
    begun = {"arguments": arguments, "environment": environment, "process": os.getpid()}
    result = _ask(url, "begin", begun)
    _show(result)
    while result["operation"] is not None or result["hang"]:
        if result["hang"]:
            _hang()
        time.sleep(result["wait"])
        result = _ask(url, "finish", {"operation": result["operation"]})
        _show(result)
    return int(result["exit_code"])


def _ask(url: str, half: str, body: dict[str, Any]) -> dict[str, Any]:
    place = url.removeprefix("http://")
    content = json.dumps(body).encode()
    head = (  # 1.0: the answer comes in one piece, and ends with the connection
        f"POST /sandbox/node-convert/{half} HTTP/1.0\r\nHost: {place}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(head.encode() + content)
            with connection.makefile("rb") as stream:
                answer = stream.read()
        answer_head, _, answered = answer.partition(b"\r\n\r\n")
        status = answer_head.split(None, 2)[1:2]
        if status != [b"200"]:
            raise OSError(f"it answered {b''.join(status).decode() or 'nothing'}")
        return dict(json.loads(answered))
    except (OSError, ValueError) as error:
        print(f"node-convert: the sandbox at {url} can't be asked: {error}", file=sys.stderr)
        raise SystemExit(1) from error


def _show(result: dict[str, Any]) -> None:
    sys.stderr.write(result["stderr"])
    sys.stderr.flush()
    sys.stdout.write(result["stdout"])
    sys.stdout.flush()


def _hang() -> None:
    """As a converter whose ssh never comes back: deaf to SIGTERM, with a child that is deaf too."""
    import signal
    import subprocess

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-I", "-c", deaf])
    sys.stderr.write(f"node-convert: waiting for process {child.pid}\n")
    sys.stderr.flush()
    time.sleep(600)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
