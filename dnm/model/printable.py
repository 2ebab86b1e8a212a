"""Printable text for people, and the meanings by which parts of it are coloured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

import msgspec

Meaning = Literal["", "ok", "warning", "error", "muted", "heading"]
Part = str | tuple[str, Meaning]  # of a line
Meanings = Mapping[str, Mapping[str, Meaning]]  # column -> content of a cell -> its meaning


def printable(text: str, longest: int | None = None) -> str:
    """Returns text from an administrator, a cluster or a program as one line that is safe to print.
    `?` replaces each character that is not printable, and `…` ends a text that was cut."""
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def json_text(document: object, indent: int = 0) -> str:
    """Returns a document as JSON. Characters that a terminal cannot show are escaped, so that a
    name in it cannot start a new line or change the order of the text."""
    content = msgspec.json.encode(document)
    text = (msgspec.json.format(content, indent=indent) if indent else content).decode()
    if text.replace("\n", "").isprintable():
        return text
    import json  # it takes milliseconds, which other documents do not need

    return "".join(
        character if character == "\n" or character.isprintable() else json.dumps(character)[1:-1]
        for character in text
    )


def count_of(number: int, thing: str) -> str:
    """Returns the number with its noun: `1 action`, `2 actions`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def duration(span: timedelta) -> str:
    """Returns a duration as text in at most two units: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds < 120:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"
