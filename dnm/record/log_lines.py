"""A line of history as a line for the log: `key=value`, with the numbers of the decision. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dnm.model.history import JOBS, HistoryLine
from dnm.model.printable import printable

# What an action's own line tells: convert, fence, return, set-limit.
_ACTIONS = {("request", "requested"), ("node", "fenced"), ("node", "returning"),
            ("limit", "changed")}  # fmt: skip
# What a verb's own line tells, and what may change with each look at Slurm.
_UNLOGGED = ("verb", JOBS)


def log_line(line: HistoryLine) -> str:
    """Returns the line, or nothing where another line of the log has told it."""
    if (line.kind, line.event) in _ACTIONS or line.kind in _UNLOGGED:
        return ""
    word = "verdict" if line.kind == "queue" else "event"
    fields: dict[str, Any] = {line.kind: line.object, word: line.event}
    if line.kind != "queue":
        fields["queue"] = line.queue if line.queue != line.object else ""
    fields |= {"was": line.before, "code": line.code, **_numbers(line.numbers)}
    fields |= {"reason": line.reason, "instance": line.instance}
    return " ".join(f"{key}={_value(value)}" for key, value in fields.items() if value != "")


def _numbers(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Those that an operator follows demand by."""
    plain: dict[str, Any] = {}
    for key, value in numbers.items():
        if key == "pods":
            continue
        if isinstance(value, Mapping):
            plain[key] = ",".join(f"{name}:{amount}" for name, amount in sorted(value.items()))
        else:
            plain[key] = value
    return plain


def _value(value: object) -> str:
    text = printable(str(value))
    return repr(text) if " " in text or "'" in text else text
