"""What people look at, drawn by rich: lines and tables that fit the terminal, nothing folded in a
pipe, and how each meaning looks. What is shown is text, never markup, and printable.

`dnm.cli.output` loads it with the first thing that is drawn: what machines read, and a run that has
nothing to say, do without.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice
from textwrap import wrap
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from dnm.model.printable import Meaning, Meanings, Part, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_Run = tuple[str, Style | None]
# Each is told from black and from white with a contrast of about 4.
_STYLES: Mapping[Meaning, Style | None] = {
    "": None,
    "ok": Style(color="color(28)"),
    "warning": Style(color="color(166)"),
    "error": Style(color="color(160)", bold=True),
    "muted": Style(color="color(242)"),
    "heading": Style(bold=True),
}
_VERDICTS: Mapping[str, Meaning] = {
    "lend": "ok", "return": "ok", "move": "ok", "wait": "warning", "failed": "error",
}  # fmt: skip
_UNFOLDED = 1_000_000  # columns of what is no terminal
_GAP = 2
_LEAST_LAST = 20  # columns of a last cell that is worth folding
_LEAST_OPTIONAL = 40  # of one that need not be shown
_AT_ONCE = 500  # lines drawn together; a year of history has a hundred thousand
_LOOK_EVERY = 0.25  # seconds
_NEARLY = 0.99  # done, and it takes longer than the last time
_QUIET = 2.0  # seconds in which nobody asks how long it takes
_END: _Run = ("\n", None)
_AMOUNT = re.compile(r"(~?-?[\d.,]+(%|[A-Za-z]{1,2})?|no limit|none|the cluster's size|[-?]?)")


def _width_of(file: TextIO) -> int:
    """As COLUMNS or the terminal says. A pipe is never folded: its lines are for grep."""
    return shutil.get_terminal_size().columns if file.isatty() else _UNFOLDED


class _Screen(Console):
    def __init__(self, file: TextIO) -> None:
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "")
        super().__init__(
            file=file, width=_width_of(file), height=25, markup=False, emoji=False,
            highlight=False, color_system=None if is_plain else "auto",
        )  # fmt: skip

    def on_broken_pipe(self) -> None:
        """Lets `reader_may_leave` have it: rich would end with exit code 1."""
        raise


def _plain(text: str) -> tuple[str, Meaning]:
    return text, ""


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _styled(parts: Iterable[Part]) -> list[_Run]:
    given = (one if isinstance(one, tuple) else _plain(one) for one in parts)
    return [(printable(text), _STYLES[meaning]) for text, meaning in given]


def _joined(*runs: _Run) -> Iterator[Segment]:
    """What has no style in as few segments as there can be: each of them costs."""
    plain = ""
    for text, style in runs:
        if style is None:
            plain += text
            continue
        if plain:
            yield Segment(plain)
            plain = ""
        yield Segment(text, style)
    if plain:
        yield Segment(plain)


class Line:
    """Parts of a line, each in its meaning; where it is longer than there is room, it goes on below
    and deeper, broken between words."""

    def __init__(self, parts: Iterable[Part], indent: int = 0, hang: int = 2) -> None:
        self.before: Sequence[_Run] = ((" " * indent, None),)  # which is never broken
        self.begin, self.hang = indent, hang
        self.parts = _styled(parts)
        self.length = sum(_width(text) for text, _ in self.parts)

    def segments(self, console: Console, width: int) -> Iterator[Segment]:
        """Yields what is drawn of it."""
        before, room = self.before, width - self.begin
        if self.length <= max(room, 0):
            yield from _joined(*before, *self.parts, _END)
            return
        for piece in self._broken(console, max(room - self.hang, _LEAST_LAST // 2)):
            yield from _joined(*before, *piece, _END)
            before = ((" " * (self.begin + self.hang), None),)

    def _broken(self, console: Console, room: int) -> Iterator[list[_Run]]:
        text, style = self.parts[0]
        if len(self.parts) == 1 and text.isascii():  # a year of history has tens of thousands
            yield from ([(piece, style)] for piece in wrap(text, room, break_on_hyphens=False))
            return
        whole = Text.assemble(*((text, style or "") for text, style in self.parts))
        for line in whole.wrap(console, room):
            line.rstrip()
            yield [(one.text, one.style) for one in line.render(console, end="")]


class _Row(Line):
    """A line of a table: cells of which the last alone is broken, and begins at `begin`."""

    def __init__(self, indent: str, cells: Sequence[_Run], begin: int) -> None:
        *lead, last = cells
        if not last[0]:  # no blanks end a line, which would be copied
            while lead and not lead[-1][0].strip():
                lead.pop()
            lead[-1:] = [(text.rstrip(), style) for text, style in lead[-1:]]
        self.before, self.parts = ((indent, None), *lead), [last]
        self.begin, self.hang, self.length = begin, 0, _width(last[0])


class _Lines:
    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from line.segments(console, options.max_width)


def draw(lines: Iterable[Line], file: TextIO | None = None) -> None:
    """Draws them as they come. They are as wide as they may be: none is measured again."""
    console, left = _Screen(file or sys.stdout), iter(lines)
    while some := list(islice(left, _AT_ONCE)):
        console.print(_Lines(some), end="", crop=False)


def verdict_part(word: str) -> Part:
    """Returns the word of a verdict with what it means."""
    return word, _VERDICTS.get(word, "")


def draw_diff(text: str) -> None:
    """Draws a unified diff."""
    of: dict[str, Meaning] = {
        "+": "ok",
        "-": "error",
        "@": "muted",
        "---": "heading",
        "+++": "heading",
    }
    lines = text.expandtabs().removesuffix("\n").split("\n")
    draw(Line(((line.rstrip("\r"), of.get(line[:3], of.get(line[:1], ""))),)) for line in lines)


@contextmanager
def progress(what: str, is_known: bool = True) -> Iterator[Callable[[float], None]]:
    """Yields what is told how much of it is done, from 0 to 1. Whatever takes longer than a moment
    is shown with the time that is left, else (`is_known`) with the time that it has taken, on
    stderr where that is a terminal that can draw."""
    console, began = _Screen(sys.stderr), monotonic()
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
    console.push_theme(Theme({name: _STYLES[of] or "" for name, of in parts.items()}))
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


class _Column:
    """A heading and what stands below it, each in its meaning."""

    def __init__(self, name: str, cells: Iterable[str], meanings: Meanings) -> None:
        of = meanings.get(name, {})
        self.name = name
        self.cells = [printable(cell).rstrip() for cell in cells]
        self.meanings = [of.get(cell, "") for cell in self.cells]
        self.widths = list(map(_width, (name, *self.cells)))
        self.width = max(self.widths)
        self.are_amounts = all(map(_AMOUNT.fullmatch, self.cells))

    def runs(self, gap: int) -> Iterator[_Run]:
        """Yields heading and cells, as wide as the column and `gap`; amounts stand right. Without a
        gap nothing stands behind them."""
        meanings: Iterable[Meaning] = ("muted", *self.meanings)
        texts = (self.name, *self.cells)
        for text, width, meaning in zip(texts, self.widths, meanings, strict=True):
            room = " " * (self.width - width)
            if self.are_amounts and text:
                text, room = room + text, ""
            yield text + (room + " " * gap if gap else ""), _STYLES[meaning]


def draw_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    meanings: Meanings,
    optional: Collection[str] = (),
    indent: int = 0,
) -> None:
    """Draws a table whose last column is folded; where the others leave no room for that, a block a
    row. `optional`: the last columns, for a terminal that has room for them."""
    width = _width_of(sys.stdout)
    columns = [_Column(name, of, meanings) for name, *of in zip(header, *rows, strict=True)]
    is_pipe, room = width == _UNFOLDED, width - indent
    while columns[-1].name in optional and (is_pipe or not _fits(columns, room, _LEAST_OPTIONAL)):
        columns.pop()
    if not _fits(columns, room, _LEAST_LAST):
        draw(_blocks(columns, indent, width))
        return
    *others, last = columns
    cells = (*(column.runs(_GAP) for column in others), last.runs(0))
    begin = width - _left(columns, room)
    draw(_Row(" " * indent, row, begin) for row in zip(*cells, strict=True))


def _left(columns: Sequence[_Column], room: int) -> int:
    """Returns the room for the last column."""
    return room - sum(column.width + _GAP for column in columns[:-1])


def _fits(columns: Sequence[_Column], room: int, least: int) -> bool:
    """Says whether the last column can be folded with no word broken."""
    left, last = _left(columns, room), columns[-1]
    if left >= last.width:
        return True
    words = (cell_len(word) for cell in (last.name, *last.cells) for word in cell.split())
    return left >= max(least, *words)


def _blocks(columns: Sequence[_Column], indent: int, width: int) -> Iterator[Line]:
    first, *others = columns
    deeper = indent
    for number, head in enumerate(first.cells):
        if head:  # else it goes on with the thing above
            yield Line(((head, "heading"),), indent)
            deeper = indent + len(head) - len(head.lstrip()) + 2
        facts: tuple[Part, ...] = ()  # of one line
        for column in others:
            if cell := column.cells[number]:
                lead = f"{column.name}: " if column.name else ""
                fact: tuple[Part, ...] = ((lead, "muted"), (cell, column.meanings[number]))
                longer = (*facts, " " * _GAP, *fact) if facts else fact
                if facts and Line(longer).length > width - deeper:
                    yield Line(facts, deeper)
                    longer = fact
                facts = longer
        if facts:
            yield Line(facts, deeper)
