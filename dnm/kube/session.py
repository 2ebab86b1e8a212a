"""One keep-alive HTTP connection to the API server, time limits and retries.

A read is tried again where that can help, a write never once it may have happened. Everything here
raises `ApiRefused`, `LostAnswer` or what the operating system raises; `kube_errors.py` makes
sentences of them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from ssl import SSLEOFError
from urllib.parse import urlsplit

import msgspec

from dnm.http.access import Access
from dnm.http.body import Body, BodyBuffer, open_body
from dnm.http.connection import Connection, is_loopback
from dnm.kube.errors import ApiRefused, LostAnswer, clean, describe
from dnm.model.errors import KubeError

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

_ATTEMPTS = 4
_FIRST_PAUSE = 0.25  # seconds, doubled from one attempt to the next
_LONGEST_PAUSE = 10.0
_TRANSIENT = frozenset({429, 500, 502, 503, 504})


class ApiAnswer(msgspec.Struct, frozen=True):
    """A successful answer. `body` is valid until the next request."""

    body: memoryview
    date: str  # header Date

    @property
    def told_at(self) -> datetime | None:
        """When it was given by the server's clock, to the second; None: it does not say."""
        try:
            return parsedate_to_datetime(self.date).astimezone(UTC)
        except (TypeError, ValueError, OverflowError):
            return None


class _ApiStatus(msgspec.Struct, frozen=True):
    """What of a `v1.Status` is told to people."""

    message: str | None = None
    reason: str | None = None


_decode_status = msgspec.json.Decoder(_ApiStatus).decode


def _make_refusal(response: HTTPResponse, body: memoryview) -> ApiRefused:
    raw = bytes(body[:65536])
    try:
        status = _decode_status(raw)
    except msgspec.MsgspecError:
        status = _ApiStatus(message=raw[:400].decode(errors="replace"))
    try:
        retry_after = min(float(response.headers.get("Retry-After", "0")), _LONGEST_PAUSE)
    except ValueError:
        retry_after = 0.0
    reason = clean(status.reason or response.reason or "", 60)
    return ApiRefused(response.status, reason, clean(status.message or ""), max(retry_after, 0.0))


def _pause(attempt: int) -> float:
    return _FIRST_PAUSE * 2.0**attempt


class Session:
    """The requests of one run, one after another. Not for several threads."""

    def __init__(self, access: Access, timeout: timedelta) -> None:
        self._access = access
        self.timeout = timeout.total_seconds()  # of one request
        try:
            self._connection = Connection(access)
        except ValueError as error:
            raise KubeError(str(error)) from error
        self._body = BodyBuffer()
        self._ahead = ""  # path of a request that was sent and not yet answered
        host = urlsplit(access.server).hostname or ""
        self._encoding = "identity" if is_loopback(host) else "gzip"

    def close(self) -> None:
        self._connection.close()

    def read(self, path: str) -> ApiAnswer:
        """GET, tried again on throttling, server errors and broken connections."""
        return self._retry("GET", path, b"")

    def ask(self, path: str, body: bytes) -> ApiAnswer:
        """POST of a question that changes nothing; tried again like a read."""
        return self._retry("POST", path, body)

    @contextmanager
    def open(self, path: str) -> Iterator[Body]:
        """A GET whose answer is read as it comes, once; a time-out until it begins, and one more
        with each `go_on`."""
        try:
            self._take_ahead("GET", path)
            self._open()
            self._send("GET", path, b"", JSON)
            response = self._connection.getresponse()
            if response.status >= 300:
                raise _make_refusal(response, self._body.read(response))
            yield open_body(response)
            response.close()
        except BaseException:
            self._connection.close()
            raise

    def go_on(self) -> None:
        """Allows the answer that is being read one more time-out."""
        self._connection.deadline = time.monotonic() + self.timeout

    def expect(self, path: str) -> None:
        """Sends a GET ahead; the next `read` of the same path takes its answer."""
        try:
            self._open()
            self._send("GET", path, b"", JSON)
            self._ahead = path
        except (OSError, HTTPException):
            self._connection.close()  # the read itself finds out and says why

    def _take_ahead(self, method: str, path: str) -> bool:
        """Whether the answer to this very request is on its way; any other is thrown away."""
        ahead, self._ahead = self._ahead, ""
        if ahead and not (method == "GET" and ahead == path):
            self._connection.close()
            return False
        return bool(ahead) and self._connection.sock is not None

    def begin_lines(self, path: str, seconds: float) -> None:
        """Sends a GET whose answer is a stream of lines, and may take so long in all."""
        self._take_ahead("GET", path)
        self._open()
        self._send("GET", path, b"", JSON, "identity")
        self._connection.deadline = time.monotonic() + seconds

    def read_lines(self, longest: int) -> Generator[bytes]:
        """Yields the lines of the stream that was begun. Its end, however it comes, is the end; a
        piece without a line end is none. The connection is closed then, and where the caller stops
        before. Raises ApiRefused where the answer is no stream."""
        try:
            response = self._connection.getresponse()
            if response.status >= 300:
                raise _make_refusal(response, self._body.read(response))
            while (line := response.readline(longest)).endswith(b"\n"):
                yield line
        except (OSError, HTTPException, ValueError):
            return
        finally:
            self._connection.close()

    def write(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str = JSON,
        is_throttled: bool = True,
    ) -> ApiAnswer:
        """Sent once; again only where the server refused it unread (429 means that, unless
        `is_throttled` says otherwise).

        Raises LostAnswer where it may have happened, ApiRefused, or OSError where it can't have.
        """
        for attempt in range(_ATTEMPTS):
            self._take_ahead(method, path)
            self._open()
            try:
                self._send(method, path, body, content_type)
                return self._receive()
            except ApiRefused as error:
                if error.status >= 500:
                    raise LostAnswer(str(error)) from error
                if error.status != 429 or not is_throttled or attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(max(_pause(attempt), error.retry_after))
            except (OSError, HTTPException, ValueError) as error:
                raise LostAnswer(describe(error)) from error
        raise AssertionError("the last attempt returns or raises")

    def _open(self) -> None:
        """A connection that is up: what fails here has not reached the server."""
        self._connection.deadline = time.monotonic() + self.timeout
        if self._connection.is_stale():
            self._connection.close()
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except BaseException:
                self._connection.close()
                raise

    def _send(
        self, method: str, path: str, body: bytes, content_type: str, encoding: str = ""
    ) -> None:
        connection = self._connection
        headers = {
            "Accept": JSON,
            "Accept-Encoding": encoding or self._encoding,
            "User-Agent": "dnm",
            **({} if connection.tunnels else connection.proxy_headers),
        }
        authorization = self._access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if body:
            headers["Content-Type"] = content_type
        connection.sock.settimeout(connection.seconds_left())
        try:
            connection.request(method, connection.prefix + path, body or None, headers)
        except BaseException:
            connection.close()
            raise

    def _receive(self) -> ApiAnswer:
        """The answer to the request that was sent; unless all goes well, it is closed."""
        try:
            response = self._connection.getresponse()
            body = self._body.read(response)
            response.close()
        except BaseException:
            self._connection.close()
            raise
        if response.status >= 300:
            raise _make_refusal(response, body)
        return ApiAnswer(body, response.headers.get("Date") or "")

    def _retry(self, method: str, path: str, body: bytes) -> ApiAnswer:
        """At most `_ATTEMPTS` times, and none begins after one request time-out has passed."""
        give_up = time.monotonic() + self.timeout
        for attempt in range(_ATTEMPTS):
            pause = _pause(attempt)
            try:
                if not self._take_ahead(method, path):
                    self._open()
                    self._send(method, path, body, JSON)
                return self._receive()
            except ApiRefused as error:
                if error.status not in _TRANSIENT:
                    raise
                pause = max(pause, error.retry_after)
                failure: Exception = error
            except (ConnectionError, SSLEOFError, HTTPException) as error:
                if isinstance(error, ConnectionRefusedError):
                    raise
                failure = error
            if attempt == _ATTEMPTS - 1 or time.monotonic() + pause > give_up:
                raise failure
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")
