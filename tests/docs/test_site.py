"""Tests of the website that `make docs` builds: its menu, its pictures, and the files it loads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from packages import site
from packages.build import PackageError
from packages.pictures import COMMANDS, DIRECTORY, draw, play, text_of
from tests.docs.pages import PAGES, ROOT

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

# The part of DejaVu Sans Mono below its baseline, in units of a picture with letters of 20.
DESCENDER = 4.8


def pages_below(entry: Any) -> Iterator[str]:
    """Yields the pages of a part of the menu."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_below(part)


def test_menu_has_each_page_once_below_a_task() -> None:
    assert [name for part in CONFIG["nav"] for name in part] == [
        "Get started", "Operate", "Decide", "Integrate", "Extend", "Reference"
    ]  # fmt: skip
    assert sorted(pages_below(CONFIG["nav"])) == sorted({*PAGES, "docs/model/README.md"})


def test_links_anchors_and_menu_are_checked_strictly() -> None:
    assert CONFIG["strict"] is True
    checks = ("omitted_files", "absolute_links", "unrecognized_links", "anchors")
    assert CONFIG["validation"] == dict.fromkeys(checks, "warn")


def test_pictures_equal_the_current_output_of_commands(tmp_path: Path) -> None:
    """If it fails, run `make docs PICTURES=1`."""
    drawn = play(tmp_path)
    assert sorted(f"{name}.svg" for name in COMMANDS) == sorted(
        path.name for path in DIRECTORY.iterdir()
    )
    for name, picture in drawn.items():
        lines = text_of(picture)
        assert lines == text_of((DIRECTORY / f"{name}.svg").read_text(encoding="utf-8")), name
        assert lines[0].startswith(f"$ dnm {name}") and len(lines) > 4
        assert max(map(len, lines)) <= 80
    assert "serving" in "".join(text_of(drawn["status"]))


def test_picture_has_only_the_command_in_bold_and_no_clipped_line() -> None:
    picture = draw("plan", "0 to lend")
    bold = re.findall(r"\.(\S+) \{[^}]*bold", picture)
    classes = {text: name for name, text in re.findall(r'class="(\S+)" [^>]*>([^<]+)</t', picture)}
    assert classes["$&#160;dnm&#160;plan"] in bold
    assert classes["0&#160;to&#160;lend"] not in bold
    height = re.search(r'viewBox="0 0 \S+ ([0-9.]+)"', picture)
    shift = re.search(r"translate\(0 (-?\d+)\)", picture)
    assert height and shift
    last = max(float(y) for y in re.findall(r'<text [^>]*y="([0-9.]+)"', picture))
    assert last + int(shift[1]) + DESCENDER <= float(height[1])


LISTS = {
    "1. a\n\n   ```\n   b\n   ```\n2. c\n\nd\n": "1. a\n\n    ```\n    b\n    ```\n\n2. c\n\nd\n",
    "1. a\n   b\n2. c\n": "1. a\n    b\n2. c\n",
    "1. a\n\nd\n\n    code\n": "1. a\n\nd\n\n    code\n",
    "- a\n   b\n": "- a\n   b\n",
}


@pytest.mark.parametrize(("page", "expected"), LISTS.items())
def test_numbered_lists_get_the_indents_of_python_markdown(page: str, expected: str) -> None:
    assert site.with_indents(page) == expected


def test_site_gets_pages_with_these_indents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "PAGES", tmp_path / "pages")
    site.stage_pages()
    assert "\n    ```sh\n" in (tmp_path / "pages" / "docs" / "kueue.md").read_text()


def test_pictures_follow_their_paragraphs_of_the_overview() -> None:
    text = site.with_pictures(PAGES["README.md"])
    shown = re.findall(r"!\[[^]]+\]\(docs/pictures/(\w+)\.svg\)", text)
    assert sorted(shown) == sorted(COMMANDS)
    with pytest.raises(PackageError, match="Status"):
        site.with_pictures("without it")


LOADED = {
    "<script src=https://x.test/a.js></script>": 1,
    '<link href="//x.test/a.css" rel="stylesheet">': 1,
    "<style>@import 'a'</style>": 1,
    "<p style='background: url(http://x.test/a.png)'>": 1,
    '<img alt="" src="https://x.test/a.png">': 1,
    '<a href="https://x.test/">x</a><script src="a.js"></script>': 0,
    '<link rel="canonical" href="https://x.test/">': 0,
}


@pytest.mark.parametrize(("text", "number"), LOADED.items())
def test_remote_files_of_the_site_are_listed(
    text: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    (tmp_path / "a.html").write_text(text)
    assert len(site.remote_addresses()) == number
