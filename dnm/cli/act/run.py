"""`dnm run`, the same run for other commands with `--now`, and how a signal ends a run."""

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
from dnm.cli.terminal.commands import show_activity
from dnm.cli.terminal.logs import log_findings, log_history, operations, set_up_logging
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
        bool, typer.Option("--dry-run", help="Show the plan; change nothing.")
    ] = False,
    log_console: Annotated[bool, typer.Option("--log-console", help="Log to stderr too.")] = False,
    output: OutputOption = "text",
) -> int:
    """Read both clusters once, lend and return nodes, and exit."""
    if dry_run:
        return plan(config, output)
    result = pass_once(config, log_console)
    if output == "text":
        print_run(result, config.events_zone)
    else:
        print_document(run_document(result), output)
    return result.exit_code


def pass_once(config: Config, log_console: bool) -> Pass:
    """Makes one run as `dnm run` does, with its log and signals. Returns its plan and result."""
    from dnm.run import runner  # it takes longer to load than the help

    is_console = log_console or is_console_log_asked(os.environ)
    set_up_logging(is_console)
    signals = StopSignals(config.shutdown_grace)
    with closing(signals), show_activity("running", is_quiet=is_console):
        result = runner.run_pass(config, os.environ, lambda: signals.came, at_once=signals.at_once)
    log_history(result.outcome.history if result.outcome else ())
    log_findings(result)
    return result


def answer_and_run(config: Config, lines: Sequence[str], output: str) -> NoReturn:
    """Prints the answer of a command with `--now`, makes a run, and prints its result and the
    orders that the command changed. Ends the process with the run's exit code."""
    previous = tuple(operations)  # of the command; the run adds its own
    if output == "text":
        print_answer(lines, output)
    result = pass_once(config, False)
    if output == "text":
        print_run(result, config.events_zone)
        registry = result.outcome.registry if result.outcome else result.plan.registry
        named = {operation.object for operation in previous}
        orders = [order for order in registry.orders if order.id in named]
        for line in order_lines(orders, registry):
            print_line(line)
    else:
        print_answer(lines, output, run=run_document(result))
    raise typer.Exit(result.exit_code)


def print_run(result: Pass, zone: str = "UTC") -> None:
    """Prints the actions of a run in one line, with notes and errors below it. Without a terminal,
    as in cron, prints only notes and errors that are new, and nothing if the run did nothing."""
    outcome = result.outcome
    actions = outcome.actions if outcome else ()
    errors = [*result.plan.errors, *(outcome.errors if outcome else ())]
    shown, notes = errors, result.plan.notes
    if outcome is not None and not sys.stdout.isatty():
        shown, notes = list(outcome.new_errors), result.plan.news
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
    """Returns a text with the run's actions or, if it had none, with the number of lent nodes."""
    if parts := summarize(result.outcome.history) if result.outcome else ():
        return "; ".join(parts)
    if result.outcome and result.outcome.actions:
        return f"{count_of(len(result.outcome.actions), 'action')}; the log has the details"
    registry = result.outcome.registry if result.outcome else result.plan.registry
    coming = sum(request.count for request in registry.requests if not request.is_abandoned)
    lent = f"{count_of(len(registry.nodes), 'node')} lent"
    return f"nothing done; {lent}" + (f", {coming} coming" if coming else "")


# --- signals ---------------------------------------------------------------------------------

_LOOK_EVERY = 0.1  # seconds between checks, once a signal's grace is over


class StopSignals:
    """The handlers of TERM and INT. After the first signal, the current action has a grace period
    to end. When that is over, dnm ends every wait. A second INT ends the run at once."""

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
            # print is not safe: the signal may interrupt a line that is written to this stream.
            with suppress(OSError):
                stderr = FileIO(2, "wb", closefd=False)
                stderr.write(b"finishing the current action; press Ctrl-C again to abort it\n")

    def _end_wait(self, number: int, frame: object) -> None:
        if waits_too_long():
            raise StoppedError(f"ended by a signal after a grace period of {self._grace:g} s")

    def close(self) -> None:
        """Stops the timer that ends waits after the grace period."""
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # the interpreter would restore it at exit
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Lets a signal end the run at once within this context. In it the run only reads and
        plans, so no action is left half done. Raises StoppedError."""
        self._is_at_once = True
        try:
            if self.came:
                self._leave()
            yield
        finally:
            self._is_at_once = False

    def _leave(self) -> NoReturn:
        self._is_at_once = False  # the clean-up after the error is not interrupted
        raise StoppedError("ended by a signal before any action: the next run observes again")
