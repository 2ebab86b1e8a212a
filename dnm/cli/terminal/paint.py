"""What rich draws at a terminal: lines in their colours, folded, and the progress of a command."""

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


class Screen(Console):
    """A console that draws text as it is."""

    def __init__(self, file: TextIO) -> None:
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "")
        super().__init__(
            file=file, width=width_of(file), height=25, markup=False, emoji=False,
            highlight=False, color_system=None if is_plain else "auto",
        )  # fmt: skip


def paint(lines: Iterable[Line], file: TextIO) -> None:
    """Draws lines. rich alone has no hanging indent, and cuts a line that is wider than it."""
    console, left = Screen(file), iter(lines)
    while some := list(islice(left, _AT_ONCE)):
        pieces = (piece for line in some for piece in _folded(line, console))
        console.print(Text("\n").join(pieces), no_wrap=True, overflow="ignore", crop=False)


def _folded(line: Line, console: Console) -> Iterator[Text]:
    before, whole = _text(line.before), _text(line.parts)
    if line.length <= max(console.width - line.begin, 0):
        yield before + whole
        return
    room = max(console.width - line.begin - line.hang, LEAST_LAST // 2)
    for piece in whole.wrap(console, room):
        piece.rstrip()
        yield before + piece
        before = Text(" " * (line.begin + line.hang))


def _text(runs: Iterable[Run]) -> Text:
    return Text.assemble(*((text, STYLES[meaning] or "") for text, meaning in runs))


@contextmanager
def progress(what: str, is_known: bool = True) -> Iterator[Callable[[float], None]]:
    """Yields a function that takes how much is done, from 0 to 1. A terminal that can draw shows on
    stderr the time that is left; unless `is_known`, the time that the work has taken."""
    console = Screen(sys.stderr)
    if console.color_system is None:  # a pipe: rich 13 prints an empty line there
        yield lambda done: None
        return
    styles: Mapping[str, Meaning] = {"bar.complete": "ok", "bar.back": "muted",
                                     "progress.remaining": "", "progress.elapsed": ""}  # fmt: skip
    console.push_theme(Theme({name: STYLES[of] or "" for name, of in styles.items()}))
    columns: tuple[ProgressColumn, ...] = (TextColumn("for"), TimeElapsedColumn())
    if is_known:
        columns = (BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    bar = Progress(
        TextColumn(what), *columns, console=console, transient=True, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip
    with bar:
        task = bar.add_task(what, total=1.0)
        yield lambda done: bar.update(task, completed=min(done, 1.0))
