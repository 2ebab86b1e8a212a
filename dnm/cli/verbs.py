"""The verbs as a group: help shows them by what they are for, and a mistyped one gets a guess."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

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


def sub_app(help_text: str) -> typer.Typer:
    """Returns a group of verbs, which shows its help where none is named."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        cls=Verbs,
        suggest_commands=False,
    )
