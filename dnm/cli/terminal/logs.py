"""Where a run logs, and what of a plan it logs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dnm.record.log_lines import log_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dnm.model.history import HistoryLine, Operation
    from dnm.model.plan import Pass

IDENT = f"dynamic-node-manager[{os.getpid()}]"
_SYSLOG = "/dev/log"

operations: list[Operation] = []
"""What this command has done, for `--output json` of the verbs that write."""


def set_up_logging(to_console: bool) -> None:
    """Logs `key=value` lines to syslog (facility daemon) where the host has it, and to stderr if
    asked."""
    import logging
    from logging.handlers import SysLogHandler

    logger = logging.getLogger("dnm")
    logger.setLevel(logging.INFO)
    logging.raiseExceptions = False  # where nobody listens to the socket: no traceback per line
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
    """Logs what was found, beside what was done: nobody searches the mail of cron. Errors of
    actions are logged as they come; one that lasts is not logged in every run."""
    import logging

    outcome = result.outcome
    later = (*outcome.over, *outcome.notes) if outcome else ()
    for note in (*result.plan.news, *later):
        logging.getLogger("dnm").info("note=%r", note)
    for error in outcome.said if outcome else result.plan.errors:
        if outcome is None or error not in outcome.errors:
            logging.getLogger("dnm").error("error=%r", error)


def log_told(told: Iterable[HistoryLine]) -> None:
    """Logs what has happened, a line each, as the history tells it."""
    import logging

    for line in told:
        if text := log_line(line):
            logging.getLogger("dnm").info("%s", text)


def log_operation(operation: Operation, instance: str) -> None:
    """Logs a person's verb as runs log their actions."""
    import logging

    operations.append(operation)
    set_up_logging(to_console=False)
    logging.getLogger("dnm").info(
        "action=%s object=%s who=%r host=%r reason=%r instance=%s",
        operation.verb, operation.object or "-", operation.who, operation.host, operation.reason,
        instance,
    )  # fmt: skip
