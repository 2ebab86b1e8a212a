"""stdout and stderr that end no command in the middle, if the disk is full or the reader is gone.

typer ends a command at the first write that fails, also a run that converts a node
(tests/cli/test_plumbing.py).
"""

from __future__ import annotations

import errno
import os
import select
import sys
from io import FileIO
from typing import TYPE_CHECKING, ClassVar, NoReturn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Descriptor(FileIO):
    """Takes what can't be written as if it were, so that a verb goes on to its own end. A reader
    that leaves, as `head` does, is no failure, and what goes to stderr is lost at the worst."""

    failed: ClassVar[OSError | None] = None  # of stdout

    def write(self, data: ReadableBuffer, /) -> int:
        """Returns how many bytes were written, or given up."""
        try:
            while (written := super().write(data)) is None:  # whoever shares it made it so
                select.select([], [self], [])
            return written
        except OSError as error:
            if self.fileno() == 1 and error.errno != errno.EPIPE:
                Descriptor.failed = error
            return memoryview(data).nbytes


def open_closed() -> None:
    """Opens what was closed where the command was started, as `>&-` does, for reading alone: no
    file that is opened later gets its number, and what is written to it fails."""
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)


def tell_failure(failed: OSError, code: object) -> NoReturn:
    """Tells that stdout could not be written to, and ends a command that would end with `code`."""
    why = "it is closed" if failed.errno == errno.EBADF else (failed.strerror or "").lower()
    rest = "" if code else "; all else was done"
    print(f"dnm: stdout can't be written: {why}{rest}", file=sys.stderr)
    raise SystemExit(code or 1)
