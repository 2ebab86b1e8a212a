"""The log of a run: its handlers, and the errors, actions and commands that dnm logs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dnm.model.history import JOBS, HistoryLine
from dnm.model.printable import printable

if TYPE_CHECKING:
    from dnm.model.history import Operation
    from dnm.model.plan import Pass

IDENT = f"dynamic-node-manager[{os.getpid()}]"
_SYSLOG = "/dev/log"
# These events have a log line of their action: convert, fence, return, set-limit.
_ACTIONS = {("request", "requested"), ("node", "fenced"), ("node", "returning"),
            ("limit", "changed")}  # fmt: skip
# A command logs its own line; waiting jobs may change with each query of Slurm.
_UNLOGGED = ("verb", JOBS)

operations: list[Operation] = []
"""The operations of this command, for `--output json` of commands that change something."""


def set_up_logging(to_console: bool) -> None:
    """Sends `key=value` lines to syslog (facility daemon), if the host has it, and to stderr if
    `to_console` is set."""
    import logging
    from logging.handlers import SysLogHandler

    logger = logging.getLogger("dnm")
    logger.setLevel(logging.INFO)
    logging.raiseExceptions = False  # no traceback for each line if no process reads the socket
    if os.path.exists(_SYSLOG):
        syslog = SysLogHandler(_SYSLOG, facility=SysLogHandler.LOG_DAEMON)
        syslog.ident = f"{IDENT}: "
        logger.addHandler(syslog)
    if to_console:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def log_findings(result: Pass) -> None:
    """Logs the notes and errors of a run, because administrators search the log, not cron's mail.
    Errors of actions are in the log already. A lasting error is not logged in every run."""
    import logging

    outcome = result.outcome
    later = (*outcome.over, *outcome.notes) if outcome else ()
    for note in (*result.plan.news, *later):
        logging.getLogger("dnm").info("note=%r", note)
    for error in outcome.new_errors if outcome else result.plan.errors:
        if outcome is None or error not in outcome.errors:
            logging.getLogger("dnm").error("error=%r", error)


def log_history(lines: Iterable[HistoryLine]) -> None:
    """Logs the lines that a run has added to the history."""
    import logging

    for line in lines:
        if text := log_line(line):
            logging.getLogger("dnm").info("%s", text)


def log_line(line: HistoryLine) -> str:
    """Returns a history line as text for the log, or "" if the log already reports the same."""
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


def log_operation(operation: Operation, instance: str) -> None:
    """Logs an administrator's command in the format of a run's actions."""
    import logging

    operations.append(operation)
    set_up_logging(to_console=False)
    logging.getLogger("dnm").info(
        "action=%s object=%s requester=%r host=%r reason=%r instance=%s",
        operation.verb, operation.object or "-", operation.requester, operation.host,
        operation.reason, instance,
    )  # fmt: skip
