"""A client for the sandbox's HTTP API, for the commands and the demo."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dnm.model.errors import SandboxError


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """Returns the decoded answer to a request. Raises SandboxError for an error or no answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        content = None if body is None else msgspec.json.encode(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        read = answer.read()
        decoded = msgspec.json.decode(read) if read else None
    except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
        raise SandboxError(f"the sandbox at {url} does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status >= 300:
        message = decoded.get("message") if isinstance(decoded, dict) else answer.reason
        raise SandboxError(f"the sandbox at {url} refused {method} {path}: {message}")
    return decoded
