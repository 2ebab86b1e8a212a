"""The tables of docs/real.md that a story compares with its results."""

from __future__ import annotations

from tests.real.namespaces import REPOSITORY


def documented(heading: str, version: str) -> dict[str, tuple[str, ...]]:
    """Returns the cells of each row for a release of YuniKorn: `x (1.9: y)` is x before 1.9. A row
    may have several names, separated by semicolons."""
    _, _, rest = (REPOSITORY / "docs" / "real.md").read_text().partition(f"| {heading} | ")
    results: dict[str, tuple[str, ...]] = {}
    for line in rest.partition("\n\n")[0].splitlines()[2:]:
        names, *cells = line.strip("| ").split(" | ")
        row = tuple(_of_version(cell, version) for cell in cells)
        results |= dict.fromkeys(names.split("; "), row)
    return results


def _of_version(cell: str, version: str) -> str:
    before, _, since = cell.partition(" (1.9: ")
    return since.rstrip(")") if since and not version.startswith("1.8") else before
