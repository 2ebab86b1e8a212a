"""Reading the history on disk, without the lock: a last line without its end is passed over."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from dnm.model.history import HistoryLine

LONGEST_LINE = 64 * 1024  # readers take no longer one

_decode = msgspec.json.Decoder(HistoryLine).decode


class HistoryFiles(Protocol):
    """What is known of a history that is read: the file in work, and those that ended."""

    path: Path

    def old_files(self) -> list[tuple[datetime, Path]]:
        """Returns those put aside, the oldest first, each with the time at which it ended."""
        ...


def read_history(
    history: HistoryFiles, since: datetime | None = None, holding: Collection[bytes] = ()
) -> Iterator[HistoryLine]:
    """Yields the lines from `since` on, the oldest first; one that can't be read is passed
    over. `holding`: only those in whose bytes one of these stands, which is a tenth of the work
    of decoding. Raises OSError. May be called while another writes."""
    old = [path for ended, path in history.old_files() if since is None or ended >= since]
    for path in (*old, history.path):
        for line in lines_of(path, holding):
            if since is None or line.time >= since:
                yield line


def read_tail(history: HistoryFiles, length: int) -> list[HistoryLine]:
    """Returns the lines in the last bytes of the newest file, the oldest first. Raises
    OSError."""
    try:
        descriptor = os.open(history.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    with open(descriptor, "rb") as file:
        file.seek(max(os.fstat(descriptor).st_size - length, 0))
        return [line for text in file.read(length).split(b"\n") for line in _decoded(text)]


def read_backwards(history: HistoryFiles, holding: Collection[bytes] = ()) -> Iterator[HistoryLine]:
    """Yields the lines, the newest first, a file at a time. Raises OSError."""
    old = [path for _, path in history.old_files()]
    for path in (history.path, *reversed(old)):
        for text in reversed(list(_texts_of(path, holding))):
            yield from _decoded(text)


def lines_of(path: Path, holding: Collection[bytes] = ()) -> Iterator[HistoryLine]:
    """Yields those of one file."""
    for text in _texts_of(path, holding):
        yield from _decoded(text)


def _texts_of(path: Path, holding: Collection[bytes]) -> Iterator[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return  # none yet, or put aside meanwhile
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        while text := file.readline(LONGEST_LINE):
            is_wanted = not holding or any(part in text for part in holding)
            if is_wanted and text.endswith(b"\n"):
                yield text


def _decoded(text: bytes) -> Iterable[HistoryLine]:
    try:
        return (_decode(text),)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
