"""A body of slurmrestd's: read into a shape, or the errors that it tells. Pure.

Whether a request went well is told by the body: 22.05 answers 500 to an unknown node, later ones
200 with `errors`.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dnm.model.errors import SlurmError

T = TypeVar("T")


class RestError(msgspec.Struct):
    """One of `errors`; 22.05 has it in two shapes."""

    description: str | None = None
    error: str | None = None
    error_number: int | None = None
    errno: int | None = None

    @property
    def number(self) -> int:
        return self.error_number or self.errno or 0

    @property
    def text(self) -> str:
        told = "" if self.number == 0 else self.error  # "No error", where there is one
        parts = [part for part in (self.description, told) if part]
        return " ".join(": ".join(parts).split())[:300] or f"error {self.number}"


class Answer(msgspec.Struct):
    """What is in each of them: nothing went wrong if `errors` is empty."""

    errors: list[RestError] = []


_decode_answer = msgspec.json.Decoder(Answer).decode


def read_errors(body: bytes) -> list[RestError] | None:
    """Returns the errors of an answer; None: it is none of slurmrestd's."""
    try:
        return _decode_answer(body).errors
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode(decoder: msgspec.json.Decoder[T], body: bytes, what: str) -> T:
    """Returns the body as that shape. Raises SlurmError for any other."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SlurmError(
            f"slurmrestd's answer about {what} can't be read ({error}); nothing is done: "
            "leave slurmrestd_url out, and report it"
        ) from error
