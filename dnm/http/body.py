"""Reads the bodies of answers, however they are framed, into one buffer that is used again.

A page has megabytes; a new buffer for each would cost more than copying it. Everything that is not
as it should be raises ValueError, a connection that ends too early ConnectionResetError.
"""

from __future__ import annotations

import io
import zlib
from http.client import HTTPResponse
from typing import Protocol

from dnm.http.connection import READ_AHEAD

LARGEST_BODY = 1 << 26  # bytes; a page of 500 pods has some 6 MB
_SIZE_LINE = 64  # bytes; an API server sends no chunk extensions
_TRAILERS = 64


class AnswerTooLarge(ValueError):
    """The answer has more bytes than dnm takes at once."""

    def __init__(self, largest: int) -> None:
        super().__init__(f"the answer is larger than {largest} bytes")


class Body(Protocol):
    """The bytes of an answer, out of their frame."""

    def fill(self, view: memoryview) -> int:
        """Fills the view as far as the body goes; less than all of it only at the end."""
        ...


def open_body(response: HTTPResponse) -> Body:
    """Returns the body of an answer that is about to be read."""
    if response.chunked:
        body: Body = _Chunks(response.fp)
    else:
        body = _Plain(response.fp, response.length)
    if response.headers.get("Content-Encoding", "").lower() == "gzip":
        return _Unpacked(body)
    return body


class BodyBuffer:
    """A body that was read is valid until the next one is."""

    def __init__(self, largest: int | None = None) -> None:
        self._largest = LARGEST_BODY if largest is None else largest
        self._bytes = bytearray(1 << 16)

    def read(self, response: HTTPResponse) -> memoryview:
        """The whole body, unpacked."""
        body, size = open_body(response), 0
        self._reserve(0, (response.length or 0) + 1)
        while True:
            size += body.fill(memoryview(self._bytes)[size:])
            if size > self._largest:
                raise AnswerTooLarge(self._largest)
            if size < len(self._bytes):
                return memoryview(self._bytes)[:size]
            self._reserve(size, size)

    def _reserve(self, used: int, more: int) -> None:
        """Room for `more` bytes behind `used`, as far as they are taken: one byte above the largest
        is enough to know. A new buffer, so that views of the old one hold."""
        if more < 0 or more > self._largest + 1:
            raise AnswerTooLarge(self._largest)
        if used + more > len(self._bytes):
            larger = bytearray(min(used + more, self._largest + 1))
            larger[:used] = memoryview(self._bytes)[:used]
            self._bytes = larger


class _Plain:
    """A body of a known length, or (None) up to the end of the connection."""

    def __init__(self, stream: io.BufferedIOBase, length: int | None) -> None:
        self._stream, self._left = stream, length

    def fill(self, view: memoryview) -> int:
        if self._left is None:
            return _fill(self._stream, view)
        part = view[: self._left]
        _fill_all(self._stream, part)
        self._left -= len(part)
        return len(part)


class _Chunks:
    """An API server of 1.33 or later sends a chunk or two for every object: once around the loop
    for each pod of the cluster. The line end behind a chunk is read with it, where there is room.
    """

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._left: int | None = 0  # of the chunk; None: the body has ended

    def fill(self, view: memoryview) -> int:
        size, stream = 0, self._stream
        while size < len(view) and self._left is not None:
            end = size + (self._left or self._begin())
            if self._left is None:
                break
            if end + 2 <= len(view):
                _fill_all(stream, view[size : end + 2])
                self._left, line_end = 0, bytes(view[end : end + 2])
            else:
                end = min(end, len(view))
                _fill_all(stream, view[size:end])
                self._left -= end - size
                line_end = b"\r\n" if self._left else stream.read(2)
            if line_end != b"\r\n":
                raise ValueError("a chunk of the answer does not end where it says")
            size = end
        return size

    def _begin(self) -> int:
        length = int(self._stream.readline(_SIZE_LINE).partition(b";")[0], 16)
        if length < 0:
            raise ValueError("a chunk of the answer has a negative length")
        self._left = length
        if not length:
            self._end()
        return length

    def _end(self) -> None:
        for _ in range(_TRAILERS):
            if self._stream.readline(1 << 16) in (b"\r\n", b"\n", b""):
                self._left = None
                return
        raise ValueError("the answer has too many trailers")


class _Unpacked:
    """What gzip has packed."""

    def __init__(self, packed: Body) -> None:
        self._packed = packed
        self._unpacker = zlib.decompressobj(31)
        self._buffer = memoryview(bytearray(READ_AHEAD))

    def fill(self, view: memoryview) -> int:
        size, unpacker = 0, self._unpacker
        while size < len(view) and not unpacker.eof:
            more: bytes | memoryview = unpacker.unconsumed_tail
            if not more:
                more = self._buffer[: self._packed.fill(self._buffer)]
            try:
                plain = unpacker.decompress(more, len(view) - size)
            except zlib.error as error:
                raise ValueError(f"it can't be unpacked: {error}") from error
            if not more and not plain:
                raise ValueError("it is cut off")
            view[size : size + len(plain)] = plain
            size += len(plain)
        if unpacker.eof:
            while self._packed.fill(self._buffer):  # the frame's own end, and what nobody reads
                pass
        return size


def _fill(stream: io.BufferedIOBase, view: memoryview) -> int:
    """As far as the stream goes."""
    size = 0
    while size < len(view) and (got := stream.readinto(view[size:])):
        size += got
    return size


def _fill_all(stream: io.BufferedIOBase, view: memoryview) -> None:
    if _fill(stream, view) < len(view):
        raise ConnectionResetError("the connection was cut in the middle of the answer")
