"""Verbs, options and exit codes; a few lines a verb. The only place that catches DnmError.

Every verb imports what it needs itself: `dnm status` must not load a Kubernetes client.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from importlib.util import find_spec
from typing import Annotated

import typer

from dnm.cli import act_app, by_hand_app, look_app
from dnm.cli.event_app import event_app
from dnm.cli.load_app import load_app
from dnm.cli.node_types_app import node_types_app
from dnm.cli.one_run import make_run
from dnm.cli.options import ConfigOption, ConsoleOption, DnmConfigOption, Output, OutputOption
from dnm.cli.queues_app import queues_app
from dnm.cli.state_app import state_app
from dnm.cli.verbs import ACT, BY_HAND, LOOK, SET_UP, Verbs, load_named_config, sub_app, verb_in
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
app.add_typer(queues_app, name="queues", rich_help_panel=SET_UP)
app.add_typer(node_types_app, name="node-types", rich_help_panel=SET_UP)
app.add_typer(load_app, name="test-load", rich_help_panel=SET_UP)
app.add_typer(state_app, name="state", rich_help_panel=SET_UP)
app.add_typer(event_app, name="event", rich_help_panel=BY_HAND)


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


@app.command(rich_help_panel=ACT)
def run(
    config_path: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; write nothing anywhere.")
    ] = False,
    log_console: ConsoleOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Make one pass: look, decide, do a little, record."""
    if dry_run:
        look_app.plan(config_path, output)
    make_run(load_named_config(config_path), output, log_console)


look_app.add_verbs(app)
act_app.add_verbs(app)
by_hand_app.add_verbs(app)


def _offer_wings() -> None:
    """Adds the verbs of the wings that are here; a production host has no lab."""
    if find_spec("dnm.simulate"):
        app.command(rich_help_panel=LOOK)(look_app.simulate)
    if find_spec("dnm.converters"):
        app.command(rich_help_panel=SET_UP)(act_app.convert_test)
    if find_spec("dnm.lab"):
        from dnm.lab import verbs

        sandbox = sub_app(verbs.SANDBOX_HELP)
        verbs.add_to_sandbox(sandbox)
        app.add_typer(sandbox, name="sandbox", rich_help_panel=SET_UP)
        app.command("demo", rich_help_panel=SET_UP)(verbs.demo)


_offer_wings()


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
        if "logging" in sys.modules:
            logger = sys.modules["logging"].getLogger("dnm")
            if logger.handlers:  # set up by `run` alone; without any, stderr would have it twice
                logger.error("error=%r", str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
