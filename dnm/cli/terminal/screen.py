"""Lines and tables that fit the terminal's width. In a pipe nothing is folded.

rich breaks names if a table is too wide, also in a pipe, and interprets control characters and
markup in names (tests/cli/test_plumbing.py). Its import takes 50 ms, so dnm imports it only for a
terminal (`paint.py`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from dnm.cli.terminal.lines import LEAST_LAST, UNFOLDED, Line, Run, width_in, width_of
from dnm.model.printable import Meaning, Meanings, Part, printable

_VERDICTS: Mapping[str, Meaning] = {
    "lend": "ok", "return": "ok", "move": "ok", "wait": "warning", "failed": "error",
}  # fmt: skip
_GAP = 2
_LEAST_OPTIONAL = 40  # columns; a narrower optional column is not shown
_AMOUNT = re.compile(r"(~?-?[\d.,]+(%|[A-Za-z]{1,2})?|no limit|none|the cluster's size|[-?]?)")


class _Row(Line):
    """A row of a table as a line. Only its last cell, which begins at column `begin`, may be
    broken."""

    def __init__(self, indent: str, cells: Sequence[Run], begin: int) -> None:
        *lead, last = cells
        if not last[0]:  # trailing blanks would be copied with the line
            while lead and not lead[-1][0].strip():
                lead.pop()
            lead[-1:] = [(text.rstrip(), meaning) for text, meaning in lead[-1:]]
        self.before, self.parts = ((indent, ""), *lead), [last]
        self.begin, self.hang = begin, 0


def draw(lines: Iterable[Line], file: TextIO | None = None) -> None:
    """Draws lines on a terminal, or prints them to a pipe, each as soon as it is produced."""
    file = file or sys.stdout
    if file.isatty():
        from dnm.cli.terminal.paint import paint

        paint(lines, file)
    else:
        file.writelines(line.text for line in lines)
        file.flush()  # so that later output on stderr comes after it


def verdict_part(word: str) -> Part:
    """Returns the word for a decision as a part of a line. Its meaning sets its colour."""
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


class _Column:
    """A column of a table: its heading and its cells, each with the meaning that sets its
    colour."""

    def __init__(self, name: str, cells: Iterable[str], meanings: Meanings) -> None:
        of = meanings.get(name, {})
        self.name = name
        self.cells = [printable(cell).rstrip() for cell in cells]
        self.meanings = [of.get(cell, "") for cell in self.cells]
        self.widths = list(map(width_in, (name, *self.cells)))
        self.width = max(self.widths)
        self.are_amounts = all(map(_AMOUNT.fullmatch, self.cells))

    def runs(self, gap: int) -> Iterator[Run]:
        """Yields heading and cells, padded to the column's width and `gap` blanks. Amounts are
        aligned right. If `gap` is 0, cells are not padded."""
        meanings: Iterable[Meaning] = ("muted", *self.meanings)
        texts = (self.name, *self.cells)
        for text, width, meaning in zip(texts, self.widths, meanings, strict=True):
            padding = " " * (self.width - width)
            if self.are_amounts and text:
                text, padding = padding + text, ""
            yield text + (padding + " " * gap if gap else ""), meaning


def draw_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    meanings: Meanings,
    optional: Collection[str] = (),
    indent: int = 0,
) -> None:
    """Draws a table and folds its last column. On a terminal that is too narrow, omits empty
    columns, or draws each row as a block. `optional` names the last columns, which only wide
    terminals show."""
    width = width_of(sys.stdout)
    columns = [_Column(name, of, meanings) for name, *of in zip(header, *rows, strict=True)]
    is_pipe, space = width == UNFOLDED, width - indent
    while columns[-1].name in optional and (is_pipe or not _fits(columns, space, _LEAST_OPTIONAL)):
        columns.pop()
    if not _fits(columns, space, LEAST_LAST):
        columns = [column for column in columns if column is columns[0] or any(column.cells)]
    if not _fits(columns, space, LEAST_LAST):
        draw(_blocks(columns, indent, width))
        return
    *leading, last = columns
    cells = (*(column.runs(_GAP) for column in leading), last.runs(0))
    begin = width - _left(columns, space)
    draw(_Row(" " * indent, row, begin) for row in zip(*cells, strict=True))


def _left(columns: Sequence[_Column], space: int) -> int:
    """Returns the number of columns of the terminal that are left for the table's last column."""
    return space - sum(column.width + _GAP for column in columns[:-1])


def _fits(columns: Sequence[_Column], space: int, least: int) -> bool:
    """Returns whether the table's last column can be folded without breaking a word."""
    left, last = _left(columns, space), columns[-1]
    if left >= last.width:
        return True
    words = (width_in(word) for cell in (last.name, *last.cells) for word in cell.split())
    return left >= max(least, *words)


def _blocks(columns: Sequence[_Column], indent: int, width: int) -> Iterator[Line]:
    first, *following = columns
    deeper = indent
    for number, head in enumerate(first.cells):
        if head:  # a row without a head continues the block above
            yield Line(((head, "heading"),), indent)
            deeper = indent + len(head) - len(head.lstrip()) + 2
        facts: tuple[Part, ...] = ()  # of one line
        for column in following:
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
