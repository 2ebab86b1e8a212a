"""A line of history as a line for the log: `key=value`, with the numbers of the decision. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dnm.model.history import JOBS, HistoryLine
from dnm.model.printable import printable

# These events have a log line of their action: convert, fence, return, set-limit.
_ACTIONS = {("request", "requested"), ("node", "fenced"), ("node", "returning"),
            ("limit", "changed")}  # fmt: skip
# A command logs its own line; waiting jobs may change with each query of Slurm.
_UNLOGGED = ("verb", JOBS)


def log_line(line: HistoryLine) -> str:
    """Returns the line, or nothing if another line of the log reports the same."""
    if (line.kind, line.event) in _ACTIONS or line.kind in _UNLOGGED:
        return ""
    word = "verdict" if line.kind == "queue" else "event"
    fields: dict[str, Any] = {line.kind: line.object, word: line.event}
    if line.kind != "queue":
        fields["queue"] = line.queue if line.queue != line.object else ""
    fields |= {"was": line.before, "code": line.code, **line.numbers}
    fields |= {"reason": line.reason, "instance": line.instance}
    texts = {key: _value(value) for key, value in fields.items() if key != "pods"}
    return " ".join(f"{key}={text}" for key, text in texts.items() if text)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        value = ",".join(f"{name}:{amount}" for name, amount in sorted(value.items()))
    text = printable(str(value))
    return repr(text) if " " in text or "'" in text else text
