"""A log of the requests to the server, in which tests count lists and writes."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from dnm.lab.sandbox.api import attempt_of, find_target
from dnm.lab.sandbox.http_values import Request
from dnm.lab.sandbox.store import ApiError

_KEPT = 100_000


class Logged(NamedTuple):
    """A request to the sandbox. `verb` and `resource` are empty if it is not about an object."""

    method: str
    path: str
    query: dict[str, str]
    verb: str
    resource: str
    namespace: str
    name: str
    code: int  # of the answer; 0: hung up


class RequestLog:
    """A log of the latest requests, in the order of their answers."""

    def __init__(self) -> None:
        self._log: deque[Logged] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def note(self, request: Request, code: int) -> None:
        if request.path.startswith("/sandbox"):
            return
        try:
            attempt = attempt_of(request, find_target(request.path))
            verb, resource, namespace, name = (
                attempt.verb, attempt.resource, attempt.namespace, attempt.name
            )  # fmt: skip
        except ApiError:
            verb = resource = namespace = name = ""
        entry = Logged(request.method, request.path, request.query, verb, resource, namespace,
                       name, code)  # fmt: skip
        with self._lock:
            self._log.append(entry)

    def all(self) -> list[Logged]:
        with self._lock:
            return list(self._log)

    def clear(self) -> None:
        with self._lock:
            self._log.clear()

    def lists(self, resource: str = "") -> list[Logged]:
        """Returns the list requests, without those for further pages (with a `continue` token)."""
        return [
            entry
            for entry in self.all()
            if entry.verb == "list"
            and "continue" not in entry.query
            and resource in ("", entry.resource)
        ]

    def writes(self) -> list[Logged]:
        """Returns the requests that change objects, with dry runs and without access reviews."""
        verbs = ("create", "update", "patch", "delete")
        return [entry for entry in self.all() if entry.verb in verbs]
