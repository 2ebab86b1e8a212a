"""The verbs as a group: one that is not known gets a guess only where the guess changes nothing."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

# Whoever mistypes one of these wants to act: another word must not be put into his mouth.
_LOOKING = ("plan", "status", "check", "nodes", "history", "explain", "report", "list", "show")


class Verbs(TyperGroup):
    """A group whose verbs are guessed with care."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the verb; raises a usage error that names those there are."""
        word = args[0] if args else ""
        if word and not word.startswith("-") and self.get_command(ctx, word) is None:
            ctx.fail(f"there is no verb {word!r}{self._hint(ctx, word)}")
        return super().resolve_command(ctx, args)

    def _hint(self, ctx: Any, word: str) -> str:
        from dnm.config.values import suggest

        verbs = self.list_commands(ctx)
        hint = suggest(word, [verb for verb in verbs if verb in _LOOKING])
        return hint or f"; there are {', '.join(verbs)}"


def sub_app(help_text: str) -> typer.Typer:
    """Returns a group of verbs, which shows its help where none is named."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        cls=Verbs,
        suggest_commands=False,
    )
