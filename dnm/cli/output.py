"""How verbs print: JSON documents, lines wrapped to the terminal, tables, amounts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dnm.model.printable import bold, columns, terminal_width, wrapped


def print_json(document: object) -> None:
    """Prints one document on stdout, indented."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.write(text + "\n")


def print_line(text: str = "", indent: str = "") -> None:
    """Prints a line for people, wrapped where a terminal is narrower."""
    for line in wrapped(text, terminal_width(), indent):
        print(line)


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], empty: str
) -> None:
    """Prints a title and a table below it; without rows the sentence `empty`."""
    print(bold(title))
    for line in columns(header, rows, terminal_width() - 2) if rows else (empty,):
        print(f"  {line}")


def amounts(resources: Mapping[str, int]) -> str:
    """Returns `128 vcore, 256G memory`: exact, in whole cores and decimal bytes where these are."""
    from dnm.model.quantity import format_yunikorn

    shown = sorted(resources.items(), key=lambda item: (item[0] != "vcore", item[0]))
    return ", ".join(
        f"{format_yunikorn(name, amount, '1G' if name == 'memory' else '1')} {name}"
        for name, amount in shown
        if name != "pods"
    )


def decision_numbers(numbers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields name and words of each number that a decision for a queue rested on or came to."""
    for key in ("used", "limit", "headroom"):
        if numbers.get(key):
            yield key, amounts(numbers[key])
    for key in ("wanted", "granted"):
        if numbers.get(key):
            nodes = (f"{count} of type {name}" for name, count in numbers[key].items())
            yield key, ", ".join(nodes)
