"""The process behind the sandbox's `node-convert`: it asks the server, waits, prints, ends.

Started as a file by an isolated interpreter, so it imports the standard library only, and little of
that.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlsplit

_GIVEN = ("RES_NAME", "DNM_INSTANCE", "DNM_CONFIG", "KUBECONFIG")


def main(url: str, arguments: list[str]) -> int:
    environment = {name: os.environ[name] for name in _GIVEN if name in os.environ}
    result = _ask(url, "begin", {"arguments": arguments, "environment": environment})
    _show(result)
    while result["operation"] is not None or result["hang"]:
        if result["hang"]:
            _hang()
        time.sleep(result["wait"])
        result = _ask(url, "finish", {"operation": result["operation"]})
        _show(result)
    return int(result["exit_code"])


def _ask(url: str, half: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("POST", f"/sandbox/node-convert/{half}", json.dumps(body))
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise OSError(f"it answered {answer.status}")
        return dict(json.loads(content))
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"node-convert: the sandbox at {url} can't be asked: {error}", file=sys.stderr)
        raise SystemExit(1) from error


def _show(result: dict[str, Any]) -> None:
    sys.stderr.write(result["stderr"])
    sys.stderr.flush()
    sys.stdout.write(result["stdout"])
    sys.stdout.flush()


def _hang() -> None:
    """As a converter whose ssh never comes back: deaf to SIGTERM, with a child that is deaf too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-I", "-c", deaf])
    sys.stderr.write(f"node-convert: waiting for process {child.pid}\n")
    sys.stderr.flush()
    time.sleep(600)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
