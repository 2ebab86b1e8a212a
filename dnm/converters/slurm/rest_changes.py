"""What is sent to slurmrestd to change a node or to reserve one. Pure.

A number counts only with `set`; what is left out stays as it is. A reservation is created *or
updated* by its name, whoever asks: `SlurmRestClient.create_reservation` makes a claim of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec


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
