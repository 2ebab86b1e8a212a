"""The reading of HTTP answers with a deadline for the entire answer, a bound in bytes, and gzip.

urllib3 connects, sends and keeps connections. It gives up after a pause without bytes, but not if a
byte arrives now and then. So dnm's connections check the deadline of the request before every read.
dnm reads answers with the standard library below urllib3, because urllib3 takes twice as long for
the chunks of 2 KiB in which an API server streams its lists. Invalid answers raise ValueError or
OSError, and a connection that ends too early raises ConnectionResetError."""

from __future__ import annotations

import io
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException, HTTPResponse
from ssl import VERIFY_X509_PARTIAL_CHAIN, VERIFY_X509_STRICT, SSLEOFError
from typing import Any

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.util.connection import create_connection
from urllib3.util.ssl_ import create_urllib3_context

from dnm.http.causes import CUT, cause_of

LARGEST_BODY = 1 << 26  # bytes; a page of 500 pods has some 6 MB
_READ_AHEAD = 1 << 18


class Wire:
    """The connections of one PoolManager, used one at a time, with the deadline of the current
    request, its answer, and whether it may have reached the server.

    With a `socket_path`, all connections go to this unix socket, regardless of the address."""

    def __init__(self, manager: PoolManager, socket_path: str = "") -> None:
        self.deadline = 0.0  # time.monotonic
        self.was_sent = False
        self.answer: Answer | None = None
        self.socket_path = socket_path
        # urllib3's own setting for other connections, which its types describe as classes.
        manager.pool_classes_by_scheme = {
            "http": partial(self._pool, HTTPConnectionPool, _PlainConnection),  # type: ignore[dict-item]
            "https": partial(self._pool, _tls_pool, _TlsConnection),  # type: ignore[dict-item]
        }

    def _pool(
        self, kind: Callable[..., HTTPConnectionPool], connection: Any, *place: Any, **options: Any
    ) -> HTTPConnectionPool:
        pool = kind(*place, **options)
        pool.ConnectionCls = partial(connection, self)  # type: ignore[assignment]
        return pool

    def seconds_left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it exceeded its time")
        return left

    def send(self, request: Callable[[], BaseHTTPResponse], seconds: float) -> BaseHTTPResponse:
        """Calls `request`, which sends one with `preload_content=False`, and limits its time."""
        self.deadline = time.monotonic() + seconds
        self.was_sent, self.answer = False, None
        try:
            return request()
        except (HTTPError, HTTPException) as error:
            raise cause_of(error) from error

    @contextmanager
    def reading(self, response: BaseHTTPResponse) -> Iterator[Answer]:
        """Yields the answer of a sent request. If it is not read to its end, closes the
        connection."""
        answer, self.answer = self.answer, None
        assert answer is not None
        try:
            yield answer
            answer.close()
        except HTTPException as error:
            response.close()
            raise cause_of(error) from error
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()


class _TimedReader(io.RawIOBase):
    """A reader of a socket that fails at the request's deadline, even if bytes still arrive."""

    def __init__(self, wire: Wire, sock: socket.socket) -> None:
        self._wire = wire
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open while it is read

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        self._sock.settimeout(self._wire.seconds_left())
        try:
            return self._sock.recv_into(target)
        except SSLEOFError as error:
            raise ConnectionResetError(CUT) from error

    def close(self) -> None:
        self._raw.close()
        super().close()


class Answer(HTTPResponse):
    """The answer of Python's http.client with a large buffer, a deadline, and gzip unpacked."""

    def __init__(self, wire: Wire, sock: socket.socket, **options: Any) -> None:
        super().__init__(sock, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedReader(wire, sock), _READ_AHEAD)
        self._unpacker: Any = None  # of gzip
        wire.answer = self

    def begin(self) -> None:
        super().begin()
        if self.headers.get("Content-Encoding", "").lower() == "gzip":
            self._unpacker = zlib.decompressobj(31)
            self._packed = memoryview(bytearray(_READ_AHEAD))
        del self.headers["Content-Encoding"]  # it is already unpacked

    def fill(self, view: memoryview) -> int:
        """Reads the body into `view`. Returns the number of bytes, smaller only at the end."""
        return self._fill(view) if self._unpacker is None else self._unpack(view)

    def _fill(self, view: memoryview) -> int:
        size = self.readinto(view)
        if size < len(view) and self.length:
            raise ConnectionResetError(CUT)
        return size

    def _unpack(self, view: memoryview) -> int:
        size, unpacker = 0, self._unpacker
        while size < len(view) and not unpacker.eof:
            more: bytes | memoryview = unpacker.unconsumed_tail
            if not more:
                more = self._packed[: self._fill(self._packed)]
            try:
                plain = unpacker.decompress(more, len(view) - size)
            except zlib.error as error:
                raise ValueError(f"it can't be unpacked: {error}") from error
            if not more and not plain:
                raise ValueError("it is cut off")
            view[size : size + len(plain)] = plain
            size += len(plain)
        if unpacker.eof:
            while self._fill(self._packed):  # the frame's own end, and unused bytes
                pass
        return size


class _Timed:
    """The part of a connection class that gives each answer the deadline of the Wire."""

    sock: Any
    port: int
    _dns_host: str
    socket_options: Any
    response_class: Any
    connect: Callable[[], None]

    def __init__(self, wire: Wire, **options: Any) -> None:
        super().__init__(**options)
        self.wire = wire
        self.response_class = partial(Answer, wire)

    def _new_conn(self) -> socket.socket:
        """Returns a socket to the first address that answers. All addresses share the time."""
        failed: OSError = TimeoutError("the name has no address")
        addresses = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        for number, (*_, address) in enumerate(addresses):
            place, options = (str(address[0]), self.port), self.socket_options
            share = self.wire.seconds_left() / (len(addresses) - number)
            try:
                sock = create_connection(place, share, socket_options=options)
                sock.settimeout(self.wire.seconds_left())
                return sock
            except OSError as error:
                failed = error
        raise failed

    def putrequest(self, *words: Any, **options: Any) -> None:
        if self.sock is None:
            self.connect()
        self.sock.settimeout(self.wire.seconds_left())  # nothing was sent before this
        self.wire.was_sent = True
        super().putrequest(*words, **options)  # type: ignore[misc]


class _PlainConnection(_Timed, HTTPConnection):
    def connect(self) -> None:
        if not self.wire.socket_path:
            return super().connect()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.wire.seconds_left())
        self.sock.connect(self.wire.socket_path)


class _TlsConnection(_Timed, HTTPSConnection):
    pass


def _tls_pool(*place: Any, **options: Any) -> HTTPSConnectionPool:
    """Returns a pool that checks certificates as Go and kubectl do. Each certificate in the site's
    file is trusted, and a CA need not state its usage, which Python requires from 3.13 on."""
    context = create_urllib3_context(cert_reqs=options.get("cert_reqs"))
    context.verify_flags &= ~VERIFY_X509_STRICT
    context.verify_flags |= VERIFY_X509_PARTIAL_CHAIN
    if not options.get("ca_certs"):
        context.load_default_certs()
    return HTTPSConnectionPool(*place, ssl_context=context, **options)


class AnswerTooLarge(ValueError):
    """The error for an answer with more bytes than dnm accepts."""

    def __init__(self, largest: int) -> None:
        super().__init__(f"the answer is larger than {largest} bytes")


class BodyBuffer:
    """A buffer that is used again for each body. A body is valid until the next one is read."""

    def __init__(self, largest: int | None = None) -> None:
        self._largest = LARGEST_BODY if largest is None else largest
        self._bytes = bytearray(min(1 << 16, self._largest))

    def read(self, response: Answer) -> memoryview:
        """Returns the entire body, unpacked. The buffer grows to at most the bound in bytes."""
        size, expected = 0, response.length or 0
        if expected > self._largest:
            raise AnswerTooLarge(self._largest)
        self._reserve(0, expected + 1)
        while True:
            size += response.fill(memoryview(self._bytes)[size:])
            if size < len(self._bytes):
                return memoryview(self._bytes)[:size]
            if size == self._largest:
                if response.fill(memoryview(bytearray(1))):
                    raise AnswerTooLarge(self._largest)
                return memoryview(self._bytes)
            self._reserve(size, size)

    def _reserve(self, used: int, more: int) -> None:
        """Enlarges the buffer to `used + more` bytes, up to its bound. Views of the old buffer stay
        valid. Copies from view to view, since a slice of a bytearray would copy twice."""
        wanted = min(used + more, self._largest)
        if wanted > len(self._bytes):
            larger = bytearray(wanted)
            memoryview(larger)[:used] = memoryview(self._bytes)[:used]
            self._bytes = larger
