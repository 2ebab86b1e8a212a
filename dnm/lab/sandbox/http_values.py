"""The types of requests, answers and injected faults, for all parts of the sandbox."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from dnm.lab.sandbox.store import ApiError


def is_asked_for(query: Mapping[str, str], name: str) -> bool:
    """Returns whether a query parameter is true: an API server accepts every value except "false"
    and "0" in any case (apimachinery, Convert_Slice_string_To_bool)."""
    return query.get(name, "false").lower() not in ("false", "0")


class Request(msgspec.Struct, kw_only=True):
    """A request that the sandbox has received."""

    method: str
    path: str
    query: dict[str, str] = {}
    headers: Mapping[str, str] = {}  # names in lower case
    body: bytes = b""

    def json(self) -> Any:
        """Returns the decoded body. Raises 400 if it is not JSON."""
        try:
            return msgspec.json.decode(self.body) if self.body else {}
        except msgspec.DecodeError as error:
            raise ApiError(400, f"the body is not JSON: {error}") from error


class ServerAnswer(msgspec.Struct, kw_only=True):
    """An answer of the sandbox. A `stream` is sent chunk by chunk instead of `body`."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = {}
    stream: Iterator[bytes] | None = None


def json_answer(value: Any, code: int = 200) -> ServerAnswer:
    return ServerAnswer(code=code, body=msgspec.json.encode(value))


def error_answer(error: ApiError) -> ServerAnswer:
    answer = json_answer(error.status(), error.code)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(error.retry_after)
    return answer


# --- faults --------------------------------------------------------------------------------------

# Faults of the API, switched on and off while it runs.


class Fault(msgspec.Struct, kw_only=True):
    """An injected fault: its kind, the requests that it affects, and how often.

    slow: answers after `seconds` (of real time). status: does nothing and answers `code`. cut:
    acts, and closes the connection within the answer. lost: acts, and closes it without an answer.
    down: does nothing and closes it. garbage: acts, and answers 200 with `body`, by default a page
    of HTML. empty: answers a list without its items. trickle: sends a byte of the answer every
    `seconds`. busy: answers 429 like flow control, and each time demands a wait twice as long, up
    to 16 seconds."""

    kind: Literal["slow", "status", "cut", "lost", "down", "garbage", "empty", "trickle", "busy"]
    path: str = ""  # regular expression, searched in the path; empty: every path but /sandbox
    methods: tuple[str, ...] = ()  # HTTP methods; empty: all
    code: int = 500
    message: str = ""
    body: str = "<html><body>502 Bad Gateway</body></html>"
    retry_after: int | None = None
    seconds: float = 1.0
    skip: int = 0  # so many matching requests pass first
    times: int = -1  # so many requests then; -1: all
    chance: float = 1.0
    struck: int = 0  # so many requests already

    def matches(self, request: Request) -> bool:
        if self.methods and request.method not in self.methods:
            return False
        if not self.path:
            return not request.path.startswith("/sandbox")
        return re.search(self.path, request.path) is not None

    def answer(self) -> ServerAnswer:
        """Returns the error that a fault of kind `status` or `busy` answers."""
        if self.kind == "busy":
            return ServerAnswer(
                code=429,
                body=b"Too many requests, please try again later.\n",
                content_type="text/plain; charset=utf-8",
                headers={"Retry-After": str(min(16, 2 ** (self.struck - 1)))},
            )
        message = self.message or f"injected fault {self.code}"
        return error_answer(ApiError(self.code, message, retry_after=self.retry_after))

    def replaced(self, answer: ServerAnswer) -> ServerAnswer:
        """Returns what a fault of kind `garbage` or `empty` answers instead of this answer."""
        if self.kind == "garbage":
            is_json = self.body[:1] in ("{", "[")
            content_type = "application/json" if is_json else "text/html"
            return ServerAnswer(body=self.body.encode(), content_type=content_type)
        return json_answer({**msgspec.json.decode(answer.body), "items": []})

    def replaces(self, answer: ServerAnswer) -> bool:
        """Returns whether the fault replaces this answer. The kind `empty` replaces only lists."""
        return self.kind == "garbage" or (self.kind == "empty" and b'"items":[' in answer.body)


class Faults:
    """All injected faults. The seed makes their `chance` repeatable."""

    def __init__(self, seed: int = 0) -> None:
        self._faults: list[Fault] = []
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def striking(self, request: Request) -> list[Fault]:
        """Returns the faults that affect this request, and removes those that are used up."""
        struck = []
        with self._lock:
            for fault in list(self._faults):
                if not fault.matches(request):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                if fault.chance < 1.0 and self._random.random() >= fault.chance:
                    continue
                struck.append(fault)
                fault.struck += 1
                fault.times -= 1 if fault.times > 0 else 0
                if fault.times == 0:
                    self._faults.remove(fault)
        return struck
