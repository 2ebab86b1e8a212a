"""The removal of values that are nested too deep in an answer, by counting its brackets.

An API server accepts objects that are nested ten thousand deep, but decoders do not. dnm reads no
field that is deeper than some twenty levels."""

from __future__ import annotations

import re

DEEPEST = 100
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[][{}]')


def without_depths(page: memoryview) -> memoryview:
    """Returns the page with null for each value that is nested deeper than `DEEPEST`."""
    kept: list[memoryview | bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(page):
        match page[token.start()]:
            case 0x5B | 0x7B:  # [ {
                depth += 1
                if depth == DEEPEST:
                    kept += page[start : token.start()], b"null"
            case 0x5D | 0x7D:  # ] }
                if depth == DEEPEST:
                    start = token.end()
                depth -= 1
    return memoryview(b"".join((*kept, page[start:])))
