"""A small HTTP client with JSON, by which tests read and change the servers without dnm's code."""

from __future__ import annotations

import json
import ssl
import threading
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """An HTTP answer of 400 or above, with its status code and the reason in its Status object."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text

    @property
    def reason(self) -> str:
        try:
            return str(json.loads(self.text).get("reason", ""))
        except ValueError:
            return ""


class Api:
    """A client of `url`. With `keys` it is an administrator of the API server. Each thread keeps
    one connection for reads, since waiting tests read often."""

    def __init__(self, url: str, keys: Path | None = None, name: str = "admin") -> None:
        self.url = url
        self.context: ssl.SSLContext | None = None
        self._kept = threading.local()
        if keys is not None:
            self.context = ssl.create_default_context(cafile=f"{keys}/ca.crt")
            self.context.load_cert_chain(f"{keys}/{name}.crt", f"{keys}/{name}.key")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        **headers: str,
    ) -> bytes:
        """Sends a request and returns the body. Raises ApiError (400 and above) or OSError."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": kind, **headers}
        if method != "GET":
            with closing(self._connect()) as connection:
                return self._exchange(connection, method, path, content, sent)
        kept: HTTPConnection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            try:
                return self._exchange(kept, method, path, content, sent)
            except TimeoutError:
                self._drop()
                raise
            except OSError:  # its server has ended, and may have started again
                self._drop()
        self._kept.connection = connection = self._connect()
        try:
            return self._exchange(connection, method, path, content, sent)
        except OSError:
            self._drop()
            raise

    def _connect(self) -> HTTPConnection:
        place = urlsplit(self.url).netloc
        if self.context is None:
            return HTTPConnection(place, timeout=90)
        return HTTPSConnection(place, timeout=90, context=self.context)

    def _drop(self) -> None:
        self._kept.connection.close()
        self._kept.connection = None

    def _exchange(
        self, connection: HTTPConnection, method: str, path: str, content: bytes | None,
        headers: dict[str, str],
    ) -> bytes:  # fmt: skip
        try:
            connection.request(method, urlsplit(self.url).path + path, content, headers)
            answer: HTTPResponse = connection.getresponse()
            text = answer.read()
        except HTTPException as error:
            raise ConnectionError(f"{self.url}{path}: {error!r}") from error
        if answer.status >= 400:
            raise ApiError(answer.status, text.decode(errors="replace"))
        return text

    def get(self, path: str) -> Any:
        return json.loads(self.ask("GET", path))

    def post(self, path: str, body: Json) -> Any:
        return json.loads(self.ask("POST", path, body))

    def put(self, path: str, body: Json) -> Any:
        return json.loads(self.ask("PUT", path, body))

    def patch(self, path: str, body: Any, how: str = "merge") -> Any:
        return json.loads(self.ask("PATCH", path, body, PATCHES[how]))

    def delete(self, path: str, options: Json | None = None) -> None:
        """Deletes the object; a missing one counts as deleted."""
        try:
            self.ask("DELETE", path, options)
        except ApiError as error:
            if error.code != 404:
                raise

    def answers(self, path: str, **headers: str) -> bool:
        try:
            self.ask("GET", path, **headers)
        except (OSError, ApiError):
            return False
        return True
