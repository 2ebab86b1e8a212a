"""Proxies that do not read the forwarded bytes, between a client and the API server: an HTTP proxy
that supports only CONNECT, and a SOCKS5 proxy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.real.rig import PORT

GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@contextmanager
def tunnels(answer: bytes = GRANTED) -> Iterator[list[str]]:
    """Runs an HTTP proxy that gives this answer. Yields a list: its address, then the requests."""
    asked: list[str] = []

    def greet(near: socket.socket) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += near.recv(1)
        asked.append(head.split(b"\r\n")[0].decode())
        near.sendall(answer)
        return b" 200 " in answer

    with _listening(greet) as address:
        asked.insert(0, f"http://{address}")
        yield asked


@contextmanager
def socks() -> Iterator[str]:
    """Yields the address of a proxy that requires no password (RFC 1928)."""

    def greet(near: socket.socket) -> bool:
        near.recv(257)
        near.sendall(b"\x05\x00")
        near.recv(262)
        near.sendall(b"\x05\x00\x00\x01" + bytes(6))
        return True

    with _listening(greet) as address:
        yield f"socks5://{address}"


@contextmanager
def _listening(greet: Callable[[socket.socket], bool]) -> Iterator[str]:
    """Runs a proxy that connects clients to the API server if `greet` accepts them."""
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while content := source.recv(1 << 16):
                target.sendall(content)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()

    def serve() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            if not greet(near):
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", PORT))
            for way in ((near, far), (far, near)):
                threading.Thread(target=copy, args=way, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
