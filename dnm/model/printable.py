"""Text for people: safe where it came from outside, and set in columns.

Columns are set here and not by rich, whose tables would be most of what `dnm status` costs: 0.3 s
for a thousand nodes.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

UNFOLDED = 1_000_000  # columns of what is no terminal
_GAP = "  "
_LEAST_LAST = 20  # columns that the last cell needs to be worth wrapping into


def printable(text: str, longest: int | None = None) -> str:
    """Makes one line of what a person, a cluster or a program wrote, safe for a log or a terminal:
    `?` for each character that can't be shown, and `…` at the end of at most `longest` characters.
    """
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def some_of(texts: Iterable[str], most: int = 3) -> str:
    """Returns the first of them, and how many more there are."""
    found = list(texts)
    more = [f"and {len(found) - most} more"] if len(found) > most else []
    return "; ".join((*found[:most], *more))


def count_of(number: int, thing: str) -> str:
    """Returns `1 action`, `2 actions`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def duration(span: timedelta) -> str:
    """Returns a span in two units at most: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds < 120:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def terminal_width() -> int:
    """Of the terminal, or what COLUMNS says. A pipe is not folded: its lines are for grep."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return UNFOLDED


def bold(text: str) -> str:
    """Returns a headline: bold on a terminal that can and may (https://no-color.org)."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "")
    return text if is_plain or not sys.stdout.isatty() else f"\033[1m{text}\033[0m"


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """A table of printable text, its last column wrapped to the width; where that is narrow, a
    block a row."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(header, *rows, strict=True)]
    left = width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    if left < min(_LEAST_LAST, widths[-1]):
        yield from _blocks(header, rows, width)
        return
    for row in (header, *rows):
        lines = textwrap.wrap(row[-1], left, break_on_hyphens=False) or [""]
        cells = [*(f"{cell:<{w}}" for cell, w in zip(row[:-1], widths, strict=False)), lines[0]]
        yield _GAP.join(cells).rstrip()
        for line in lines[1:]:
            yield " " * (width - left) + line


def _blocks(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    indent = "  "
    for row in rows:
        if row[0]:  # else it goes on with the thing above
            yield row[0]
            indent = " " * (len(row[0]) - len(row[0].lstrip()) + 2)
        for name, cell in zip(header[1:], row[1:], strict=True):
            if cell:
                yield from wrapped(f"{name}: {cell}", width, indent)


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Printable lines no wider than `width`, continued with a deeper indent."""
    width, text = max(width, 20), printable(text)
    words = text.split()
    if not words:
        return [indent]
    if max(map(len, words)) > width - len(indent) - 2:
        return textwrap.wrap(
            text,
            width,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,  # names have them, and are copied
        )
    # A year of history is wrapped, and textwrap would take ten times as long.
    whole = indent + " ".join(words)
    if len(whole) <= width:
        return [whole]
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}  {word}")
    return lines
