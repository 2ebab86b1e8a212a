"""One connection to a server: TLS, proxies, a deadline for all of it, large reads.

The standard library's HTTP client does the protocol; its reader is replaced by one with a deadline
and a buffer of the size of a page, which makes a large LIST twice as fast.
"""

from __future__ import annotations

import base64
import io
import os
import select
import socket
import time
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import SplitResult, unquote, urlsplit

from dnm.http.access import Access

READ_AHEAD = 1 << 18


class _TimedReader(io.RawIOBase):
    """Reads a socket and gives up at the deadline of the request, however slowly bytes drip in."""

    def __init__(self, connection: Connection, sock: socket.socket) -> None:
        self._connection = connection
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket while it is read

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        self._sock.settimeout(self._connection.seconds_left())
        return self._sock.recv_into(target)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """The standard response over a reader with a large buffer and a deadline."""

    def __init__(self, connection: Connection, sock: socket.socket, **arguments: object) -> None:
        super().__init__(sock, **arguments)  # type: ignore[arg-type]
        self.fp.close()
        self.fp = io.BufferedReader(_TimedReader(connection, sock), READ_AHEAD)


def _split(text: str) -> tuple[SplitResult, str, int]:
    """An HTTP URL with its host and port; the host is empty if it is none."""
    try:
        url = urlsplit(text)
        if url.scheme in ("http", "https"):
            return url, url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        url = SplitResult("", "", "", "", "")
    return url, "", 0


class Connection(HTTPConnection):
    """HTTP or HTTPS, straight or through a proxy, as the Access says. Raises ValueError for an
    address or a proxy that is none. Set `deadline` (time.monotonic) before each request."""

    def __init__(self, access: Access) -> None:
        url, host, port = _split(access.server)
        if not host:
            raise ValueError(f"{access.source} names the server {access.server!r}: that is no URL")
        super().__init__(host, port)
        self._access = access
        self._is_tls = url.scheme == "https"
        self._server_host = host
        self._proxy = "" if bypasses_proxy(self.host, access.no_proxy) else access.proxy
        self.response_class = partial(_Response, self)  # type: ignore[assignment]
        self.deadline = 0.0
        self.prefix = url.path.rstrip("/")
        self.proxy_headers: dict[str, str] = {}
        self.tunnels = bool(self._proxy) and self._is_tls
        if self._proxy:
            self._use_proxy(url.scheme)

    def _use_proxy(self, scheme: str) -> None:
        proxy, host, port = _split(self._proxy if "://" in self._proxy else f"http://{self._proxy}")
        if not host:
            raise ValueError(
                f"a proxy of the kind {proxy.scheme}:// can't be used: only HTTP proxies can"
            )
        if proxy.username:
            pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
            encoded = base64.b64encode(pair).decode()
            self.proxy_headers["Proxy-Authorization"] = f"Basic {encoded}"
        self._proxy_is_tls = proxy.scheme == "https"
        self._proxy_host = host
        target = (self.host, self.port)
        self.host, self.port = host, port
        if self.tunnels:
            self.set_tunnel(*target, headers=self.proxy_headers)
        else:
            name = f"[{target[0]}]" if ":" in target[0] else target[0]
            self.prefix = f"{scheme}://{name}:{target[1]}{self.prefix}"

    def seconds_left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it took longer than it may")
        return left

    def connect(self) -> None:
        self.sock = socket.create_connection((self.host, self.port), self.seconds_left())
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._proxy and self._proxy_is_tls:
            import ssl

            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self._proxy_host)
        if self.tunnels:
            self._tunnel()  # type: ignore[attr-defined]
        if self._is_tls:
            self._start_tls(self._access.server_name or self._server_host)

    def _start_tls(self, name: str) -> None:
        import ssl

        access = self._access
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if access.ca_pem:
            context.load_verify_locations(cadata=access.ca_pem.decode())
        else:
            context.load_default_certs()
        if not access.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if access.cert_pem:
            # The library wants a file; one in memory leaves no key on any disk.
            with open(os.memfd_create("client-certificate"), "wb") as file:
                file.write(access.cert_pem + b"\n" + access.key_pem)
                file.flush()
                context.load_cert_chain(
                    f"/proc/self/fd/{file.fileno()}",
                    password=lambda: b"",  # never ask a terminal
                )
        self.sock.settimeout(self.seconds_left())
        self.sock = context.wrap_socket(self.sock, server_hostname=name)

    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or said something unasked."""
        return self.sock is not None and bool(select.select([self.sock], [], [], 0)[0])


class SocketConnection(Connection):
    """The same over a unix socket; the Access names a server for the header Host alone."""

    def __init__(self, access: Access, path: str) -> None:
        super().__init__(access)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.seconds_left())
        self.sock.connect(self._path)


def is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def bypasses_proxy(host: str, no_proxy: str) -> bool:
    """As kubectl: loopback always; `*`, a host, a domain with its hosts, or a CIDR."""
    if is_loopback(host):
        return True
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        bare = entry.lstrip(".")
        if entry == "*" or (bare and (host == bare or host.endswith(f".{bare}"))):
            return True
        if "/" in entry and _is_in_network(host, entry):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
