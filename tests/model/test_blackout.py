"""Tests that secrets in a program's output are hidden, wherever they are and however split."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dnm.model.blackout import SafeLines, Secrets, is_too_short

LONGEST = 60  # bytes of a line; short, so that lines are cut
# Few letters, so that values begin and overlap everywhere; and characters that a terminal changes.
LETTERS = "aab\u00e9 \t\x1b-"
VALUE = st.text(LETTERS, min_size=1, max_size=9) | st.text(max_size=40)
HARD = VALUE.filter(lambda value: not is_too_short(value))


def squeezed(text: str) -> str:
    return "".join(char for char in text if char > " " and char != "\x7f")


def cut(content: bytes, seed: int) -> list[bytes]:
    """Splits the content into pieces of any length."""
    draw, pieces, at = random.Random(seed), [], 0
    while at < len(content):
        size = draw.choice((1, 1, 2, 5, 30))
        pieces.append(content[at : at + size])
        at += size
    return pieces


def printed(values: list[str], content: bytes, seed: int = 0) -> list[str]:
    lines = SafeLines(Secrets(values), LONGEST)
    return [line for piece in cut(content, seed) for line in lines.feed(piece)] + [*lines.end()]


@st.composite
def output(draw: st.DrawFn, of: st.SearchStrategy[str]) -> tuple[list[str], bytes]:
    """Draws secrets, and output that contains them: folded, side by side, one within the other."""
    values = draw(st.lists(of, min_size=1, max_size=3))
    content = b""
    for _ in range(draw(st.integers(1, 6))):
        word = draw(st.sampled_from(values) | VALUE).encode("utf-8", "replace")
        for _ in range(draw(st.integers(0, 3))):  # folded
            at = draw(st.integers(0, len(word)))
            word = word[:at] + draw(st.sampled_from((b"\n", b"\r\n", b"\n\n  "))) + word[at:]
        content += word + draw(st.sampled_from((b"", b" ", b"\n", b"x" * 70)))
    return values, content


@given(output(HARD), st.integers(0, 9))
def test_no_secret_value_is_printed(drawn: tuple[list[str], bytes], seed: int) -> None:
    values, content = drawn
    lines = printed(values, content, seed)
    for value in values:
        for part in (value, *value.splitlines()):
            if not is_too_short(part):
                assert not [line for line in lines if part.strip(" \t\r\n\v\f") in line]


# Without the characters that replace a value, or an unprintable or undecodable byte.
PLAIN = st.text("aabc\u00e9 -", min_size=4, max_size=9).filter(lambda text: not is_too_short(text))


@given(output(PLAIN), st.integers(0, 9))
def test_secret_split_over_several_lines_is_redacted(
    drawn: tuple[list[str], bytes], seed: int
) -> None:
    values, content = drawn
    full = squeezed("".join(printed(values, content, seed)))
    assert not [value for value in values if squeezed(value) in full]


@given(st.binary(max_size=300), st.integers(0, 9))
@example(b"a001\n\nhello \xff\xc3\n" + b"y" * 200 + b"\nend", 1)
def test_text_without_secrets_loses_only_the_ends_of_long_lines(content: bytes, seed: int) -> None:
    """Lines beyond the limit lose their end. So the test compares only lines within it."""
    lines = printed(["no such value: 0123456789"], content, seed)
    if max(map(len, content.split(b"\n"))) <= LONGEST:
        assert len(lines) == len([line for line in content.splitlines() if line.rstrip(b" \t\v\f")])
    again = printed(["no such value: 0123456789"], content, seed + 1)
    assert again == lines or len(content) > LONGEST


CASES = {
    "in the middle": (["hunter2"], b"racadm -p hunter2!\n", ["racadm -p ***!"]),
    "alone": (["hunter2"], b"hunter2\na001\n", ["***", "a001"]),
    "folded": (["0123456789"], b"key 012345\n6789 end\n", ["key *** end"]),
    "folded and indented": (["0123456789"], b"012345\r\n    6789\n", ["***"]),
    "of several lines": (["abcde\nfghij\nkl"], b"abcde\nfghij\nkl\n", ["***"]),
    "one of its lines": (["abcde\nfghij\nkl"], b"+ echo fghij\n", ["+ echo ***"]),
    "overlapping": (["abcabc", "cabcab"], b"xabcabcabx\n", ["x***x"]),
    "one within the other": (["secret", "my secret word"], b"my secret word", ["***"]),
    "with what can't be shown": (["to\tk\x1ben"], b"a to\tk\x1ben z\n", ["a *** z"]),
    "no UTF-8": (["pass\udcff"], b"x pass\xff y", ["x *** y"]),
    "at the end of what is read": (["hunter2"], b"it is hunter2", ["it is ***"]),
    "too short": (["abc"], b"abc\n", ["abc"]),
    "its beginning alone": (["hunter2"], b"hunt\nhunter", ["hunt", "hunter"]),
}


@pytest.mark.parametrize(("values", "content", "shown"), CASES.values(), ids=CASES.keys())
def test_secrets_are_redacted_in_any_chunking(
    values: list[str], content: bytes, shown: list[str]
) -> None:
    for seed in range(8):
        assert printed(values, content, seed) == shown


def test_line_is_held_back_only_if_it_may_continue_a_secret() -> None:
    lines = SafeLines(Secrets(["1hunter"]), LONGEST)
    assert list(lines.feed(b"a002\na001\n")) == ["a002"] and lines.rest == b"a001\n"
    assert list(lines.feed(b"a003\n")) == ["a001", "a003"] and lines.rest == b""


def test_held_back_text_is_bounded() -> None:
    lines = SafeLines(Secrets(["hunter2"]), LONGEST)
    shown = [line for piece in (b"hunt", *[b"\n" * 50] * 9, b"er2\n") for line in lines.feed(piece)]
    assert shown == ["***", "er2"] and not lines.rest


def test_empty_lines_are_redacted_in_linear_time() -> None:
    """A program in an endless loop may print empty lines, which must not delay a run."""
    lines = SafeLines(Secrets(f"secret-{number:04}-of-some-length" for number in range(150)), 4096)
    began = time.process_time()
    for begun in (b"", b"secret-"):
        shown = [line for piece in [begun, *[b"\n" * 65536] * 64] for line in lines.feed(piece)]
        assert shown == ["***"][: len(begun)]
    assert time.process_time() - began < 2


def test_field_is_read_without_secrets() -> None:
    secrets = Secrets(["hunter2", "a\nlong\ntoken"])
    assert secrets.hide("drained with hunter2, along token") == "drained with ***, ***"
    assert Secrets().hide("as it is") == "as it is"
