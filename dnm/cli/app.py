"""Verbs, options and exit codes; a few lines a verb. The only place that catches DnmError.

Every verb imports what it needs itself: `dnm status` must not load a Kubernetes client.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from typing import Annotated

import typer

from dnm.cli import look_app as look
from dnm.cli.groups import add_verbs
from dnm.cli.look.one_run import make_run
from dnm.cli.terminal.options import ConfigOption, DnmConfigOption, OutputOption
from dnm.cli.terminal.verbs import ACT, Verb, Verbs, verb_in
from dnm.host.shortage import describe_shortage
from dnm.model.errors import DnmError, ExitCode
from dnm.model.printable import printable

app = typer.Typer(
    name="dnm",
    help="Lends idle Slurm nodes to Kubernetes when a YuniKorn queue runs out of room.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Verbs,
    suggest_commands=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"dnm {version('dnm')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    config_path: DnmConfigOption = None,
) -> None:
    """Lends idle Slurm nodes to Kubernetes when a YuniKorn queue runs out of room."""


@app.command(rich_help_panel=ACT, cls=Verb)
def run(
    config: ConfigOption,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; write nothing anywhere.")
    ] = False,
    log_console: Annotated[bool, typer.Option("--log-console", help="Log to stderr too.")] = False,
    output: OutputOption = "text",
) -> int:
    """Make one pass: look, decide, do a little, record."""
    return look.plan(config, output) if dry_run else make_run(config, output, log_console)


add_verbs(app)


def named_app(word: str) -> typer.Typer:
    """Returns the app with no verb but the one that is named: typer would build them all, 15 ms.
    All of them where none is named by its whole name, and for the shell's completion."""
    verbs = [
        one
        for one in app.registered_commands
        if one.callback and word == (one.name or one.callback.__name__.replace("_", "-"))
    ]
    groups = [one for one in app.registered_groups if one.name == word]
    if not (verbs or groups) or any(name.endswith("_COMPLETE") for name in os.environ):
        return app
    chosen = copy(app)
    chosen.registered_commands, chosen.registered_groups = verbs, groups
    return chosen


def main() -> None:
    """The `dnm` command: every foreseen failure is a sentence and an exit code."""
    try:
        named_app(verb_in(sys.argv[1:]))()
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
