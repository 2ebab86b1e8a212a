"""Lines at a terminal, drawn by rich: how each meaning looks, and where a line is broken."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from textwrap import wrap
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from dnm.cli.lines import LEAST_LAST, Line, Run, width_of
from dnm.model.printable import Meaning

# Each is told from black and from white with a contrast of about 4.
STYLES: Mapping[Meaning, Style | None] = {
    "": None,
    "ok": Style(color="color(28)"),
    "warning": Style(color="color(166)"),
    "error": Style(color="color(160)", bold=True),
    "muted": Style(color="color(242)"),
    "heading": Style(bold=True),
}
_AT_ONCE = 500  # lines drawn together; a year of history has a hundred thousand
_END: Run = ("\n", "")


class Screen(Console):
    """A console that draws text as it is."""

    def __init__(self, file: TextIO) -> None:
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "")
        super().__init__(
            file=file, width=width_of(file), height=25, markup=False, emoji=False,
            highlight=False, color_system=None if is_plain else "auto",
        )  # fmt: skip

    def on_broken_pipe(self) -> None:
        """Lets `reader_may_leave` have it: rich would end with exit code 1."""
        raise


def paint(lines: Iterable[Line], file: TextIO) -> None:
    """Draws them as they come. They are as wide as they may be: none is measured again."""
    console, left = Screen(file), iter(lines)
    while some := list(islice(left, _AT_ONCE)):
        console.print(_Lines(some), end="", crop=False)


class _Lines:
    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from _segments(line, console, options.max_width)


def _segments(line: Line, console: Console, width: int) -> Iterator[Segment]:
    before, room = line.before, width - line.begin
    if line.length <= max(room, 0):
        yield from _joined(*before, *line.parts, _END)
        return
    for piece in _broken(line, console, max(room - line.hang, LEAST_LAST // 2)):
        yield from _joined(*before)
        yield from piece
        yield Segment.line()
        before = ((" " * (line.begin + line.hang), ""),)


def _joined(*runs: Run) -> Iterator[Segment]:
    """What has no style in as few segments as there can be: each of them costs."""
    plain = ""
    for text, meaning in runs:
        if not meaning:
            plain += text
            continue
        if plain:
            yield Segment(plain)
            plain = ""
        yield Segment(text, STYLES[meaning])
    if plain:
        yield Segment(plain)


def _broken(line: Line, console: Console, room: int) -> Iterator[Iterable[Segment]]:
    text, meaning = line.parts[0]
    if len(line.parts) == 1 and text.isascii():  # a year of history has tens of thousands
        for part in wrap(text, room, break_on_hyphens=False):
            yield (Segment(part, STYLES[meaning]),)
        return
    whole = Text.assemble(*((text, STYLES[meaning] or "") for text, meaning in line.parts))
    for piece in whole.wrap(console, room):
        piece.rstrip()
        yield piece.render(console, end="")
