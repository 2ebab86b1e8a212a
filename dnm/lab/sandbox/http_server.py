"""HTTP/1.1 on loopback: reads requests, applies injected faults, writes answers.

Each connection has a thread. Other modules compute the answers; this one only transfers bytes."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from http.client import responses
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from dnm.lab.sandbox.clock import Clock
from dnm.lab.sandbox.http_values import Fault, Faults, Request, ServerAnswer
from dnm.model.errors import SandboxError

HOST = "127.0.0.1"
_UNCHUNKED_UP_TO = 2048  # bytes: Go's server sends what is longer in chunks, without a length
_PIECE = 65_536
_PACKED_FROM = 128 * 1024  # bytes; k8s.io/apiserver, responsewriters/writers.go
_LAST_CHUNK = b"0\r\n\r\n"


class HttpServer:
    """A server on loopback. `stop` also closes open connections. The port stays the same."""

    def __init__(
        self, handle: Callable[[Request], ServerAnswer], faults: Faults, clock: Clock, port: int = 0
    ) -> None:
        self.handle = handle
        self.faults = faults
        self.clock = clock
        self.port = port
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Starts to listen. Raises SandboxError if the port is in use."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, self.port))
        except OSError as error:
            listener.close()
            raise SandboxError(
                f"port {self.port} on {HOST} is taken ({error.strerror}); "
                "choose another with --port, or leave it out to get a free one"
            ) from error
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(connection)
            arguments = (connection, address)
            threading.Thread(target=self._serve, args=arguments, daemon=True).start()

    def _serve(self, connection: socket.socket, address: Any) -> None:
        try:
            with contextlib.suppress(OSError):
                _Handler(connection, address, self)  # type: ignore[arg-type]
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    """A connection. The standard library reads requests; an answer is written at once."""

    protocol_version = "HTTP/1.1"
    server: HttpServer  # type: ignore[assignment]

    def handle_one_request(self) -> None:
        try:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            self._serve_request(self._read_request())
        except OSError:
            self.close_connection = True

    def _read_request(self) -> Request:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        return Request(
            method=self.command,
            path=unquote(parts.path),
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length) if length else b"",
        )

    def _serve_request(self, request: Request) -> None:
        struck = self.server.faults.striking(request)
        for slow in struck:
            if slow.kind == "slow":
                time.sleep(slow.seconds)
        fault = next((fault for fault in struck if fault.kind != "slow"), None)
        if fault is not None and fault.kind == "down":
            self.close_connection = True
            return
        is_answered = fault is not None and fault.kind in ("status", "busy")
        answer = fault.answer() if fault and is_answered else self._answer(request, fault)
        self._write(answer, fault)

    def _answer(self, request: Request, fault: Fault | None) -> ServerAnswer:
        answer = self.server.handle(request)
        if fault is not None and fault.replaces(answer):
            answer = fault.replaced(answer)
        return self._packed(answer)

    def _packed(self, answer: ServerAnswer) -> ServerAnswer:
        """Compresses a large answer if the client accepts gzip, as the API server does."""
        wanted = self.headers.get("Accept-Encoding", "")
        if "gzip" in wanted and len(answer.body) > _PACKED_FROM:
            answer.body = gzip.compress(answer.body, compresslevel=1)
            answer.headers = {**answer.headers, "Content-Encoding": "gzip",
                              "Vary": "Accept-Encoding"}  # fmt: skip
        return answer

    def _write(self, answer: ServerAnswer, fault: Fault | None) -> None:
        if fault is not None and fault.kind == "lost":
            self.close_connection = True
            return
        if answer.stream is not None:
            self._write_stream(answer)
            return
        body = answer.body
        if len(body) <= _UNCHUNKED_UP_TO or self.request_version == "HTTP/1.0":
            head = self._head(answer, {"Content-Length": str(len(body))})
        else:
            head = self._head(answer, {"Transfer-Encoding": "chunked"})
            pieces = (body[at : at + _PIECE] for at in range(0, len(body), _PIECE))
            body = b"".join(map(_chunk, pieces)) + _LAST_CHUNK
        body = b"" if self.command == "HEAD" else body
        if fault is not None and fault.kind == "cut":
            self.close_connection = True
            body = body[: len(body) // 2]
        if fault is not None and fault.kind == "trickle":
            self._trickle(head, body, fault.seconds)
            return
        self.wfile.write(head + body)

    def _trickle(self, head: bytes, body: bytes, seconds: float) -> None:
        """Sends the body byte by byte, with a pause before each."""
        self.wfile.write(head)
        for at in range(len(body)):
            time.sleep(seconds)
            self.wfile.write(body[at : at + 1])

    def _write_stream(self, answer: ServerAnswer) -> None:
        self.wfile.write(self._head(answer, {"Transfer-Encoding": "chunked"}))
        for chunk in answer.stream or ():
            self.wfile.write(_chunk(chunk))
        self.wfile.write(_LAST_CHUNK)

    def _head(self, answer: ServerAnswer, more: dict[str, str]) -> bytes:
        clock = self.server.clock
        headers = {
            "Date": formatdate(clock.now() + clock.skew_seconds, usegmt=True),
            "Content-Type": answer.content_type,
            **more,
            **answer.headers,
        }
        lines = [f"HTTP/1.1 {answer.code} {responses.get(answer.code, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)
