"""A proxy between dnm and the API server, by which a test acts between two requests of a run.

It forwards everything unchanged, with the client's own token, and records it."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.real.rig import PORT, Rig

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass
class Seen:
    """A request of dnm, and the answer to it."""

    method: str
    path: str
    code: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)  # headers of the request

    @property
    def is_write(self) -> bool:
        return self.method in WRITES


@dataclass
class Proxy:
    """A proxy that calls `before` with each request before the API server gets it, one at a time.
    It calls `after` with the answer before the client gets that."""

    kubeconfig: Path
    seen: list[Seen] = field(default_factory=list)
    before: Callable[[Seen], None] = lambda seen: None
    after: Callable[[Seen], None] = lambda seen: None
    below: str = ""  # prefix of its paths, which the API server does not have

    @property
    def writes(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.is_write]


def write_kubeconfig(source: Path, target: Path, server: str) -> Path:
    """Writes a copy of the kubeconfig `source` with another server address, as JSON."""
    import yaml

    document = yaml.safe_load(source.read_text())
    for cluster in document["clusters"]:
        cluster["cluster"]["server"] = server
    target.write_text(json.dumps(document))
    target.chmod(0o600)
    return target


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores errors: killed clients are part of the tests."""


@contextmanager
def serving(rig: Rig, handler: type[Quiet]) -> Iterator[str]:
    """Runs an HTTPS server with the certificate of the API server. Yields its address."""
    server = Server(("127.0.0.1", 0), handler)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(f"{rig.keys}/apiserver.crt", f"{rig.keys}/apiserver.key")
    server.socket = own.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def proxied(rig: Rig, kubeconfig: Path, directory: Path) -> Iterator[Proxy]:
    """Runs a proxy. Yields it, with a kubeconfig for the same account."""
    lock = threading.Lock()
    trusted = ssl.create_default_context(cafile=f"{rig.keys}/ca.crt")

    class Handler(Quiet):
        protocol_version = "HTTP/1.1"

        def forward_request(self) -> None:
            seen = Seen(
                self.command, self.path, sent={k.title(): v for k, v in self.headers.items()}
            )
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            with lock:
                proxy.seen.append(seen)
                proxy.before(seen)
            upstream = http.client.HTTPSConnection("127.0.0.1", PORT, context=trusted, timeout=120)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
            try:
                path = self.path.removeprefix(proxy.below)
                upstream.request(self.command, path, body, headers)
                answer = upstream.getresponse()
                content = answer.read()
            finally:
                upstream.close()
            seen.code, seen.headers = answer.status, dict(answer.getheaders())
            with lock:
                proxy.after(seen)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward_request

    with serving(rig, Handler) as url:
        proxy = Proxy(write_kubeconfig(kubeconfig, directory / "proxy.kubeconfig", url))
        yield proxy
