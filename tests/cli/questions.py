"""Replaced questions of commands: the answers of an administrator at a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import typer


def answer_questions(
    monkeypatch: pytest.MonkeyPatch, answer: bool, meanwhile: Callable[[], object] = list
) -> list[str]:
    """Answers each question of a command, after `meanwhile`. Returns a list of the questions."""
    asked: list[str] = []

    def confirm(text: str, **options: Any) -> bool:
        asked.append(text)
        meanwhile()
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr("sys.stdin", Terminal())
    return asked


class Terminal:
    """A standard input that is a terminal, so that commands ask their questions."""

    def isatty(self) -> bool:
        return True
