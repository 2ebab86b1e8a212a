"""The `dnm` app. This is the only place that catches DnmError."""

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

_ABOUT = "Lends idle Slurm nodes to Kubernetes when a YuniKorn queue runs out of room."


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
    """Takes the options before the command."""


app = make_app(
    _ABOUT, TABLE, name="dnm", callback=options, add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def main() -> None:
    """The `dnm` command: every foreseen failure is a sentence and an exit code."""
    try:
        app()
    except DnmError as error:
        if error.exit_code is not ExitCode.LOCKED or sys.stderr.isatty():
            # cron mails what is printed, and a long conversion locks out many runs.
            said = "\n".join(map(printable, str(error).split("\n")))  # it may name an argument
            print(f"dnm: {said}", file=sys.stderr)
            if shortage := describe_shortage(error):
                print(f"dnm: {shortage}", file=sys.stderr)
        if "logging" in sys.modules:
            logger = sys.modules["logging"].getLogger("dnm")
            if logger.handlers:  # set up by `run` alone; without any, stderr would have it twice
                logger.error("error=%r", str(error))
        sys.exit(error.exit_code)
