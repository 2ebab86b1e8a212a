"""One keep-alive connection to the API server, through the official client, with time limits and
retries.

A read is tried again where that can help, a write never once it may have happened. Everything here
raises `ApiRefused`, `LostAnswer` or what the operating system raises; `errors.py` makes sentences
of them.
"""

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
_NOWHERE = ("", ".", "..")  # a part of a path that would name another object, or all of them


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
_skim = msgspec.json.Decoder(msgspec.Raw).decode


def as_far_as_read(body: memoryview) -> memoryview:
    """Without what is nested deeper than a decoder goes, and nobody reads: who may change an object
    may write its `managedFields`. Decoders have less of the stack left, so less is passed here. It
    costs as much as to decode, so pages of a list are looked at where a decoder has failed."""
    try:
        with suppress(msgspec.MsgspecError, ValueError):  # it is no JSON, as its reader will say
            _skim(b"".join((b"[" * DEEPEST, body, b"]" * DEEPEST)))
    except RecursionError:
        return without_depths(body)
    return body


def _make_refusal(response: BaseHTTPResponse, body: memoryview) -> ApiRefused:
    """Returns the refusal that an answer states."""
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
    """Returns the client's connections. dnm sends requests through urllib3, because the arguments
    of the client's `call_api` differ from release to release.

    Raises KubeError for a proxy that is no HTTP proxy: dnm's own connections would bypass it.
    """
    from kubernetes.client import ApiClient  # commands that only read the record do without

    disable_warnings(DependencyWarning)  # of a SOCKS proxy, which is refused below
    try:
        manager: PoolManager = ApiClient(access.configuration).rest_client.pool_manager
        if type(manager) in (PoolManager, ProxyManager):
            return manager
    except (HTTPError, ImportError):  # if urllib3 has no such proxies, or needs a library for them
        pass
    raise KubeError(
        f"can't use {access.source}: the proxy {access.configuration.proxy} is no HTTP proxy: set "
        "proxy-url or HTTPS_PROXY to an address http:// or https://"
    )


class Session:
    """The requests of one run, one after another. Not for several threads."""

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
        """GET, tried again on throttling, server errors and broken connections; a page as it is."""
        return self._retry(_TRANSIENT, "GET", path, is_page=is_page)

    def ask(self, path: str, body: object) -> ApiAnswer:
        """POST of a question that changes nothing; tried again like a read."""
        return self._retry(_TRANSIENT, "POST", path, body)

    @contextmanager
    def open(self, path: str) -> Iterator[Answer]:
        """A GET whose answer is read as it comes, once; a time-out until it begins, and one more
        with each `go_on`."""
        self._body = BodyBuffer()  # without the room for the largest page so far
        with self._wire.reading(self._send("GET", path)) as answer:
            yield answer

    def go_on(self) -> None:
        """Allows the answer that is being read one more time-out."""
        self._wire.deadline = time.monotonic() + self.timeout

    def begin_lines(self, path: str, seconds: float) -> None:
        """Sends a GET whose answer is a stream of lines, and may take so long in all. Raises
        ApiRefused where it is none."""
        self._lines = None
        try:
            self._lines = self._send("GET", path, encoding="identity", seconds=seconds)
        except (OSError, ValueError):
            if not self._wire.was_sent:
                raise

    def read_lines(self, longest: int) -> Generator[bytes]:
        """Yields the lines of the stream that was begun. Its end, however it comes, is the end; a
        piece without a line end is none. The connection is closed then, and where the caller stops
        before."""
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
        """Sent once; again only where the server refused it unread (429 means that, unless
        `is_throttled` says otherwise).

        Raises LostAnswer where it may have happened, ApiRefused, or OSError where it can't have.
        """
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
        """The answer's beginning. Raises ApiRefused where it is a refusal."""
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
        """At most `_ATTEMPTS` times: after a refusal of such a status, and a read after a broken
        connection too, which begins no more once a request time-out has passed."""
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
