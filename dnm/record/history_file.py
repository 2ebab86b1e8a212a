"""The history on disk: `history.jsonl` beside the registry, with a line of JSON for each change of
a node, request or queue.

A run appends with one write and a sync, under the registry's lock. Readers need no lock. A crash
may leave an incomplete last line. Readers skip it; the next writer repeats it from the registry.
Old or large files are renamed to `history-TIME.jsonl` and deleted after `keep`."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from dnm.host.fault_points import fault_point
from dnm.host.trust import FileMode, access_in, fix_access, give_access
from dnm.model.history import HistoryLine

LARGEST = 8 * 1024 * 1024  # bytes of one file; a line takes some 500
MOST = 256 * 1024 * 1024  # bytes of all files
LONGEST_LINE = 64 * 1024  # readers take no longer one
_TAIL = 64 * 1024
_TIME = "%Y%m%dT%H%M%SZ"

_encode = msgspec.json.Encoder(order="deterministic").encode  # equal lines are equal bytes
_decode = msgspec.json.Decoder(HistoryLine).decode


def within_bound(line: HistoryLine) -> HistoryLine:
    """Returns the line. If it is too long for readers, shortens its texts and omits its lists."""
    if len(_encode(line)) < LONGEST_LINE:
        return line
    fields = msgspec.structs.asdict(line)
    texts = {name: text[:500] for name, text in fields.items() if isinstance(text, str)}
    numbers = {name: number for name, number in line.numbers.items() if len(str(number)) < 50}
    return msgspec.structs.replace(line, **texts, numbers=numbers)


class History:
    """The history beside one registry. `keep`: how long its lines are kept (zero: no history).
    `largest` and `most`: the bytes of one file and of all files. `name`: the stem of the file
    names, `history` or `demand`."""

    def __init__(
        self,
        registry_path: Path,
        keep: timedelta,
        largest: int = LARGEST,
        most: int = MOST,
        name: str = "history",
    ) -> None:
        self.directory = registry_path.parent
        self.path = self.directory / f"{name}.jsonl"
        self._name, self._old = name, re.compile(rf"{name}-(\d{{8}}T\d{{6}}Z)\.jsonl")
        self.keep, self.largest, self.most = keep, largest, most

    def append(self, lines: Sequence[HistoryLine], now: datetime) -> tuple[HistoryLine, ...]:
        """Appends those of the lines that are not in the file yet, and returns them. If it raises
        OSError, the caller must pass all lines again later."""
        access = access_in(self.directory)
        for path in (self.path, *(path for _, path in self.old_files())):
            fix_access(path, access)
        encoded = {_encode(within_bound(line)): line for line in lines}
        if not encoded or not self.keep:
            return ()
        with fault_point("history.append"):
            tail = self._cut_torn_line(sum(map(len, encoded)) + len(encoded) + _TAIL)
            missing = {text: line for text, line in encoded.items() if text not in tail}
            if len(missing) == len(encoded):
                # Callers may pass these lines again, so they must stay in the file that is checked.
                self._rotate(now)
            if missing:
                self._write(b"".join(text + b"\n" for text in missing), access)
        return tuple(missing.values())

    def _cut_torn_line(self, length: int) -> frozenset[bytes]:
        """Cuts off an incomplete last line. Returns the complete lines at the end of the file."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return frozenset()
        with open(descriptor, "r+b") as file:
            size = os.fstat(descriptor).st_size
            file.seek(max(size - length, 0))
            tail = file.read()
            complete = tail[: tail.rfind(b"\n") + 1]
            if not complete and len(tail) < size:
                file.write(b"\n")  # no valid line is so long: end it here
            elif len(complete) < len(tail):
                os.ftruncate(descriptor, size - len(tail) + len(complete))
        return frozenset(complete.split(b"\n"))

    def _write(self, content: bytes, access: FileMode) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            give_access(descriptor, access)
            written = os.write(descriptor, content)
            if written < len(content):
                raise OSError(f"only {written} of {len(content)} bytes could be written")
            with fault_point("history.fsync"):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _rotate(self, now: datetime) -> None:
        """Renames the current file if it is large or a month old. Deletes expired files."""
        if not self.path.exists():
            return
        if self.path.stat().st_size < self.largest:
            began = next((line.time for line in lines_of(self.path)), now)
            if now - began < timedelta(days=31):
                return
        ended = min([now, *(line.time for line in read_tail(self, _TAIL)[-1:])])  # now may be off
        aside = self.directory / f"{self._name}-{ended:{_TIME}}.jsonl"
        if aside.exists():  # it was renamed in this very second
            return
        with fault_point("history.rotate"):
            os.replace(self.path, aside)
        old = self.old_files()
        total = sum(path.stat().st_size for _, path in old)
        for time, path in old:
            if ended - time > self.keep or total > self.most:
                total -= path.stat().st_size
                with fault_point("history.drop"):
                    path.unlink()

    def old_files(self) -> list[tuple[datetime, Path]]:
        """Returns the renamed files, the oldest first, each with the time of its last line."""
        lines = []
        for name in os.listdir(self.directory):
            if match := self._old.fullmatch(name):
                with suppress(ValueError):  # these digits are not a time: not dnm's file
                    ended = datetime.strptime(match[1], _TIME).replace(tzinfo=UTC)
                    lines.append((ended, self.directory / name))
        return sorted(lines)


# --- reading, without the lock ------------------------------------------------------------------


def has_history(registry_path: Path) -> bool:
    """Returns whether the directory of this registry has a history. An unreadable one has none."""
    return any(registry_path.parent.glob("history*.jsonl"))


def read_history(
    history: History, since: datetime | None = None, holding: Collection[bytes] = ()
) -> Iterator[HistoryLine]:
    """Yields the readable lines from `since` on, the oldest first. With `holding`, yields only
    lines that contain one of these byte strings, at a tenth of the cost of decoding all. Raises
    OSError. Another process may append lines at the same time."""
    old = [path for ended, path in history.old_files() if since is None or ended >= since]
    for path in (*old, history.path):
        for line in lines_of(path, holding):
            if since is None or line.time >= since:
                yield line


def read_tail(history: History, length: int) -> list[HistoryLine]:
    """Returns the lines in the last `length` bytes of the newest file, in order. Raises OSError."""
    try:
        descriptor = os.open(history.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    with open(descriptor, "rb") as file:
        file.seek(max(os.fstat(descriptor).st_size - length, 0))
        return [line for text in file.read(length).split(b"\n") for line in _decoded(text)]


def read_backwards(history: History, holding: Collection[bytes] = ()) -> Iterator[HistoryLine]:
    """Yields all lines, the newest first. Reads one file at a time. Raises OSError."""
    for path in (history.path, *(old for _, old in reversed(history.old_files()))):
        for text in reversed(list(_texts_of(path, holding))):
            yield from _decoded(text)


def lines_of(path: Path, holding: Collection[bytes] = ()) -> Iterator[HistoryLine]:
    """Yields the readable lines of one history file."""
    for text in _texts_of(path, holding):
        yield from _decoded(text)


def _texts_of(path: Path, holding: Collection[bytes]) -> Iterator[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return  # there is none yet, or it was renamed meanwhile
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        while text := file.readline(LONGEST_LINE):
            is_wanted = not holding or any(part in text for part in holding)
            if is_wanted and text.endswith(b"\n"):
                yield text


def _decoded(text: bytes) -> Iterable[HistoryLine]:
    try:
        return (_decode(text),)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
