"""HTTP with JSON to the servers of a rig, by the standard library: what tests judge dnm by."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

Json = dict[str, Any]
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """An answer of 400 and above; `code` is its status, `reason` and the message the Status's."""

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
    """`url` with a path below; with `keys` it is the administrator of the rig's API server."""

    def __init__(self, url: str, keys: Path | None = None, name: str = "admin") -> None:
        self.url = url
        self.context: ssl.SSLContext | None = None
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
        """Raises ApiError for an answer of 400 and above, OSError where there is none."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=content, method=method, headers={"Content-Type": kind, **headers}
        )
        try:
            with urllib.request.urlopen(request, timeout=90, context=self.context) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from None

    def get(self, path: str) -> Any:
        return json.loads(self.ask("GET", path))

    def post(self, path: str, body: Json) -> Any:
        return json.loads(self.ask("POST", path, body))

    def put(self, path: str, body: Json) -> Any:
        return json.loads(self.ask("PUT", path, body))

    def patch(self, path: str, body: Any, how: str = "merge") -> Any:
        return json.loads(self.ask("PATCH", path, body, PATCHES[how]))

    def delete(self, path: str, options: Json | None = None) -> None:
        """One that is not there is deleted already."""
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
