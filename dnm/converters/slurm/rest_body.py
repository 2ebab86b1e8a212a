"""What is said with slurmrestd beside the values: errors in a body, the version of its API that is
asked, and what is sent to change a node or to reserve one. Pure.

Whether a request went well is told by the body: 22.05 answers 500 to an unknown node, later ones
200 with `errors`. The version is the newest that both know and that hides no state: one that hides
one would have a busy or a foreign node look idle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from dnm.model.errors import SlurmError

T = TypeVar("T")
OLDEST, NEWEST = 38, 45  # v0.0.37 (Slurm 21.08) and before hide states


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


def decode_list(body: bytes, name: str, item: type[T]) -> list[T]:
    """Returns the list of that name in a body. Raises SlurmError where there is none such."""
    found = decode(body, name, dict[str, msgspec.Raw])
    return decode(found.get(name, b"{}"), name, list[item])  # type: ignore[valid-type]


def decode(body: bytes | msgspec.Raw, what: str, shape: type[T]) -> T:
    """Returns the body as that shape. Raises SlurmError for any other."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SlurmError(
            f"slurmrestd's answer about {what} can't be read ({error}); nothing is done: "
            "leave slurmrestd_url out, and report it"
        ) from error


# --- versions


class _Info(msgspec.Struct):
    version: str = ""  # Slurm-24.11.5&openapi/slurmctld


class _Specification(msgspec.Struct):
    paths: Mapping[str, Mapping[str, msgspec.Raw]]
    info: _Info = msgspec.field(default_factory=_Info)


class Offer(msgspec.Struct, frozen=True):
    """The API version to speak, and what it can change: (method, path below the version)."""

    version: str
    methods: frozenset[tuple[str, str]]

    def can(self, method: str, path: str) -> bool:
        return (method, path) in self.methods


def choose_version(body: bytes, newest: int = NEWEST) -> Offer:
    """Returns the newest version that both slurmrestd and dnm know, of the answer to `/openapi/v3`.
    Raises SlurmError with the way, where there is none."""
    specification = decode(body, "openapi/v3", _Specification)
    found: dict[int, set[tuple[str, str]]] = {}
    for path, methods in specification.paths.items():
        if match := re.fullmatch(r"/slurm/v0\.0\.([0-9]{1,4})/([^/]+)(/.*)?", path):
            below = match[2] + ("/" if (match[3] or "").strip("/") else "")
            known = found.setdefault(int(match[1]), set())
            known.update((method.upper(), below) for method in methods)
    hidden = _hiding(specification.info.version)
    if usable := [one for one in found if OLDEST <= one <= newest and one not in hidden]:
        return Offer(version=f"v0.0.{max(usable)}", methods=frozenset(found[max(usable)]))
    offered = ", ".join(f"v0.0.{number}" for number in sorted(found)) or "no version"
    raise SlurmError(
        f"slurmrestd offers {offered} of Slurm's API, and dnm reads v0.0.{OLDEST} to "
        f"v0.0.{NEWEST}, of Slurm 25.05 and later v0.0.44 and v0.0.45, since the ones before hide "
        "EXTERNAL nodes: start slurmrestd with one of these, or leave slurmrestd_url out"
    )


def _hiding(version: str) -> range:
    """The versions of the API in which this Slurm has nodes in states that are not told: EXTERNAL
    came with 25.05, and v0.0.43 of 26.05 shows such a node as IDLE."""
    release = re.match(r"Slurm-([0-9]{2})\.([0-9]{2})\b", version)
    is_old = release is not None and (int(release[1]), int(release[2])) < (25, 5)
    return range(0) if is_old else range(40, 44)


# --- changes: a number counts only with `set`, what is left out stays as it is


def _number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": value is None, "number": value or 0}


def encode_node_change(marks: Mapping[str, str], state: str = "", reason: str = "") -> bytes:
    """Returns the body of POST node/NAME: state, reason and marks (`comment`, `extra`) in one RPC;
    an empty mark clears."""
    states = {"state": [state]} if state else {}
    return msgspec.json.encode({**states, **({"reason": reason} if reason else {}), **marks})


def encode_reservation(
    name: str, node: str, start: datetime, end: datetime | timedelta | None, flags: Sequence[str]
) -> bytes:
    """Returns the body of POST reservation, for root, of one node; `end` None: without an end."""
    if isinstance(end, datetime):
        until = {"end_time": _number(int(end.timestamp()))}
    else:
        until = {"duration": _number(int(end.total_seconds() // 60) if end else None)}
    return msgspec.json.encode(
        {
            "name": name,
            "node_list": [node],
            "start_time": _number(int(start.timestamp())),
            "users": ["root"],
            **until,
            **({"flags": list(flags)} if flags else {}),
        }
    )
