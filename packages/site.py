"""Builds the pages as a site below build/site/: `make docs`.

    python -m packages.site

The pages keep their folders, so their links hold. The overview gets the pictures of
packages/pictures.py. Numbered lists get the indents that Python-Markdown needs. mkdocs
fails if a link or an anchor has no target, if a page is in no menu, or if the site would load a
file from elsewhere.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from functools import partial

from packages.build import ROOT, PackageError, run

PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
COPIED = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", "etc")
# The beginning of a paragraph of the README -> the pictures that follow it.
PICTURES: Mapping[str, tuple[str, ...]] = {
    "**Status.**": ("status", "plan"),
    "**History.**": ("explain", "report"),
}


def stage_pages() -> None:
    """Copies the pages for mkdocs, and adds indents, and the pictures to the overview."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        shutil.copytree(source, PAGES / name) if source.is_dir() else shutil.copy(source, PAGES)
    for page in PAGES.rglob("*.md"):
        page.write_text(with_indents(page.read_text()))
    overview = PAGES / "README.md"
    overview.write_text(with_pictures(overview.read_text()))
    for name in ("site.css", "site.js"):
        shutil.copy(ROOT / "packages" / name, PAGES)


def with_indents(text: str) -> str:
    """Returns a page with numbered lists as Python-Markdown needs them, if their items have blocks.

    It reads three columns before a block, or no empty line after it, as the end of the list.
    """
    lines: list[str] = []
    in_list = has_blocks = False
    for line in text.splitlines(keepends=True):
        begins, indented = re.match(r"\d\. ", line), line.startswith("   ")
        in_list = bool(begins) or (in_list and (indented or not line.strip()))
        has_blocks = in_list and (has_blocks or not line.strip())
        before = "\n" if begins and has_blocks else " " if in_list and indented else ""
        lines.append(before + line)
    return "".join(lines)


def _append(text: str, match: re.Match[str]) -> str:
    return match[0] + text


def with_pictures(text: str) -> str:
    """Returns the overview with its pictures. Raises PackageError if their paragraph is missing."""
    for begin, names in PICTURES.items():
        shown = "".join(
            f"![The output of dnm {name} at a terminal](docs/pictures/{name}.svg)\n\n"
            for name in names
        )
        text, count = re.subn(
            rf"(^{re.escape(begin)}.*?\n\n)", partial(_append, shown), text,
            count=1, flags=re.S | re.M,
        )  # fmt: skip
        if not count:
            raise PackageError(f"README.md has no paragraph {begin}")
    return text


def remote_addresses() -> list[str]:
    """Returns each address of another host from which a page would load something by itself."""
    loads = re.compile(
        r"""<(?:script|img|iframe|link(?=[^>]*rel="?(?:stylesheet|preload|icon|preconnect)))"""
        r"""[^>]*(?:src|href)="?(https?:)?//[^\s">]+|@import|url\(["']?(?:https?:)?//"""
    )
    files = (file for ending in ("html", "css", "svg") for file in SITE.rglob(f"*.{ending}"))
    return [
        f"{file.relative_to(SITE)}: {match[0]}"
        for file in files
        for match in loads.finditer(file.read_text(errors="replace"))
    ]


def main() -> int:
    try:
        stage_pages()
        run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", NO_MKDOCS_2_WARNING="1")
        if addresses := remote_addresses():
            raise PackageError("the site loads from elsewhere:\n" + "\n".join(addresses))
    except PackageError as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    print(f"{SITE}/index.html: {len(list(SITE.rglob('*.html')))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
