"""One pass as a command makes it: `dnm run`, and `--now` of the verbs."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING

from dnm.cli.stopping import StopSignals, reader_may_leave
from dnm.cli.verbs import is_console_log_asked
from dnm.model.printable import count_of

if TYPE_CHECKING:
    from dnm.model.config import Config
    from dnm.model.plan import Pass


def make_run(config: Config, output: str = "text", log_console: bool = False) -> int:
    """Makes it, logs and prints what came of it, and returns its exit code."""
    result = pass_once(config, log_console)
    with reader_may_leave():
        if output == "text":
            print_run(result, config.events_zone)
        else:
            from dnm.cli.output import print_document
            from dnm.cli.report import run_document

            print_document(run_document(result), output)
    return result.exit_code


def shown_at_work(
    what: str, config: Config | None, is_quiet: bool = False
) -> AbstractContextManager[None]:
    """Shows to a person at a terminal that it goes on, with the time that is left where it takes as
    long as the last run of `config`; to nobody else anything."""
    if is_quiet or not sys.stderr.isatty():
        return nullcontext()
    from dnm.cli.progress import working
    from dnm.run.recorded import read_last_run

    return working(what, read_last_run(config).took if config else None)


def pass_once(config: Config, log_console: bool) -> Pass:
    """Makes one pass as the verb `run` does; returns it."""
    from dnm.cli.logs import log_findings, log_told, set_up_logging

    is_console = log_console or is_console_log_asked(os.environ)
    set_up_logging(is_console)
    signals = StopSignals(config.shutdown_grace)
    from dnm.run.runner import run_pass

    with closing(signals), shown_at_work("running", config, is_quiet=is_console):
        result = run_pass(config, os.environ, lambda: signals.came, at_once=signals.at_once)
    log_told(result.outcome.told if result.outcome else ())
    log_findings(result)
    return result


def print_run(result: Pass, zone: str = "UTC") -> None:
    """Prints a line per action and a summary; nothing when nothing changed and nobody watches. Of
    errors it prints those that are news, or all of them where somebody watches."""
    outcome = result.outcome
    actions = outcome.actions if outcome else ()
    errors = [*result.plan.errors, *(outcome.errors if outcome else ())]
    shown, notes = errors, result.plan.notes
    if outcome is not None and not sys.stdout.isatty():
        shown, notes = list(outcome.said), result.plan.news
    over = (*outcome.over, *outcome.notes) if outcome else ()
    if not (actions or shown or over or sys.stdout.isatty()):
        return
    from dnm.cli.output import print_line

    if result.plan.pause and sys.stdout.isatty():
        from dnm.cli.status_view import print_pause

        print_pause(result.plan.pause, zone)
    for line in actions:
        print_line(line)
    for note in (*notes, *over):
        print_line(f"note: {note}")
    for error in shown:
        print_line(("error: ", "error"), error, to=sys.stderr)
    if actions or sys.stdout.isatty():
        registry = outcome.registry if outcome else result.plan.registry
        counts = [(len(actions), "action"), (len(errors), "error"),
                  (len(registry.nodes), "lent node")]  # fmt: skip
        coming = sum(request.count for request in registry.requests if not request.is_given_up)
        parts = [*(count_of(*one) for one in counts), *([f"{coming} coming"] if coming else [])]
        print_line(", ".join(parts))
