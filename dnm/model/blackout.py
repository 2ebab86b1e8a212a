"""Secrets that dnm hides in the output of programs.

A program that prints its commands prints its secrets too. They may be in the middle of a line,
folded over several lines, or cut by the reader's buffer. So dnm searches the bytes of the output
without white space and control characters. It holds back the possible beginning of a secret until
it has read more. It also hides each single line of a secret with several lines. Encoded secrets
(base64, `%20`) are not found, because dnm does not know them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

from dnm.model.printable import printable

LEAST = 4  # characters of a value that can be hidden; fewer are in every line
STARS = "***"
_NOISE = bytes([*range(0x21), 0x7F])  # where a value may be folded
_SPACE = " \t\r\n\v\f"
_RUN = re.compile(rb"[\x00-\x20\x7f]+")
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:([^/@\s]+)@")
# Names of variables: API_KEY and RACADM_PASS match, KEYBOARD and PASSENGERS do not.
_SECRET = re.compile(r".*(PASSWORD|PASSWD|SECRET|TOKEN)|(.*_)?(PASS|CREDENTIAL|KEY)S?(_|$)")


def _bytes_of(value: str) -> bytes:
    """Returns the bytes of an environment variable's value, even if they are not valid UTF-8."""
    return value.encode("utf-8", "surrogateescape")


def secrets_by_name(environment: Mapping[str, str]) -> list[str]:
    """Returns the secrets in environment variables: values of variables with names such as
    `API_KEY` or `DB_PASSWORD`, and passwords in URLs."""
    named = [value for name, value in environment.items() if _SECRET.match(name.upper())]
    in_urls = [word for value in environment.values() for word in _PASSWORD_IN_URL.findall(value)]
    return [*named, *in_urls]


def is_too_short(value: str) -> bool:
    """Returns whether a value is too short to be hidden, since it would occur in ordinary text."""
    return sum(char > " " and char != "\x7f" for char in value) < LEAST


class Secrets:
    """A set of secrets to hide in text. Each line of a secret with several lines is hidden, too."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        parts = [part for value in values for part in (value, *value.splitlines())]
        texts = {part.strip(_SPACE) for part in parts if not is_too_short(part)}
        self.texts = tuple(sorted(texts | {printable(text) for text in texts}, key=len)[::-1])
        flat = {_bytes_of(text).translate(None, _NOISE) for text in texts}
        self._flat = tuple(sorted(flat, key=len, reverse=True))
        self._sorted = sorted(flat)
        self._firsts = frozenset(value[0] for value in flat)
        self.longest = len(self._flat[0]) if self._flat else 0

    def hide(self, text: str) -> str:
        """Returns `text`, such as a field of a list, with each secret replaced by `***`."""
        if not self._flat:
            return text
        return self.hide_shown(self.hide_in(_bytes_of(text)).decode("utf-8", "replace"))

    def hide_shown(self, shown: str) -> str:
        """Returns a text that `printable` has made, with each secret in it replaced by `***`."""
        while value := next((hidden for hidden in self.texts if hidden in shown), None):
            shown = shown.replace(value, STARS)  # the text gets shorter, so this loop ends
        return shown

    def hide_in(self, content: bytes) -> bytes:
        """Returns the complete output of a program with each secret replaced by `***`."""
        return _replace(content, self.find(content, is_complete=True)[0])

    def find(self, content: bytes, is_complete: bool = False) -> tuple[list[tuple[int, int]], int]:
        """Returns the (start, end) of each secret in `content`, in order, and the position where an
        incomplete secret at its end may begin. Without one, that is the length of `content`."""
        flat = content.translate(None, _NOISE)
        spans = list(_merged(sorted(span for each in self._flat for span in _spans(flat, each))))
        begun = len(flat) if is_complete else self._beginning(flat)
        if not spans and begun == len(flat):
            return [], len(content)
        places = _places(content)
        bounds = [(places[start], places[end - 1] + 1) for start, end in spans]
        return bounds, places[begun] if begun < len(flat) else len(content)

    def _beginning(self, flat: bytes) -> int:
        """Returns where an incomplete secret may start at the end of `flat`, else its length."""
        for at in range(max(len(flat) - self.longest + 1, 0), len(flat)):
            if flat[at] in self._firsts:
                end = flat[at:]
                behind = bisect_right(self._sorted, end)  # the values that begin with `end`
                if any(chunk.startswith(end) for chunk in self._sorted[behind : behind + 1]):
                    return at
        return len(flat)


def _places(content: bytes) -> list[int]:
    """Returns the positions of all bytes that are neither white space nor control characters."""
    positions: list[int] = []
    before = 0
    for run in _RUN.finditer(content):
        positions.extend(range(before, run.start()))
        before = run.end()
    return [*positions, *range(before, len(content))]


def _spans(flat: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """Yields the (start, end) of each occurrence of `value` in `flat`, with overlapping ones as
    one. It searches for these backwards, so that a long line of one letter takes few steps."""
    start = flat.find(value)
    while start >= 0:
        last = start
        while (later := flat.rfind(value, last + 1, last + 2 * len(value) - 1)) >= 0:
            last = later
        yield start, last + len(value)
        start = flat.find(value, last + len(value))


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the sorted spans, overlapping ones merged: else a part of a secret could be shown."""
    last: tuple[int, int] | None = None
    for start, end in spans:
        if last is not None and start < last[1]:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = start, end
    if last is not None:
        yield last


def _replace(content: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    parts, at = [], 0
    for start, end in spans:
        parts += [content[at:start], STARS.encode()]
        at = end
    return b"".join([*parts, content[at:]])


class SafeLines:
    """A filter that makes a program's output, read in pieces, printable lines without secrets."""

    def __init__(self, secrets: Secrets, longest: int) -> None:
        """Stores the secrets to hide, and the number of bytes after which a line is cut."""
        self.secrets = secrets
        self.longest = longest
        self.rest = b""  # read, and not yet passed on

    def feed(self, content: bytes) -> Iterator[str]:
        """Adds a piece of output. Yields complete lines that cannot be part of a longer secret."""
        self.rest += content
        spans, begun = self.secrets.find(self.rest)
        cut = _before_spans(self.rest.rfind(b"\n", 0, begun) + 1, spans, self.rest)
        if len(self.rest) - cut > self.longest:  # too long for a line: cut before a possible secret
            cut = _before_spans(begun, spans, b"")
        if len(self.rest) - cut > 2 * self.longest + self.secrets.longest:
            spans = [*_merged([*spans, (begun, len(self.rest))])]
            cut = len(self.rest)
        complete, self.rest = self.rest[:cut], self.rest[cut:]
        yield from self._lines_of(_replace(complete, [span for span in spans if span[1] <= cut]))

    def end(self) -> Iterator[str]:
        """Yields the lines that `feed` has held back, at the end of the output."""
        rest, self.rest = self.rest, b""
        yield from self._lines_of(self.secrets.hide_in(rest))

    def _lines_of(self, content: bytes) -> Iterator[str]:
        for line in filter(None, content.splitlines()):
            text = line[: self.longest].decode("utf-8", "replace").rstrip(_SPACE)
            shown = printable(text)
            if shown != text or "\ufffd" in text or STARS in text:
                shown = self.secrets.hide_shown(shown)
            if shown:
                yield shown


def _before_spans(cut: int, spans: Iterable[tuple[int, int]], content: bytes) -> int:
    """Returns the position `cut`, or an earlier one if `cut` would divide a secret: the start of
    the secret or, if `content` is not empty, of its line."""
    for start, end in reversed([*spans]):
        if start < cut < end:
            cut = content.rfind(b"\n", 0, start) + 1 if content else start
    return cut
