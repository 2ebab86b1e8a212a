"""The cutting of a list that comes in one answer into pages, so that memory does not grow with it.

An API server prints the items of a list in sequence, each with its `metadata` first. The bytes that
end an item and begin the next cannot be within a string, where quotes are escaped. If they occur
elsewhere, a cut there leaves brackets open. Then the page cannot be decoded, and dnm notices that.
"""

from __future__ import annotations

from collections.abc import Iterator

from dnm.http.reader import LARGEST_BODY, Answer, AnswerTooLarge

_BETWEEN = b'},{"metadata":{'
_BEGIN, _END = b'{"items":[', b"]}"
_PAGE = 1 << 20  # bytes


def cut_list(body: Answer, page: int = _PAGE) -> Iterator[memoryview]:
    """Yields pages of about `page` bytes, each valid until the next. The first page has the head of
    the list. Raises AnswerTooLarge if no cut is possible, and the errors of reading `body`."""
    lead = len(_BEGIN)
    buffer = bytearray(lead + page + len(_END))
    start = used = lead
    while True:
        free = memoryview(buffer)[used : -len(_END)]
        used += body.fill(free)
        if used < len(buffer) - len(_END):
            yield memoryview(buffer)[start:used]
            return
        cut = buffer.rfind(_BETWEEN, lead) + 1
        if not cut:
            if 2 * len(buffer) > LARGEST_BODY:
                raise AnswerTooLarge(LARGEST_BODY)
            buffer = buffer + bytearray(len(buffer))
            continue
        rest = buffer[cut + 1 : used]
        buffer[cut : cut + len(_END)] = _END
        yield memoryview(buffer)[start : cut + len(_END)]
        buffer = buffer if len(buffer) <= 2 * page else bytearray(lead + page + len(_END))
        start, used = 0, lead + len(rest)
        buffer[:used] = _BEGIN + rest
