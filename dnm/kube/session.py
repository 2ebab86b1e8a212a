"""A keep-alive connection to the API server through the official client, with time limits and
retries.

A read is repeated if that can help, a write never if the server may have executed it. This module
raises `ApiRefused`, `LostAnswer` or the errors of the operating system; `errors.py` makes sentences
of them."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Set
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, disable_warnings
from urllib3.exceptions import DependencyWarning, HTTPError

from dnm.http.reader import Answer, BodyBuffer, Wire
from dnm.kube.access import Access, is_loopback
from dnm.kube.deep_page import DEEPEST, without_depths
from dnm.kube.errors import ApiRefused, LostAnswer, clean, describe
from dnm.model.errors import KubeError

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

_ATTEMPTS = 4
_FIRST_PAUSE = 0.25  # seconds, doubled from one attempt to the next
_LONGEST_PAUSE = 10.0
_SUCCESS = range(200, 300)
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_NOWHERE = ("", ".", "..")  # parts of a path that would mean another object, or all objects


class ApiAnswer(msgspec.Struct, frozen=True):
    """A successful answer. `body` is valid until the next request."""

    body: memoryview
    date: str  # header Date

    @property
    def answered_at(self) -> datetime | None:
        """Returns the server's time of the answer, to the second, or None if it has none."""
        try:
            return parsedate_to_datetime(self.date).astimezone(UTC)
        except (TypeError, ValueError, OverflowError):
            return None


class _ApiStatus(msgspec.Struct, frozen=True):
    """The texts in a `v1.Status` that explain a refusal."""

    message: str | None = None
    reason: str | None = None


_decode_status = msgspec.json.Decoder(_ApiStatus).decode
_skim = msgspec.json.Decoder(msgspec.Raw).decode


def as_far_as_read(body: memoryview) -> memoryview:
    """Returns an answer, with null for values that are nested too deep for a decoder. A tenant may
    write such values into `managedFields`. The check costs as much as decoding, so dnm checks a
    page of a list only after a decoder has failed."""
    try:
        with suppress(msgspec.MsgspecError, ValueError):  # it is no JSON, which its reader reports
            _skim(b"".join((b"[" * DEEPEST, body, b"]" * DEEPEST)))
    except RecursionError:
        return without_depths(body)
    return body


def _make_refusal(response: BaseHTTPResponse, body: memoryview) -> ApiRefused:
    """Returns the error for an answer with a failure status."""
    raw = bytes(body[:65536])
    try:
        status = _decode_status(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        status = _ApiStatus(message=raw[:400].decode(errors="replace"))
    try:
        retry_after = min(float(response.headers.get("Retry-After", "0")), _LONGEST_PAUSE)
    except ValueError:
        retry_after = 0.0
    reason = clean(status.reason or response.reason or "", 60)
    return ApiRefused(response.status, reason, clean(status.message or ""), max(retry_after, 0.0))


def _open_connections(access: Access) -> PoolManager:
    """Returns the official client's pool of connections. dnm sends requests through urllib3,
    because the arguments of the client's `call_api` differ from release to release.

    Raises KubeError for a proxy that is not an HTTP proxy: dnm's connections would bypass it."""
    from kubernetes.client import ApiClient  # commands that only read the registry do not need it

    disable_warnings(DependencyWarning)  # of a SOCKS proxy, which is refused below
    try:
        manager: PoolManager = ApiClient(access.configuration).rest_client.pool_manager
        if type(manager) in (PoolManager, ProxyManager):
            return manager
    except (HTTPError, ImportError):  # if urllib3 has no such proxies, or needs a library for them
        pass
    raise KubeError(
        f"can't use {access.source}: the proxy {access.configuration.proxy} is not an HTTP proxy: "
        "set proxy-url or HTTPS_PROXY to an address http:// or https://"
    )


class Session:
    """The requests of one run, one after the other. Several threads must not share it."""

    def __init__(self, access: Access, timeout: timedelta) -> None:
        self.timeout = timeout.total_seconds()  # of one request
        self._access = access
        self._manager = _open_connections(access)
        self._wire = Wire(self._manager)
        self._body = BodyBuffer()
        self._lines: BaseHTTPResponse | None = None
        self._encoding = (
            "identity" if is_loopback(urlsplit(access.server).hostname or "") else "gzip"
        )

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
        self._manager.clear()

    def read(self, path: str, is_page: bool = False) -> ApiAnswer:
        """Sends a GET, repeated after throttling, server errors and broken connections."""
        return self._retry(_TRANSIENT, "GET", path, is_page=is_page)

    def ask(self, path: str, body: object) -> ApiAnswer:
        """Sends a POST that changes nothing, repeated like a read."""
        return self._retry(_TRANSIENT, "POST", path, body)

    @contextmanager
    def open(self, path: str) -> Iterator[Answer]:
        """Sends a GET and yields its answer, which the caller can read once. The time-out covers
        the request until the answer begins, and starts again at each `go_on`."""
        self._body = BodyBuffer()  # without the memory for the largest page so far
        with self._wire.reading(self._send("GET", path)) as answer:
            yield answer

    def go_on(self) -> None:
        """Gives the caller another time-out to read the answer from `open`."""
        self._wire.deadline = time.monotonic() + self.timeout

    def begin_lines(self, path: str, seconds: float) -> None:
        """Sends a GET for lines, for at most `seconds` in all. Raises ApiRefused for a refusal."""
        self._lines = None
        try:
            self._lines = self._send("GET", path, encoding="identity", seconds=seconds)
        except (OSError, ValueError):
            if not self._wire.was_sent:
                raise

    def read_lines(self, longest: int) -> Generator[bytes]:
        """Yields the lines of the stream from `begin_lines`. A failure ends the stream without an
        incomplete last line. Closes the connection at the end, and if the caller stops earlier."""
        response, self._lines = self._lines, None
        if response is None:
            return
        with suppress(OSError, ValueError), self._wire.reading(response) as answer:
            while (line := answer.readline(longest)).endswith(b"\n"):
                yield line
            response.close()

    def write(
        self,
        method: str,
        path: str,
        body: object,
        content_type: str = JSON,
        is_throttled: bool = True,
    ) -> ApiAnswer:
        """Sends a request once. Repeats it only if the server refused it unread (status 429, unless
        `is_throttled` is False).

        Raises LostAnswer if the write may have happened, else ApiRefused or OSError."""
        again = {429} if is_throttled else set()
        try:
            return self._retry(again, method, path, body, content_type)
        except ApiRefused as error:
            if error.status >= 500:
                raise LostAnswer(str(error)) from error
            raise
        except (OSError, ValueError) as error:
            if not self._wire.was_sent:
                raise
            raise LostAnswer(describe(error)) from error

    def _send(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = JSON,
        encoding: str = "",
        seconds: float = 0.0,
    ) -> BaseHTTPResponse:
        """Sends a request. Returns its answer with an unread body. Raises ApiRefused."""
        if any(part in _NOWHERE for part in path.partition("?")[0].split("/")[1:]):
            raise ValueError(f"{path!r} names no object")
        headers = {
            "Accept": JSON,
            "Accept-Encoding": encoding or self._encoding,
            "Content-Type": content_type,
            "User-Agent": "dnm",
        }
        response = self._wire.send(
            lambda: self._manager.request(
                method,
                self._access.server + path,
                body=None if body is None else msgspec.json.encode(body),
                headers={**headers, **self._access.authorization()},
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=seconds or self.timeout,
            ),
            seconds or self.timeout,
        )
        if response.status in _SUCCESS:
            return response
        with self._wire.reading(response) as answer:
            refusal = _make_refusal(response, self._body.read(answer))
        raise refusal

    def _retry(self, again: Set[int], *request: Any, is_page: bool = False) -> ApiAnswer:
        """Sends a request at most `_ATTEMPTS` times. Repeats it after a refusal with a status in
        `again`; a read also after a broken connection, until a request time-out has passed."""
        is_read = again is _TRANSIENT
        give_up = time.monotonic() + self.timeout
        for attempt in range(_ATTEMPTS):
            pause = _FIRST_PAUSE * 2.0**attempt
            try:
                with self._wire.reading(self._send(*request)) as answer:
                    look = memoryview if is_page else as_far_as_read
                    return ApiAnswer(
                        look(self._body.read(answer)), answer.headers.get("Date") or ""
                    )
            except ApiRefused as error:
                if error.status not in again:
                    raise
                pause = max(pause, error.retry_after)
                failure: Exception = error
            except ConnectionError as error:
                if isinstance(error, ConnectionRefusedError) or not is_read:
                    raise
                failure = error
            if attempt == _ATTEMPTS - 1 or (is_read and time.monotonic() + pause > give_up):
                raise failure
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")
