"""Lines of text that the terminal output consists of. Each part of a line has a meaning, from which
its colour follows. Output to a pipe does not need the package rich."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from typing import TextIO

from dnm.model.printable import Meaning, Part, printable

Run = tuple[str, Meaning]  # printable
UNFOLDED = 1_000_000  # columns of a file that is not a terminal
LEAST_LAST = 20  # columns; a narrower column is not folded


def width_of(file: TextIO) -> int:
    """Returns the number of columns of the terminal. For a pipe it is so large that no line is
    folded, and grep finds whole lines."""
    return shutil.get_terminal_size().columns if file.isatty() else UNFOLDED


def width_in(text: str) -> int:
    """Returns the number of columns that a printable text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


class Line:
    """A line of parts, each with a meaning such as "error". If it is too long for the terminal, it
    is broken between words and continued below, indented."""

    def __init__(self, parts: Iterable[Part], indent: int = 0, hang: int = 2) -> None:
        self.before: Sequence[Run] = ((" " * indent, ""),)  # never broken
        self.begin, self.hang = indent, hang
        self.parts: list[Run] = [
            (printable(part), "") if isinstance(part, str) else (printable(part[0]), part[1])
            for part in parts
        ]

    @property
    def length(self) -> int:
        """Returns how many columns the parts take, without the indent that `before` contains."""
        return sum(width_in(text) for text, _ in self.parts)

    @property
    def text(self) -> str:
        """Returns the entire line, with its line end, for a pipe."""
        return "".join([text for text, _ in (*self.before, *self.parts)]) + "\n"
