"""The streams stdout and stderr, which do not abort a command if the disk is full or the reader has
closed.

typer ends a command at the first failed write, even a run that converts a node
(tests/cli/test_plumbing.py)."""

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
    """A file that hides failed writes from the command, so that the command continues to its end. A
    failed write to stdout is reported at the end, except if a reader such as `head` has closed it.
    Lost output to stderr is not reported."""

    failed: ClassVar[OSError | None] = None  # of stdout

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes the data, or discards it after an error. Returns the number of its bytes."""
        try:
            while (written := super().write(data)) is None:  # another process made it non-blocking
                select.select([], [self], [])
            return written
        except OSError as error:
            if self.fileno() == 1 and error.errno != errno.EPIPE:
                Descriptor.failed = error
            return memoryview(data).nbytes


def open_closed() -> None:
    """Opens /dev/null read-only for each standard stream that the caller has closed, as `>&-` does.
    So no other file gets the stream's number, and writes to the stream fail."""
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)


def report_failure(failed: OSError, code: object) -> NoReturn:
    """Reports that a write to stdout failed. Ends the command with `code`, or 1 if that is 0."""
    cause = "it is closed" if failed.errno == errno.EBADF else (failed.strerror or "").lower()
    rest = "" if code else "; the command itself succeeded"
    print(f"dnm: cannot write to stdout: {cause}{rest}", file=sys.stderr)
    raise SystemExit(code or 1)
