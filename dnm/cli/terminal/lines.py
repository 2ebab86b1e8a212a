"""Lines of text whose parts have a meaning, not drawn yet: a pipe needs no rich for them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from typing import TextIO

from dnm.model.printable import Meaning, Part, printable

Run = tuple[str, Meaning]  # printable
UNFOLDED = 1_000_000  # columns of what is no terminal
LEAST_LAST = 20  # columns of what is worth folding


def width_of(file: TextIO) -> int:
    """Returns the columns that COLUMNS or the terminal says. A pipe is never folded: its lines are
    for grep."""
    return shutil.get_terminal_size().columns if file.isatty() else UNFOLDED


def width_in(text: str) -> int:
    """Returns the columns that a printable text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


class Line:
    """Parts of a line, each in its meaning; where it is longer than there is room, it goes on below
    and deeper, broken between words."""

    def __init__(self, parts: Iterable[Part], indent: int = 0, hang: int = 2) -> None:
        self.before: Sequence[Run] = ((" " * indent, ""),)  # which is never broken
        self.begin, self.hang = indent, hang
        self.parts: list[Run] = [
            (printable(part), "") if isinstance(part, str) else (printable(part[0]), part[1])
            for part in parts
        ]

    @property
    def length(self) -> int:
        """The columns of what may be broken."""
        return sum(width_in(text) for text, _ in self.parts)

    @property
    def text(self) -> str:
        """All of it, with its end."""
        return "".join([text for text, _ in (*self.before, *self.parts)]) + "\n"
