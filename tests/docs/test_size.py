"""Bounds on size: the words in docs/, keys of the configuration, lines of the optional packages.
The bounds only ever fall. The aims are 30,000 words, for an hour of reading and looking up, 77
keys, and 7,500 lines for each of the two larger packages. The thirteen keys of the predecessor
count too, and none of them is removed. A decision record is read alone, by someone who asks for its
reason: its own bound is one page (test_records.py), and the total does not count it."""

from __future__ import annotations

import pytest

from dnm.config.keys import OF_RULES
from dnm.plan.rule import TABLE
from packages.reference import DECLARED
from tests.docs.pages import PAGES, ROOT

WORDS = 29_440 + 40 * len(TABLE)  # each rule adds its rows
KEYS = 76  # without those of rules
LINES = {"converters": 7_500, "lab": 6_646, "simulate": 2_029}


def test_pages_do_not_grow() -> None:
    words = {
        page: len(text.split())
        for page, text in PAGES.items()
        if page.startswith("docs/") and not page.startswith("docs/adr/")
    }
    assert sum(words.values()) <= WORDS, sorted(words.items(), key=lambda pair: -pair[1])


def test_number_of_keys_does_not_grow() -> None:
    of_rules = sum(map(len, OF_RULES.values()))
    assert sum(map(len, DECLARED.values())) - of_rules <= KEYS


@pytest.mark.parametrize(("package", "most"), LINES.items())
def test_optional_packages_do_not_grow(package: str, most: int) -> None:
    files = ROOT.glob(f"dnm/{package}/**/*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) <= most
