"""The map of the packages is the one that the layer test holds."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, quoted, section, table_of
from tests.test_layers import HOUSE, room_of

PAGE = "docs/architecture.md"


def map_rows() -> dict[str, int]:
    """Package -> its line on the map, from above."""
    (drawing,) = re.findall(r"^```\n(.*?)^```", section(PAGE, "The map"), flags=re.S | re.M)
    found: dict[str, int] = {}
    for number, line in enumerate(drawing.splitlines()):
        for word in re.findall(r"[a-z.]+", line):
            if word in HOUSE:
                assert word not in found, f"{word} is on the map twice"
                found[word] = number
    return found


def test_the_map_shows_exactly_the_packages_there_are() -> None:
    assert map_rows().keys() == HOUSE.keys()


@pytest.mark.parametrize("package", HOUSE)
def test_an_import_only_ever_goes_down_on_the_map(package: str) -> None:
    place = map_rows()
    for name in HOUSE[package].may:
        assert place[room_of(name)] > place[package], f"{package} imports {name}"


def test_the_table_has_every_package() -> None:
    told = [quoted(row[0])[0] for row in table_of(PAGE, "What lives where")]
    assert sorted(told) == sorted(HOUSE)


def test_words_that_were_given_up_are_in_no_document() -> None:
    given_up = r"\b(Desk|Survey|Fleet|Supply|Case|Helped)\b"
    for page, text in PAGES.items():
        assert not re.search(given_up, text), page
