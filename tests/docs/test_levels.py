"""Tests that the page about kinds of tests names each folder of tests and its make target."""

from __future__ import annotations

import re

from tests.docs.pages import PAGES, ROOT, quoted, rows

PAGE = "docs/testing.md"
LEVELS = {cells[0].partition(":")[0]: cells for cells in rows(PAGES[PAGE])}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_page_assigns_each_test_folder_to_one_level() -> None:
    listed = [name for cells in LEVELS.values() for name in quoted(cells[0])]
    folders = {path.parent.relative_to(ROOT / "tests").parts[0]
               for path in ROOT.glob("tests/*/**/test_*.py")}  # fmt: skip
    assert sorted(listed) == sorted(folders)


def test_first_level_equals_the_folders_of_make_quick() -> None:
    (names,) = re.findall(r"^PURE := (.*)$", MAKEFILE, re.M)
    folders = [name for name in names.split() if not name.endswith(".py")]
    assert quoted(LEVELS["values"][0]) == folders


def test_picture_has_the_levels_in_the_order_of_the_table() -> None:
    (picture,) = re.findall(r"^```\n(.*?)^```", PAGES[PAGE], flags=re.S | re.M)
    drawn = [words.strip() for words in re.findall(r"│([a-z ]+)│", picture)]
    assert drawn[::-1] == list(LEVELS)
