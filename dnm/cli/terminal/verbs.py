"""The command line around the verbs: as a group whose help shows them by what they are for, where a
mistyped one gets a guess, and the configuration that they go by."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from dnm.model.config import Config

LOOK, ACT, BY_HAND, SET_UP = "Look", "Act", "By hand", "Set up"
_PARTS = (LOOK, ACT, BY_HAND, SET_UP)
_MANY = 10  # verbs, which nobody reads in one line
_LONG, _SHORT = "--config", "-c"


def verb_in(words: Sequence[str]) -> str:
    """Returns the verb of a command line, behind the options that may stand before it; empty where
    another option comes first, or there is none."""
    rest = iter(words)
    for word in rest:
        if word in (_LONG, _SHORT):
            next(rest, None)
        elif not word.startswith((f"{_LONG}=", _SHORT)):
            return word
    return ""


class Verbs(TyperGroup):
    """A group whose verbs are guessed with care."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the verb; raises a usage error that guesses, or names those there are."""
        word = args[0] if args else ""
        if word and not word.startswith("-") and self.get_command(ctx, word) is None:
            ctx.fail(f"there is no verb {word!r}{self._hint(ctx, word)}")
        return super().resolve_command(ctx, args)

    def _hint(self, ctx: Any, word: str) -> str:
        from dnm.config.values import suggest

        verbs = self.list_commands(ctx)
        # Who undoes must not be told to do: `unpause` is nothing like `pause`.
        undoes = [verb for verb in verbs if verb.startswith("un")]
        hint = suggest(word, undoes if word.startswith("un") else verbs)
        if hint or len(verbs) < _MANY:
            return hint or f"; there are {', '.join(verbs)}"
        return f"; `{ctx.command_path} --help` shows those there are"

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the verbs, by part where they have parts."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        parts: dict[str, list[tuple[str, str]]] = {part: [] for part in _PARTS}
        for name, verb in found:
            if verb is not None and not verb.hidden:
                part = getattr(verb, "rich_help_panel", None)
                title = part if part in parts else "Commands"
                parts.setdefault(title, []).append((name, verb.get_short_help_str(200)))
        for title, rows in parts.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Verb(TyperCommand):
    """A verb, which returns its exit code, or what it has to say in the form that is asked for."""

    def invoke(self, ctx: Any) -> None:
        """Plays it, prints what it says, and ends with its exit code."""
        said = super().invoke(ctx)
        if isinstance(said, int):
            ctx.exit(said)
        if said is not None:
            from dnm.cli.terminal.output import print_answer

            print_answer([said] if isinstance(said, str) else said, ctx.params["output"])


def sub_app(help_text: str) -> typer.Typer:
    """Returns a group of verbs, which shows its help where none is named."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        cls=Verbs,
        suggest_commands=False,
    )


def named_before(ctx: typer.Context, path: Path | None) -> Path | None:
    """Returns that of the verb, else what stands before it: `dnm --config FILE plan`."""
    return path or ctx.find_root().params.get("config_path")


def config_named_before(ctx: typer.Context, path: Path | None) -> object:
    """Returns the configuration that is named there. Raises ConfigError."""
    return load_named_config(named_before(ctx, path))


def load_named_config(path: Path | None) -> Config:
    """Returns the configuration of the option, of $DNM_CONFIG or of /etc. Raises ConfigError."""
    from dnm.config.load import load_config

    return load_config(path, os.environ)


def is_console_log_asked(environ: Mapping[str, str]) -> bool:
    """Whether $DNM_LOG_CONSOLE asks for the log on stderr, as --log-console does."""
    return environ.get("DNM_LOG_CONSOLE", "").strip().lower() in ("1", "true", "yes", "on")
