"""The `dnm` app, which turns each DnmError into a message and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dnm.cli.table import TABLE
from dnm.cli.terminal.commands import make_app
from dnm.cli.terminal.options import DnmConfigOption
from dnm.host.shortage import describe_shortage
from dnm.model.errors import DnmError, ExitCode
from dnm.model.printable import printable

_ABOUT = "Lend idle Slurm nodes to Kubernetes when a queue there runs out of capacity."


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"dnm {version('dnm')}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    config_path: DnmConfigOption = None,
) -> None:
    """Accepts the options that precede the command, such as `dnm --config FILE plan`."""


app = make_app(
    _ABOUT, TABLE, name="dnm", callback=options, add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def main() -> None:
    """Runs the `dnm` command. If it raises DnmError, prints its message and sets the exit code."""
    try:
        app()
    except DnmError as error:
        logger = sys.modules["logging"].getLogger("dnm") if "logging" in sys.modules else None
        is_of_run = logger is not None and logger.handlers  # only `run` sets them up
        if not (is_of_run and error.exit_code is ExitCode.LOCKED) or sys.stderr.isatty():
            # cron mails the output, and a long conversion locks out many runs.
            text = "\n".join(map(printable, str(error).split("\n")))  # it may contain an argument
            print(f"dnm: {text}", file=sys.stderr)
            if shortage := describe_shortage(error):
                print(f"dnm: {shortage}", file=sys.stderr)
        if logger and logger.handlers:  # without one, stderr would get it twice
            logger.error("error=%r", str(error))
        sys.exit(error.exit_code)
