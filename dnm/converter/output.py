"""The output of a converter, read from the files that it writes to.

A converter writes to files, not pipes, so that it can finish its node if the run is killed. The
next run finds the nodes that the converter named in these files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from io import FileIO
from pathlib import Path

import msgspec

from dnm.converter.contract import NODE_NAME
from dnm.host.fault_points import fault_point
from dnm.host.trust import read_regular
from dnm.model.blackout import SafeLines, Secrets
from dnm.model.lent import LONGEST_REASON

# The files of one call: the key with each of these suffixes.
FILES = ("out", "err", "process", "converter", "heard", "exit")
_LINE_LIMIT = 16 * 1024  # bytes; a longer line is cut
_READ_AT_ONCE = 256 * 1024
_OUTPUT_LIMIT = 64 * 1024 * 1024
_LAST_LINES = 5
_LARGEST_NOTE = 4096  # bytes: a process, a position, an exit code
_MOST_FAILED = 100  # nodes of one call
_MOST_NAMED = 64 * 1024  # characters of one call's node names; later nodes are found by their mark
_LONGEST_NAME = 253
_FAILURE = re.compile(r"fail|error|refus|denied|time[ds]?.?out|can't|can ?not|could not", re.I)
_RESULT = re.compile(rf"({NODE_NAME.pattern}): (?:failed|skipped): ")
_WORDS = re.compile(r"[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?")


def file_of(call: Path, end: str) -> Path:
    """Returns the path of one of a call's files. `call` is the directory with the call's key."""
    return call.with_name(f"{call.name}.{end}")


def open_file(path: Path, flags: int) -> FileIO:
    """Opens a file of a converter's call, with mode 0600. `flags` are those of open(2)."""
    return open(os.open(path, flags, 0o600), "rb", buffering=0)


def read_or_empty(path: Path) -> bytes:
    """Returns the content of a file, or nothing if it is missing or unreadable."""
    with suppress(OSError):
        if path.exists():
            with fault_point("converter.read_output"):
                return read_regular(path, _LARGEST_NOTE)
    return b""


class ConverterOutput:
    """The files `<key>.out` and `<key>.err` of a call. The position up to which earlier runs have
    read them is in a third file."""

    def __init__(self, call: Path, secrets: Secrets, flags: int = os.O_RDONLY) -> None:
        """Opens the files of a call (its directory and key) with these flags. Raises OSError."""
        self.names: dict[str, None] = {}  # in the order of printing
        self._named = 0  # characters
        self.last_lines: list[str] = []
        self._failed: dict[str, str] = {}  # node -> the last line that reports its failure
        self.call = call
        files = (file_of(call, end) for end in ("out", "err"))
        self.tails = tuple(_Tail(file, SafeLines(secrets, _LINE_LIMIT), flags) for file in files)

    def load_position(self) -> None:
        """Moves to the position where the previous run stopped reading."""
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            content = read_or_empty(file_of(self.call, "heard"))
            self.tails[0].at, self.tails[1].at = msgspec.json.decode(content, type=tuple[int, int])

    def save_position(self) -> None:
        """Records how far the files were read. If that fails, the next run reads lines twice."""
        position = msgspec.json.encode([tail.passed_on for tail in self.tails])
        with suppress(OSError), fault_point("converter.heard"):
            file_of(self.call, "heard").write_bytes(position)

    def read_new(self, on_line: Callable[[str], None], is_last: bool = False) -> None:
        """Calls `on_line` with each new line. If `is_last`, an incomplete line counts too. A read
        error is passed as a line; the run then recognizes converted nodes by their label."""
        try:
            with fault_point("converter.end") if is_last else nullcontext():
                self._read_new(on_line, is_last)
        except OSError as error:
            on_line(f"its output can't be read: {error.strerror}")

    def _read_new(self, on_line: Callable[[str], None], is_last: bool) -> None:
        for tail in self.tails:
            for line in tail.new_lines(is_last):
                on_line(self.take_line(line, tail is self.tails[0]))

    def take_line(self, line: str, from_stdout: bool) -> str:
        """Returns the line. A node name alone on a line of stdout is recorded: that node is
        converted. Blacked-out text is no valid name, so no password is recorded."""
        is_name = from_stdout and len(line) <= _LONGEST_NAME and NODE_NAME.fullmatch(line)
        if is_name and line not in self.names and self._named + len(line) <= _MOST_NAMED:
            self.names[line] = None
            self._named += len(line)
        self.last_lines = [*self.last_lines, line[:LONGEST_REASON]][-_LAST_LINES:]
        self._note_failure(line)
        return line

    @property
    def failures(self) -> tuple[str, ...]:
        """Returns for each failed node the last line that reports its failure."""
        return tuple(dict.fromkeys(self._failed.values()))

    def _note_failure(self, line: str) -> None:
        """Records a failure. A line `NODE: failed: …` of dnm's own converters counts for NODE. Any
        other line that reports a failure counts for each node of this call that it names."""
        result = _RESULT.match(line)
        if result is None and not _FAILURE.search(line):
            return
        for node in (result[1],) if result else dict.fromkeys(_WORDS.findall(line)):
            if not result and node != self.call.name and node not in self.names:
                continue
            if self._failed.pop(node, None) or len(self._failed) < _MOST_FAILED:
                self._failed[node[:_LONGEST_NAME]] = line[:LONGEST_REASON]

    def read_exit_code(self) -> int | None:
        """Returns the converter's exit code; None if it runs, or if it or its parent was killed."""
        code = read_or_empty(file_of(self.call, "exit"))
        return int(code) if code.isdigit() else None


class _Tail:
    """A file that a converter writes, and the position up to which dnm has read it."""

    def __init__(self, path: Path, lines: SafeLines, flags: int) -> None:
        self.can_cut = flags != os.O_RDONLY
        self.file = open_file(path, flags)
        self.lines = lines
        self.at = 0

    @property
    def passed_on(self) -> int:
        """Returns how many bytes of the file later runs need not read again."""
        return max(self.at - len(self.lines.rest), 0)

    def new_lines(self, is_last: bool) -> Iterator[str]:
        """Yields complete new lines, and if `is_last`, an incomplete one too. While the converter
        runs, a call reads only one piece, so that much output does not delay the run. Lines are
        shortened, and output beyond a limit is skipped."""
        size = os.fstat(self.file.fileno()).st_size
        if size - self.at > _OUTPUT_LIMIT:
            yield f"{size - self.at >> 20} MiB of its output are skipped: too much at once"
            self.at = max(self.at, size - _READ_AT_ONCE // 4)
            self.lines.rest = b""
            content = os.pread(self.file.fileno(), _READ_AT_ONCE // 8, self.at)
            self.at += len(content)
            for _ in self.lines.feed(content):
                pass  # it may begin in the middle of a line, or of a secret
        is_over = False
        while not is_over:
            content = os.pread(self.file.fileno(), _READ_AT_ONCE, self.at)
            end = self.at + len(content)
            is_at_end = len(content) < _READ_AT_ONCE
            if self.can_cut and is_at_end and end > _OUTPUT_LIMIT:
                # The converter then appends at the beginning, so its output can't fill the disk.
                with fault_point("converter.cut_output"):
                    os.ftruncate(self.file.fileno(), 0)
                end = 0
            self.at = end
            yield from self.lines.feed(content)
            is_over = is_at_end or end >= size or not is_last
        if is_last:
            yield from self.lines.end()
