"""A request and its answer, as every part of the sandbox behind HTTP takes and gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dnm.lab.sandbox.store import ApiError


def is_asked_for(query: Mapping[str, str], name: str) -> bool:
    """Whether a query says yes, as an API server reads it: to all but "false" and "0" in any case
    (apimachinery, Convert_Slice_string_To_bool)."""
    return query.get(name, "false").lower() not in ("false", "0")


class Request(msgspec.Struct, kw_only=True):
    """What a client asks."""

    method: str
    path: str
    query: dict[str, str] = {}
    headers: Mapping[str, str] = {}  # names in lower case
    body: bytes = b""

    def json(self) -> Any:
        """The decoded body; raises 400 where it is not JSON."""
        try:
            return msgspec.json.decode(self.body) if self.body else {}
        except msgspec.DecodeError as error:
            raise ApiError(400, f"the body is not JSON: {error}") from error


class Answer(msgspec.Struct, kw_only=True):
    """`stream` is sent chunk by chunk in place of `body`."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = {}
    stream: Iterator[bytes] | None = None


def json_answer(value: Any, code: int = 200) -> Answer:
    return Answer(code=code, body=msgspec.json.encode(value))


def error_answer(error: ApiError) -> Answer:
    answer = json_answer(error.status(), error.code)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(error.retry_after)
    return answer
