"""A server that sends exactly the given bytes, and records its requests.

It sends answers that no real server sends on purpose: cut off, very slow, of a false length."""

from __future__ import annotations

import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from dnm.kube.access import Access, load_access
from tests.builders import a_config


@dataclass(frozen=True)
class Asked:
    """A received request. `connection` is the number of its connection, from 0."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int


@dataclass(frozen=True)
class Drip:
    """An answer that sends `head`, then one byte of `body` every `pause` seconds."""

    head: bytes
    body: bytes
    pause: float


class Last(bytes):
    """An answer after which the server closes the connection."""


HANG_UP = b""  # closes the connection without an answer


def answer(
    body: object = b"", status: str = "200 OK", headers: Sequence[str] = (), chunked: int = 0
) -> bytes:
    """Returns a valid HTTP answer; `chunked` sends the body in chunks of this size."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", *headers]
    if not chunked:
        lines.append(f"Content-Length: {len(raw)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw
    lines.append("Transfer-Encoding: chunked")
    pieces = [raw[start : start + chunked] for start in range(0, len(raw), chunked)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + chunks + b"0\r\n\r\n"


def status_answer(code: int, reason: str, message: str, headers: Sequence[str] = ()) -> bytes:
    """Returns an error as an API server sends it: a Status object."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return answer(status, f"{code} {reason}", headers)


@dataclass
class ScriptedServer:
    """A server, within `with`, that sends the answers in order, one for each request. It closes the
    connection after the last one, or with `closes` after each answer."""

    answers: list[bytes | Drip]
    tls: ssl.SSLContext | None = None
    closes: bool = False
    upgrade: ssl.SSLContext | None = None  # TLS begins after the answer to a CONNECT
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            threading.Thread(target=self._talk, args=(connection, number), daemon=True).start()

    def _talk(self, connection: socket.socket, number: int) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            self._converse(connection, number)
        except OSError:
            return

    def _converse(self, connection: socket.socket, number: int) -> None:
        with connection, connection.makefile("rb") as stream:
            while self._serve(connection, stream, number):
                if self.upgrade is not None and self.asked[-1].method == "CONNECT":
                    inner = self.upgrade.wrap_socket(connection, server_side=True)
                    self._converse(inner, number)
                    return

    def _serve(self, connection: socket.socket, stream: Any, number: int) -> bool:
        line = stream.readline()
        if not line:
            return False
        method, path, _ = line.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (header := stream.readline()) not in (b"\r\n", b""):
            name, _, value = header.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", "0")))
        self.asked.append(Asked(method, path, headers, body, number))
        drip = self.answers.pop(0) if self.answers else HANG_UP
        if isinstance(drip, Drip):
            _drip(connection, drip)
        elif drip:
            connection.sendall(drip)
        return bool(drip) and not (self.closes or isinstance(drip, Last))


def _drip(connection: socket.socket, drip: Drip) -> None:
    connection.sendall(drip.head)
    for byte in drip.body:
        time.sleep(drip.pause)
        connection.sendall(bytes([byte]))


def an_access(server: str, **changes: Any) -> Access:
    """Returns what dnm loads from a kubeconfig. `changes` are keys of its cluster and user."""
    of_user = ("token", "client-certificate-data", "client-key-data")
    user = {key: changes.pop(key) for key in of_user if key in changes}
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server, **changes}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump(document, file)
        file.flush()
        loaded = load_access(a_config(kubeconfig_path=Path(file.name)))
    return msgspec.structs.replace(loaded, source="the kubeconfig of the test")
