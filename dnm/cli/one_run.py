"""One pass as a command makes it: `dnm run`, and `--now` of the verbs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

import typer

from dnm.cli.options import Output

if TYPE_CHECKING:
    from dnm.model.config import Config


def make_run(config: Config, output: Output = Output.text, log_console: bool = False) -> NoReturn:
    """Makes it, logs and prints what came of it, and ends with its exit code."""
    from dnm.cli.logs import StopSignals, log_findings, log_told, set_up_logging

    set_up_logging(log_console or config.log_console or bool(os.environ.get("DNM_LOG_CONSOLE")))
    signals = StopSignals()
    from dnm.cli.output import print_json, reader_may_leave
    from dnm.cli.report import print_run, run_document
    from dnm.run.runner import run_pass

    result = run_pass(config, os.environ, lambda: signals.came)
    log_told(result.outcome.told if result.outcome else ())
    log_findings(result)
    if config.status_page and result.outcome and (result.outcome.told or result.outcome.actions):
        from dnm.cli.status_page import write_status_page

        write_status_page(config, result.outcome.registry)
    with reader_may_leave():
        if output is Output.json:
            print_json(run_document(result))
        else:
            print_run(result)
    raise typer.Exit(result.exit_code)
