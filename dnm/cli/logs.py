"""Where a run logs, what of a plan it logs, and how it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from dnm.host.fault_points import waits_too_long
from dnm.model.errors import StoppedError
from dnm.record.log_lines import log_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    from dnm.model.history import Deed, HistoryLine
    from dnm.model.plan import Pass

IDENT = f"dynamic-node-manager[{os.getpid()}]"
_SYSLOG = "/dev/log"
_LOOK_EVERY = 0.1  # seconds, from the end of a signal's grace on

deeds: list[Deed] = []
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


def log_deed(deed: Deed, instance: str) -> None:
    """Logs a person's verb as runs log their actions."""
    import logging

    deeds.append(deed)
    set_up_logging(to_console=False)
    logging.getLogger("dnm").info(
        "action=%s object=%s who=%r host=%r reason=%r instance=%s",
        deed.verb, deed.object or "-", deed.who, deed.host, deed.reason, instance,
    )  # fmt: skip


class StopSignals:
    """The first TERM or INT lets the step under way end within this grace; a second INT leaves.
    When it is over, waits for others end where they are, and so does whatever waits later."""

    def __init__(self, grace: timedelta) -> None:
        self.came = self._is_at_once = False
        self._grace = grace.total_seconds()
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)
        signal.signal(signal.SIGALRM, self._end_wait)

    def _note(self, number: int, frame: object) -> None:
        if self.came and number == signal.SIGINT:
            raise KeyboardInterrupt
        is_first, self.came = not self.came, True
        if is_first:
            signal.setitimer(signal.ITIMER_REAL, max(self._grace, _LOOK_EVERY), _LOOK_EVERY)
        if self._is_at_once:
            self._leave()
        elif is_first and sys.stderr.isatty():
            print("finishing the step under way; Ctrl-C again leaves it", file=sys.stderr)

    def _end_wait(self, number: int, frame: object) -> None:
        if waits_too_long():
            raise StoppedError(f"a signal: {self._grace:g} s of shutdown_grace_seconds were over")

    def close(self) -> None:
        """Ends no wait any more."""
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # the interpreter's end would give it back
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While a run only looks and plans, nothing is half done: it ends where it is, however long
        that would take. Raises StoppedError."""
        self._is_at_once = True
        try:
            if self.came:
                self._leave()
            yield
        finally:
            self._is_at_once = False

    def _leave(self) -> NoReturn:
        self._is_at_once = False  # what cleans up on the way out is not interrupted
        raise StoppedError("ended by a signal before anything was done: the next run looks anew")
