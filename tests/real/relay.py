"""A relay that forwards connections to random ports and counts the bytes of the answers."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass
class Relay:
    """A relay's port, and the number of bytes sent to clients, compressed and with TLS."""

    port: int
    read: int = 0


@contextmanager
def relay(*ports: int) -> Iterator[Relay]:
    """Forwards each connection to one of the ports at random, until the block ends."""
    chance = random.Random(1)
    listener = socket.create_server(("", 0))
    made = Relay(listener.getsockname()[1])

    def copy(source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 18):
                made.read += len(content) if is_answer else 0
                target.sendall(content)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", chance.choice(ports)))
                for way in ((near, far, False), (far, near, True)):
                    threading.Thread(target=copy, args=way, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield made
    finally:
        listener.close()
