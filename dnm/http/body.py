"""Reads the bodies of answers, however they are framed, into one buffer that is used again.

A page has megabytes; a new buffer for each would cost more than copying it. Everything that is not
as it should be raises ValueError, a connection that ends too early ConnectionResetError.
"""

from __future__ import annotations

import io
import zlib
from http.client import HTTPResponse

from dnm.http.connection import READ_AHEAD

LARGEST_BODY = 1 << 26  # bytes; a page of 500 pods has some 6 MB
_SIZE_LINE = 64  # bytes; an API server sends no chunk extensions
_TRAILERS = 64


class AnswerTooLarge(ValueError):
    """The answer has more bytes than dnm takes at once."""

    def __init__(self, largest: int) -> None:
        super().__init__(f"the answer is larger than {largest} bytes")


class BodyBuffer:
    """A body that was read is valid until the next one is."""

    def __init__(self, largest: int | None = None) -> None:
        self._largest = LARGEST_BODY if largest is None else largest
        self._bytes = bytearray(1 << 16)

    def read(self, response: HTTPResponse) -> memoryview:
        """The whole body, unpacked."""
        if response.chunked:
            size = self._read_chunks(response.fp)
        elif response.length is not None:
            size = response.length
            self._reserve(0, size)
            _fill(response.fp, memoryview(self._bytes)[:size])
        else:
            size = self._read_to_end(response.fp)
        body = memoryview(self._bytes)[:size]
        if response.headers.get("Content-Encoding", "").lower() == "gzip":
            return _unpack(body, self._largest)
        return body

    def _read_chunks(self, stream: io.BufferedIOBase) -> int:
        """An API server of 1.33 or later sends a chunk or two for every object: once around this
        loop for each pod of the cluster. The line end behind a chunk is read with it."""
        size, view = 0, memoryview(self._bytes)
        while length := int(stream.readline(_SIZE_LINE).partition(b";")[0], 16):
            end = size + length
            if length < 0 or end + 2 > len(view):
                view.release()
                self._reserve(size, length + 2)
                view = memoryview(self._bytes)
            _fill(stream, view[size : end + 2])
            if view[end] != 13 or view[end + 1] != 10:
                raise ValueError("a chunk of the answer does not end where it says")
            size = end
        for _ in range(_TRAILERS):
            if stream.readline(1 << 16) in (b"\r\n", b"\n", b""):
                return size
        raise ValueError("the answer has too many trailers")

    def _read_to_end(self, stream: io.BufferedIOBase) -> int:
        size = 0
        while block := stream.read(READ_AHEAD):
            self._reserve(size, len(block))
            self._bytes[size : size + len(block)] = block
            size += len(block)
        return size

    def _reserve(self, used: int, more: int) -> None:
        """Room for `more` bytes behind `used`. A new buffer, so that views of the old one hold."""
        needed = used + more
        if more < 0 or needed > self._largest:
            raise AnswerTooLarge(self._largest)
        if needed > len(self._bytes):
            larger = bytearray(max(needed, 2 * len(self._bytes)))
            larger[:used] = memoryview(self._bytes)[:used]
            self._bytes = larger


def _fill(stream: io.BufferedIOBase, view: memoryview) -> None:
    missing = len(view)
    while got := stream.readinto(view):
        missing -= got
        if not missing:
            return
        view = view[got:]
    if missing:
        raise ConnectionResetError("the connection was cut in the middle of the answer")


def _unpack(body: memoryview, largest: int) -> memoryview:
    unpacker = zlib.decompressobj(31)
    try:
        plain = unpacker.decompress(body, largest)
    except zlib.error as error:
        raise ValueError(f"it can't be unpacked: {error}") from error
    if unpacker.eof:
        return memoryview(plain)
    if len(plain) == largest:
        raise AnswerTooLarge(largest)
    raise ValueError("it is cut off")
