"""The groups of commands, which import a command's module only if the user names the command, and
the loading of the configuration for a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from dnm.model.config import Config

LOOK, ACT, MANUAL, SET_UP = "Look", "Act", "Manual changes", "Set up"
_MANY = 10  # commands, which are too many to list in one line


class Entry(NamedTuple):
    """A command in the table of commands, or a group of commands if `target` is empty. `target` is
    `module:function` below dnm. The command exists only if the package `needs` is installed."""

    panel: str
    text: str
    target: str = ""
    needs: str = ""


class Commands(TyperGroup):
    """A group of the commands in `table`, which replaces typer's group. typer's group imports all
    commands and builds their options before it reads the first word: 0.7 s of CPU. It also shows
    panels only in rich's boxes, and suggests `pause` for `unpause`."""

    table: Mapping[str, Entry] = {}
    prefix = ""
    is_listing = False  # for shell completion, which needs only names and texts

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Completes the names of commands without importing any."""
        self.is_listing = True
        return super().shell_complete(ctx, incomplete)

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of the commands in the order of the table."""
        return list(self._entries())

    def _entries(self) -> dict[str, Entry]:
        """Returns the installed commands of this group."""
        return {
            rest: entry
            for name, entry in self.table.items()
            if (rest := name.removeprefix(self.prefix)) and name.startswith(self.prefix)
            if " " not in rest and (not entry.needs or find_spec(entry.needs))
        }

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Imports and returns the command with this name, or returns None if there is none."""
        entry = self.table.get(f"{self.prefix}{cmd_name}")
        if entry is None or (entry.needs and not find_spec(entry.needs)):
            return None
        if self.is_listing:
            return TyperCommand(cmd_name, help=entry.text, rich_markup_mode=None)
        if not entry.target:
            return get_command(make_app(entry.text, self.table, f"{self.prefix}{cmd_name} "))
        module, _, function = entry.target.partition(":")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(cmd_name, cls=Verb)(getattr(import_module(f"dnm.{module}"), function))
        return get_command(alone)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command. Raises a usage error that suggests a command or lists all."""
        word = args[0] if args else ""
        if word and not word.startswith("-") and word not in self._entries():
            ctx.fail(f"there is no command {word!r}{self._hint(ctx, word)}")
        return super().resolve_command(ctx, args)

    def _hint(self, ctx: Any, word: str) -> str:
        from dnm.config.values import suggest

        names = self.list_commands(ctx)
        undoes = [name for name in names if name.startswith("un")]
        hint = suggest(word, undoes if word.startswith("un") else names)
        if hint or len(names) < _MANY:
            return hint or f"; commands: {', '.join(names)}"
        return f"; `{ctx.command_path} --help` lists the commands"

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of commands for the help, grouped by panel if there are panels."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self._entries().items():
            panels.setdefault(entry.panel or "Commands", []).append((name, entry.text))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


class Verb(TyperCommand):
    """A command. Its function returns the exit code, or an answer that is printed as requested."""

    def invoke(self, ctx: Any) -> None:
        """Calls the command's function, prints its answer, and ends with its exit code."""
        answer = super().invoke(ctx)
        if isinstance(answer, int):
            ctx.exit(answer)
        if answer is not None:
            from dnm.cli.terminal.output import print_answer

            print_answer([answer] if isinstance(answer, str) else answer, ctx.params["output"])


def make_app(text: str, table: Mapping[str, Entry], prefix: str = "", **more: Any) -> typer.Typer:
    """Returns an app of the commands that begin with `prefix`. Without a command it prints help."""
    group = type("Group", (Commands,), {"table": table, "prefix": prefix})
    more = {"callback": lambda: None, "add_completion": False, **more}
    return typer.Typer(
        help=text, cls=group, no_args_is_help=True, rich_markup_mode=None,
        suggest_commands=False, pretty_exceptions_enable=False, **more,
    )  # fmt: skip


def named_before(ctx: typer.Context, path: Path | None) -> Path | None:
    """Returns the path in `--config`, which the user can write after or before the command."""
    return path or ctx.find_root().params.get("config_path")


def config_named_before(ctx: typer.Context, path: Path | None) -> object:
    """Loads the configuration of --config, which may precede the command. Raises ConfigError."""
    return load_named_config(named_before(ctx, path))


def load_named_config(path: Path | None) -> Config:
    """Loads the configuration from `path`, else $DNM_CONFIG, else /etc. Raises ConfigError."""
    from dnm.config.load import load_config

    return load_config(path, os.environ)


def show_activity(title: str, *, is_quiet: bool = False) -> AbstractContextManager[object]:
    """Shows on a terminal that the command is working, and for how long."""
    if is_quiet or not sys.stderr.isatty():
        return nullcontext()
    from dnm.cli.terminal.paint import progress

    return progress(title, is_measured=False)
