"""One pass as a command makes it: `dnm run`, and `--now` of the verbs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import typer

from dnm.cli.options import Output, is_console_log_asked

if TYPE_CHECKING:
    from dnm.model.config import Config
    from dnm.model.plan import Pass


def make_run(config: Config, output: Output = Output.text, log_console: bool = False) -> NoReturn:
    """Makes it, logs and prints what came of it, and ends with its exit code."""
    result = _pass(config, log_console)
    from dnm.cli.output import print_document, reader_may_leave
    from dnm.cli.report import print_run, run_document

    with reader_may_leave():
        if output is Output.text:
            print_run(result)
        else:
            print_document(run_document(result), output)
    raise typer.Exit(result.exit_code)


def answer_and_run(config: Config, lines: Sequence[str], output: str) -> NoReturn:
    """Prints what a verb has to say, makes the run that acts on it, and says what came of it, with
    what its orders wait for; ends with the run's exit code."""
    from dnm.cli.logs import deeds
    from dnm.cli.output import print_answer, print_line, reader_may_leave
    from dnm.cli.report import order_lines, print_run, run_document

    said = tuple(deeds)  # the run has its own
    if output == Output.text:
        print_answer(lines, output)
    result = _pass(config, False)
    with reader_may_leave():
        if output == Output.text:
            print_run(result)
            registry = result.outcome.registry if result.outcome else result.plan.registry
            orders = [one for one in registry.orders if one.id in {deed.object for deed in said}]
            for line in order_lines(orders, registry):
                print_line(line)
        else:
            print_answer(lines, output, run=run_document(result))
    raise typer.Exit(result.exit_code)


def _pass(config: Config, log_console: bool) -> Pass:
    from dnm.cli.logs import StopSignals, log_findings, log_told, set_up_logging

    set_up_logging(log_console or is_console_log_asked(os.environ))
    signals = StopSignals(config.shutdown_grace)
    from dnm.run.runner import run_pass

    with closing(signals):
        result = run_pass(config, os.environ, lambda: signals.came, at_once=signals.at_once)
    log_told(result.outcome.told if result.outcome else ())
    log_findings(result)
    return result
