"""Functions that read the pages of the documentation: tables, commands, links, names of code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted(
        [path for pattern in ("*.md", "docs/*.md", "docs/adr/*.md", "etc/**/*.md")
         for path in ROOT.glob(pattern)]
    )
}  # fmt: skip


def without_code(text: str) -> str:
    """Returns the text without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)


def section(page: str, title: str) -> str:
    """Returns the text below a heading, up to the next heading of its level or a higher one."""
    head = re.search(rf"^(#+) {re.escape(title)}\n", PAGES[page], flags=re.M)
    assert head, f"{page} has no heading {title!r}"
    rest = PAGES[page][head.end() :]
    return re.split(rf"^#{{1,{len(head[1])}}} ", rest, flags=re.M)[0]


def rows(text: str) -> list[list[str]]:
    """Returns the cells of every table, without its head."""
    results = []
    for table in re.findall(r"(?:^\|.*\|\n?)+", text, flags=re.M):
        lines = table.strip().splitlines()
        assert re.fullmatch(r"[|: -]+", lines[1]), f"no table: {lines[0]}"
        results += [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines[2:]]
    return results


def quoted(text: str) -> list[str]:
    """Returns all texts between backticks in a text."""
    return re.findall(r"`([^`\n]+)`", without_code(text))


def table_of(page: str, title: str, first_head: str = "") -> list[list[str]]:
    """Returns the rows of the only table below a heading, or of the table with a head that begins
    with `first_head`."""
    text = section(page, title)
    if first_head:
        text = f"| {first_head}" + text.split(f"\n| {first_head}")[1].split("\n\n")[0]
    return rows(text)


@cache
def names_in(path: str) -> frozenset[str]:
    """Returns the functions, classes, methods (`Class.method`) and constants of a file."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        names |= _defined(node)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for part in node.body for name in _defined(part)}
    return frozenset(names)


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


@cache
def all_names() -> frozenset[str]:
    """Returns all names that the pages may use: those of dnm, with methods and fields by their own
    names too, and those of the tests on real servers."""
    tests = ("real/*.py", "converters/test_*.py")
    paths = [
        *ROOT.glob("dnm/**/*.py"),
        *(path for glob in tests for path in ROOT.glob(f"tests/{glob}")),
    ]
    names = {name for path in paths for name in names_in(str(path.relative_to(ROOT)))}
    return frozenset(names | {name.rpartition(".")[2] for name in names})
