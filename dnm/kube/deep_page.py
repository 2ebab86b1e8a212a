"""What is nested too deep in an answer is taken out of it, by its brackets.

An API server takes objects that are nested ten thousand deep, decoders go less far; nothing that is
read is deeper than some twenty.
"""

from __future__ import annotations

import re

DEEPEST = 100
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[][{}]')


def without_depths(page: memoryview) -> memoryview:
    """Returns the page with null for each value that is nested deeper."""
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
