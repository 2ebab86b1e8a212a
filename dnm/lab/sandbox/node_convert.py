"""The process behind the sandbox's `node-convert`: it sends a call to the server, waits, prints.

An isolated interpreter runs it as a file, and tests start it thousands of times. So it imports only
a little of the standard library: `json` and `socket` would each double the time of a start. It
exchanges a few plain lines (`control.py`) through `_socket`, on which `socket` is built."""

from __future__ import annotations

import _socket
import os
import sys
import time

_PASSED = ("RES_NAME", "DNM_INSTANCE", "DNM_CONFIG", "DNM_REQUEST", "KUBECONFIG")


def main(url: str, arguments: list[str]) -> int:
    environment = [f"{name}={os.environ[name]}" for name in _PASSED if name in os.environ]
    words = [str(os.getpid()), str(len(arguments)), *arguments, *environment]
    body = "\0".join(words).encode("utf-8", "surrogateescape")
    exit_code, operation, wait, hangs = _ask(url, "begin", body)
    while operation or hangs:
        if hangs:
            _hang()
        time.sleep(wait)
        exit_code, operation, wait, hangs = _ask(url, "finish", str(operation).encode())
    return exit_code


def _ask(url: str, half: str, body: bytes) -> tuple[int, int, float, bool]:
    """Sends `begin` or `finish` of a call and prints the output. Returns the server's orders."""
    place = url.removeprefix("http://")
    head = (  # 1.0: the answer comes in one piece, and ends with the connection
        f"POST /sandbox/node-convert/{half} HTTP/1.0\r\nHost: {place}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    try:
        answer = _exchange(place, head.encode() + body)
        answer_head, _, answered = answer.partition(b"\r\n\r\n")
        status = answer_head.split(None, 2)[1:2]
        if status != [b"200"]:
            raise OSError(f"it answered {b''.join(status).decode() or 'nothing'}")
        line, _, output = answered.partition(b"\n")
        code, operation, wait, hangs, length = line.split()
        at = int(length)
    except (OSError, ValueError) as error:
        print(f"node-convert: the sandbox at {url} can't be asked: {error}", file=sys.stderr)
        raise SystemExit(1) from error
    _show(output[:at], output[at:])
    return int(code), int(operation), float(wait), hangs == b"1"


def _exchange(place: str, request: bytes) -> bytes:
    host, _, port = place.rpartition(":")
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        connection.settimeout(60)
        connection.connect((host, int(port)))
        sent = 0
        while sent < len(request):
            sent += connection.send(request[sent:])
        pieces = []
        while piece := connection.recv(1 << 20):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        connection.close()


def _show(stdout: bytes, stderr: bytes) -> None:
    sys.stderr.buffer.write(stderr)
    sys.stderr.flush()
    sys.stdout.buffer.write(stdout)
    sys.stdout.flush()


def _hang() -> None:
    """Never returns and ignores SIGTERM, as does a child: like a converter with a hanging ssh."""
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
