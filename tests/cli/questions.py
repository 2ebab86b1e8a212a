"""The answers of an administrator at a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import typer


def answer_questions(
    monkeypatch: pytest.MonkeyPatch, answer: bool, meanwhile: Callable[[], object] = list
) -> list[str]:
    """Calls `meanwhile`, then answers each question. Returns the list that gets the questions."""
    asked: list[str] = []

    def confirm(text: str, **options: Any) -> bool:
        asked.append(text)
        meanwhile()
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr("sys.stdin", Terminal())
    return asked


class Terminal:
    """The standard input of an administrator."""

    def isatty(self) -> bool:
        return True
