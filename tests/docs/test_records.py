"""Tests of the decision records in docs/adr: their form, their length and their index."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, ROOT, rows, section

INDEX = "docs/adr/README.md"
RECORDS = sorted(page for page in PAGES if page.startswith("docs/adr/0"))
HEADINGS = ["Context", "Decision", "Consequences", "Alternatives"]
LINES, WORDS = 60, 400  # of one page


def test_index_lists_each_record_by_its_number_and_title() -> None:
    listed = [
        (number, f"docs/adr/{file}", title)
        for cell, title in rows(PAGES[INDEX])
        for number, file in re.findall(r"^\[(\d+)\]\((\S+)\)$", cell)
    ]
    assert listed == [
        (str(number), page, PAGES[page].partition("\n")[0].removeprefix(f"# {number}. "))
        for number, page in enumerate(RECORDS, 1)
    ]
    assert len(listed) >= 10


@pytest.mark.parametrize("page", RECORDS)
def test_record_fits_one_page_and_has_four_sections(page: str) -> None:
    text = PAGES[page]
    assert re.findall(r"^#+ (.*)$", text, flags=re.M)[1:] == HEADINGS
    assert all(len(section(page, heading).split()) >= 20 for heading in HEADINGS)
    assert len(text.splitlines()) <= LINES
    assert len(text.split()) <= WORDS


def test_folder_holds_only_records_and_their_index() -> None:
    names = {f"docs/adr/{path.name}" for path in (ROOT / "docs/adr").iterdir()}
    assert names == {INDEX, *RECORDS}
