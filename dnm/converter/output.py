"""What a converter prints, read from the files that it writes into, as far as it has come.

They are files and no pipes, so that a run that is killed leaves the converter to finish its node,
and the next run still learns which nodes it named.
"""

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

# Of one call, as ends of their names.
FILES = ("out", "err", "process", "converter", "heard", "exit")
_LINE_LIMIT = 16 * 1024  # bytes; a longer line is cut
_READ_AT_ONCE = 256 * 1024
_OUTPUT_LIMIT = 64 * 1024 * 1024
_LAST_LINES = 5
_LARGEST_NOTE = 4096  # bytes: a process, a position, an exit code
_MOST_FAILED = 100  # nodes of one call
_MOST_NAMED = 64 * 1024  # characters of the names of one call; a node beyond is found by its mark
_LONGEST_NAME = 253
_SAYS_FAILED = re.compile(r"fail|error|refus|denied|time[ds]?.?out|can't|can ?not|could not", re.I)
_RESULT = re.compile(rf"({NODE_NAME.pattern}): (?:failed|skipped): ")
_WORDS = re.compile(r"[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?")


def file_of(call: Path, end: str) -> Path:
    """The file of a call; `call` is the directory and the call's key."""
    return call.with_name(f"{call.name}.{end}")


def open_file(path: Path, flags: int) -> FileIO:
    """Opens a file of a call for its owner alone; `flags` as of open(2)."""
    return open(os.open(path, flags, 0o600), "rb", buffering=0)


def read_or_empty(path: Path) -> bytes:
    """Returns what stands in a file, nothing where there is none or none that can be read."""
    with suppress(OSError):
        if path.exists():
            with fault_point("converter.read_output"):
                return read_regular(path, _LARGEST_NOTE)
    return b""


class ConverterOutput:
    """`<key>.out` and `<key>.err` of a directory. `<key>.heard` tells the next run how far they
    were read."""

    def __init__(self, call: Path, secrets: Secrets, flags: int = os.O_RDONLY) -> None:
        """`call` is the directory and the key; `flags` as of open(2). Raises OSError."""
        self.names: dict[str, None] = {}  # in their order
        self._named = 0  # characters
        self.last_lines: list[str] = []
        self._failed: dict[str, str] = {}  # node -> the last line that says so
        self.call = call
        files = (file_of(call, end) for end in ("out", "err"))
        self.tails = tuple(_Tail(file, SafeLines(secrets, _LINE_LIMIT), flags) for file in files)

    def load_position(self) -> None:
        """Goes to where the run before stopped reading."""
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            content = read_or_empty(file_of(self.call, "heard"))
            self.tails[0].at, self.tails[1].at = msgspec.json.decode(content, type=tuple[int, int])

    def save_position(self) -> None:
        """Writes down how far was read; where that fails, lines are read twice and not lost."""
        position = msgspec.json.encode([tail.passed_on for tail in self.tails])
        with suppress(OSError), fault_point("converter.heard"):
            file_of(self.call, "heard").write_bytes(position)

    def read_new(self, on_line: Callable[[str], None], is_last: bool = False) -> None:
        """Passes on each line that was written since the last time, at the end an unfinished one
        too. What can't be read is one line that says so: the node is then found by its label, or
        named by nobody."""
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
        """Notes a name alone on a line of stdout: a node that it converted. What is blacked out in
        it is no name, or else a password alone on a line would be kept as one."""
        is_name = from_stdout and len(line) <= _LONGEST_NAME and NODE_NAME.fullmatch(line)
        if is_name and line not in self.names and self._named + len(line) <= _MOST_NAMED:
            self.names[line] = None
            self._named += len(line)
        self.last_lines = [*self.last_lines, line[:LONGEST_REASON]][-_LAST_LINES:]
        self._note_failure(line)
        return line

    @property
    def failures(self) -> tuple[str, ...]:
        """The lines that say of a node why it failed: of each the last, in their order."""
        return tuple(dict.fromkeys(self._failed.values()))

    def _note_failure(self, line: str) -> None:
        """Of the node that the call is for, of those that it named, and of whatever stands before
        `: failed: `, as the shipped programs say it."""
        said = _RESULT.match(line)
        if said is None and not _SAYS_FAILED.search(line):
            return
        for node in (said[1],) if said else dict.fromkeys(_WORDS.findall(line)):
            if not said and node != self.call.name and node not in self.names:
                continue
            if self._failed.pop(node, None) or len(self._failed) < _MOST_FAILED:
                self._failed[node[:_LONGEST_NAME]] = line[:LONGEST_REASON]

    def read_exit_code(self) -> int | None:
        """None: it has not ended, or was killed together with what waited for it."""
        code = read_or_empty(file_of(self.call, "exit"))
        return int(code) if code.isdigit() else None


class _Tail:
    """A file that a process writes and this one reads, as far as it has come."""

    def __init__(self, path: Path, lines: SafeLines, flags: int) -> None:
        self.can_cut = flags != os.O_RDONLY
        self.file = open_file(path, flags)
        self.lines = lines
        self.at = 0

    @property
    def passed_on(self) -> int:
        """How many bytes need not be read again."""
        return max(self.at - len(self.lines.rest), 0)

    def new_lines(self, is_last: bool) -> Iterator[str]:
        """Whole lines, cut at a limit; at the end everything that is left. Of a converter that is
        at work one piece is read, or one that babbles would keep the run from looking at its time;
        what nobody can keep up with is passed over."""
        size = os.fstat(self.file.fileno()).st_size
        if size - self.at > _OUTPUT_LIMIT:
            yield f"{size - self.at >> 20} MiB of its output are passed over"
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
                # Appending goes on at the beginning: a converter that babbles fills no disk.
                with fault_point("converter.cut_output"):
                    os.ftruncate(self.file.fileno(), 0)
                end = 0
            self.at = end
            yield from self.lines.feed(content)
            is_over = is_at_end or end >= size or not is_last
        if is_last:
            yield from self.lines.end()
