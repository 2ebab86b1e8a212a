"""What rich draws at a terminal: lines, how each meaning looks and where one is broken, and how far
a verb is that takes its time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice
from textwrap import wrap
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from dnm.cli.terminal.lines import LEAST_LAST, Line, Run, width_of
from dnm.model.printable import Meaning

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


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


_LOOK_EVERY = 0.25  # seconds
_NEARLY = 0.99  # done, and it takes longer than the last time
_QUIET = 2.0  # seconds in which nobody asks how long it takes


@contextmanager
def progress(what: str, is_known: bool = True) -> Iterator[Callable[[float], None]]:
    """Yields what is told how much of it is done, from 0 to 1. Whatever takes longer than a moment
    is shown with the time that is left, else (`is_known`) with the time that it has taken, on
    stderr where that is a terminal that can draw."""
    console, began = Screen(sys.stderr), monotonic()
    if console.color_system is None:
        yield lambda done: None
        return
    with ExitStack() as ends:
        bars: list[tuple[Progress, TaskID]] = []

        def tell(done: float) -> None:
            if monotonic() - began <= _QUIET:
                return
            if not bars:
                bars.append(_start_bar(console, what, is_known, began))
                ends.callback(bars[0][0].stop)
            bar, task = bars[0]
            bar.update(task, completed=min(done, 1.0), refresh=True)

        yield tell


def _start_bar(
    console: Console, what: str, is_known: bool, began: float
) -> tuple[Progress, TaskID]:
    from rich.progress import (  # which most verbs never need
        BarColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.theme import Theme

    parts: Mapping[str, Meaning] = {
        "bar.complete": "ok", "bar.back": "muted", "progress.remaining": "",
        "progress.elapsed": "",
    }  # fmt: skip
    console.push_theme(Theme({name: STYLES[of] or "" for name, of in parts.items()}))
    columns: Sequence[ProgressColumn] = (TextColumn("for"), TimeElapsedColumn())
    if is_known:
        columns = (BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    bar = Progress(
        TextColumn(what), *columns, console=console, transient=True, auto_refresh=False,
        redirect_stdout=False, redirect_stderr=False, get_time=monotonic,
    )  # fmt: skip
    task = bar.add_task(what, total=1.0)
    bar.tasks[0].start_time = began
    bar.start()
    return bar, task


@contextmanager
def working(what: str, usual: timedelta | None) -> Iterator[None]:
    """The same for work that does not say how far it is: `usual` is how long it took last, and says
    how much is left; None: nobody knows."""
    ended, began = Event(), monotonic()
    seconds = usual.total_seconds() if usual else 0.0

    def look(tell: Callable[[float], None]) -> None:
        while not ended.wait(_LOOK_EVERY):
            tell(min((monotonic() - began) / seconds, _NEARLY) if seconds else 0.0)

    with progress(what, is_known=seconds > _QUIET) as tell:
        watch = Thread(target=look, args=(tell,), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()
