"""How much an administrator meets: words of docs/, keys of the configuration. The bounds only ever
fall; the aims are 30,000 words, for an hour's reading and looking up, and 90 keys."""

from __future__ import annotations

from packages.reference import DECLARED
from tests.docs.pages import PAGES

WORDS = 34_200
KEYS = 126


def test_the_pages_only_get_shorter() -> None:
    words = {page: len(text.split()) for page, text in PAGES.items() if page.startswith("docs/")}
    assert sum(words.values()) <= WORDS, sorted(words.items(), key=lambda one: -one[1])


def test_there_are_only_ever_fewer_keys() -> None:
    assert sum(map(len, DECLARED.values())) <= KEYS
