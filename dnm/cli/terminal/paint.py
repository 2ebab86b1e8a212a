"""The output that rich draws on a terminal: folded lines in colour, and progress bars."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from dnm.cli.terminal.lines import LEAST_LAST, Line, Run, width_of
from dnm.model.printable import Meaning

# Each has a contrast of about 4 to black and to white.
STYLES: Mapping[Meaning, Style | None] = {
    "": None,
    "ok": Style(color="color(28)"),
    "warning": Style(color="color(166)"),
    "error": Style(color="color(160)", bold=True),
    "muted": Style(color="color(242)"),
    "heading": Style(bold=True),
}
_AT_ONCE = 500  # lines drawn together; a year of history has a hundred thousand


class Screen(Console):
    """A rich console that draws text literally, without rich's markup."""

    def __init__(self, file: TextIO) -> None:
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "")
        super().__init__(
            file=file, width=width_of(file), height=25, markup=False, emoji=False,
            highlight=False, color_system=None if is_plain else "auto",
        )  # fmt: skip


def paint(lines: Iterable[Line], file: TextIO) -> None:
    """Draws lines with a hanging indent. rich itself has none, and cuts lines that are too wide."""
    console, left = Screen(file), iter(lines)
    while some := list(islice(left, _AT_ONCE)):
        pieces = (piece for line in some for piece in _folded(line, console))
        console.print(Text("\n").join(pieces), no_wrap=True, overflow="ignore", crop=False)


def _folded(line: Line, console: Console) -> Iterator[Text]:
    before, text = _text(line.before), _text(line.parts)
    if line.length <= max(console.width - line.begin, 0):
        yield before + text
        return
    width = max(console.width - line.begin - line.hang, LEAST_LAST // 2)
    for piece in text.wrap(console, width):
        piece.rstrip()
        yield before + piece
        before = Text(" " * (line.begin + line.hang))


def _text(runs: Iterable[Run]) -> Text:
    return Text.assemble(*((text, STYLES[meaning] or "") for text, meaning in runs))


@contextmanager
def progress(title: str, is_measured: bool = True) -> Iterator[Callable[[float], None]]:
    """Yields a function to call with the fraction that is done, from 0 to 1. A terminal with
    colours shows the remaining time on stderr or, if not `is_measured`, the elapsed time."""
    console = Screen(sys.stderr)
    if console.color_system is None:  # a pipe: rich 13 prints an empty line there
        yield lambda done: None
        return
    styles: Mapping[str, Meaning] = {"bar.complete": "ok", "bar.back": "muted",
                                     "progress.remaining": "", "progress.elapsed": ""}  # fmt: skip
    console.push_theme(Theme({name: STYLES[of] or "" for name, of in styles.items()}))
    columns: tuple[ProgressColumn, ...] = (TextColumn("for"), TimeElapsedColumn())
    if is_measured:
        columns = (BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    bar = Progress(
        TextColumn(title), *columns, console=console, transient=True, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip
    with bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=min(done, 1.0))
