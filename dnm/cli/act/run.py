"""One pass as a command makes it, `dnm run` and `--now` of the verbs, and how a signal ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from io import FileIO
from typing import Annotated, NoReturn

import typer

from dnm.cli.look.report import order_lines, plan, run_document
from dnm.cli.look.status_view import print_pause
from dnm.cli.terminal.commands import shown_at_work
from dnm.cli.terminal.logs import log_findings, log_told, operations, set_up_logging
from dnm.cli.terminal.options import ConfigOption, OutputOption
from dnm.cli.terminal.output import print_answer, print_document, print_line
from dnm.config.load import is_console_log_asked
from dnm.host.fault_points import waits_too_long
from dnm.model.config import Config
from dnm.model.errors import StoppedError
from dnm.model.plan import Pass
from dnm.model.printable import count_of
from dnm.record.summary import summarize


def run(
    config: ConfigOption,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; write nothing anywhere.")
    ] = False,
    log_console: Annotated[bool, typer.Option("--log-console", help="Log to stderr too.")] = False,
    output: OutputOption = "text",
) -> int:
    """Make one pass: look, decide, do a little, record."""
    if dry_run:
        return plan(config, output)
    result = pass_once(config, log_console)
    if output == "text":
        print_run(result, config.events_zone)
    else:
        print_document(run_document(result), output)
    return result.exit_code


def pass_once(config: Config, log_console: bool) -> Pass:
    """Makes one pass as the verb `run` does; returns it."""
    from dnm.run import runner  # it takes longer to load than the help

    is_console = log_console or is_console_log_asked(os.environ)
    set_up_logging(is_console)
    signals = StopSignals(config.shutdown_grace)
    with closing(signals), shown_at_work("running", is_quiet=is_console):
        result = runner.run_pass(config, os.environ, lambda: signals.came, at_once=signals.at_once)
    log_told(result.outcome.told if result.outcome else ())
    log_findings(result)
    return result


def answer_and_run(config: Config, lines: Sequence[str], output: str) -> NoReturn:
    """Prints what a verb has to say, makes the run that acts on it, and says what came of it, with
    what its orders wait for; ends with the run's exit code."""
    said = tuple(operations)  # the run has its own
    if output == "text":
        print_answer(lines, output)
    result = pass_once(config, False)
    if output == "text":
        print_run(result, config.events_zone)
        registry = result.outcome.registry if result.outcome else result.plan.registry
        named = {operation.object for operation in said}
        orders = [order for order in registry.orders if order.id in named]
        for line in order_lines(orders, registry):
            print_line(line)
    else:
        print_answer(lines, output, run=run_document(result))
    raise typer.Exit(result.exit_code)


def print_run(result: Pass, zone: str = "UTC") -> None:
    """Prints what the run did in one line, with notes and errors below it. Without a terminal, as
    in cron, it prints only news: nothing if the run did nothing and no error is new."""
    outcome = result.outcome
    actions = outcome.actions if outcome else ()
    errors = [*result.plan.errors, *(outcome.errors if outcome else ())]
    shown, notes = errors, result.plan.notes
    if outcome is not None and not sys.stdout.isatty():
        shown, notes = list(outcome.said), result.plan.news
    over = (*outcome.over, *outcome.notes) if outcome else ()
    if not (actions or shown or over or sys.stdout.isatty()):
        return
    if result.plan.pause and sys.stdout.isatty():
        print_pause(result.plan.pause, zone)
    if actions or sys.stdout.isatty():
        print_line(_describe(result))
    for note in (*notes, *over):
        print_line(f"note: {note}")
    for error in shown:
        print_line(("error: ", "error"), error, to=sys.stderr)


def _describe(result: Pass) -> str:
    """Returns what a run did, as its lines of history tell it; or how many nodes are lent."""
    if parts := summarize(result.outcome.told) if result.outcome else ():
        return "; ".join(parts)
    if result.outcome and result.outcome.actions:
        return f"{count_of(len(result.outcome.actions), 'action')}, which the log names"
    registry = result.outcome.registry if result.outcome else result.plan.registry
    coming = sum(request.count for request in registry.requests if not request.is_given_up)
    lent = f"{count_of(len(registry.nodes), 'node')} lent"
    return f"nothing done; {lent}" + (f", {coming} coming" if coming else "")


# --- how it ends before its end --------------------------------------------------------------

_LOOK_EVERY = 0.1  # seconds, from the end of a signal's grace on


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
            # Not by print: the signal may have come in the middle of a line to the same stream.
            with suppress(OSError):
                stderr = FileIO(2, "wb", closefd=False)
                stderr.write(b"finishing the step under way; Ctrl-C again leaves it\n")

    def _end_wait(self, number: int, frame: object) -> None:
        if waits_too_long():
            raise StoppedError(f"a signal: {self._grace:g} s of grace were over")

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
