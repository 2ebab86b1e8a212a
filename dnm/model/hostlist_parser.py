"""A strict parser of Slurm's hostlist expressions: `a[001-003,007],rack[1-2]n[01-02]`.

A text that it cannot parse completely is an error, never a shorter list: dnm would believe that the
missing nodes are free. Pure."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

from dnm.model.errors import SlurmError

_MOST_NAMES = 200_000
_NOTHING = frozenset(("", "(null)", "N/A", "None", "None assigned"))
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@lru_cache  # thousands of jobs name the same thousands of nodes
def expand_hostlist(text: str) -> tuple[str, ...]:
    """Returns the node names of a Slurm hostlist, in its order; none for the text `(null)`.

    Raises SlurmError for unbalanced brackets, ranges that run backwards or are not decimal, other
    characters, and too many names."""
    if text in _NOTHING:
        return ()
    names: list[str] = []
    for part in _split(text):
        if _PLAIN.fullmatch(part):
            names.append(part)
            continue
        if not part:
            raise _refusal(text, "a name in it is empty")
        choices: list[list[str]] = []
        count = 1
        for piece in filter(None, re.split(r"(\[[^\[\]]*\])", part)):
            choices.append(_choices(text, piece))
            count *= len(choices[-1])
            if len(names) + count > _MOST_NAMES:
                raise _too_many(text)
        names.extend(map("".join, itertools.product(*choices)))
    return tuple(names)


def _split(text: str) -> list[str]:
    """Splits a hostlist at the commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise _refusal(text, "its brackets don't match")
        if character == "," and not depth:
            parts.append(text[begin:position])
            begin = position + 1
    if depth:
        raise _refusal(text, "its brackets don't match")
    return [*parts, text[begin:]]


def _choices(text: str, piece: str) -> list[str]:
    if not piece.startswith("["):
        if not _PLAIN.fullmatch(piece):
            raise _refusal(text, f"{piece!r} is not part of a name")
        return [piece]
    names: list[str] = []
    for entry in piece[1:-1].split(","):
        match = _RANGE.fullmatch(entry)
        if match is None:
            raise _refusal(text, f"{entry!r} is not a range of numbers")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _refusal(text, f"the range {entry!r} runs backwards")
        if len(names) + int(last) - int(first) >= _MOST_NAMES:
            raise _too_many(text)
        names.extend(f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return names


def _too_many(text: str) -> SlurmError:
    return _refusal(text, f"it names more than {_MOST_NAMES} nodes")


def _refusal(text: str, why: str) -> SlurmError:
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    return SlurmError(f"the node list {shown!r} can't be read: {why}")
