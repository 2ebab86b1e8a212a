"""A client for the few requests to schedulers and slurmrestd, each over a new connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from urllib3 import PoolManager

from dnm.http.reader import BodyBuffer, Wire


class PlainAnswer(NamedTuple):
    """The answer of a server: its HTTP status and its body."""

    status: int
    body: bytes


class PlainClient:
    """The client of one server, with a connection for each request, without redirects and retries.
    `socket_path` is the server's unix socket, if any. An answer may have `largest` bytes."""

    def __init__(self, url: str, seconds: float, largest: int, socket_path: str = "") -> None:
        self._url = url.rstrip("/")
        self._seconds, self._largest = seconds, largest
        self._manager = PoolManager(retries=False)
        self._wire = Wire(self._manager, socket_path)

    @property
    def was_sent(self) -> bool:
        """Returns whether the last request may have reached the server."""
        return self._wire.was_sent

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        largest: int | None = None,
    ) -> PlainAnswer:
        """Returns the answer, whatever its status. Raises OSError or ValueError if there is none.
        `largest` replaces the bound of the client for this answer."""
        largest = self._largest if largest is None else largest
        try:
            response = self._wire.send(
                lambda: self._manager.request(
                    method,
                    self._url + path,
                    body=body,
                    headers={"User-Agent": "dnm", "Accept-Encoding": "identity", **headers},
                    preload_content=False,
                    redirect=False,
                    timeout=self._seconds,
                ),
                self._seconds,
            )
            with self._wire.reading(response) as answer:
                return PlainAnswer(response.status, bytes(BodyBuffer(largest).read(answer)))
        except (OSError, ValueError) as error:
            raise error.with_traceback(None) from error.__cause__  # its frames hold the body
        finally:
            self._manager.clear()
