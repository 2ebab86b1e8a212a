"""Converters that are shell scripts, and functions that run one to its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from dnm.converter.contract import Environment
from dnm.converter.start import ConverterCall, ConverterPatience, run_converters
from dnm.model.blackout import Secrets
from dnm.model.lent import Ended
from tests.processes import PATIENCE

LONG = timedelta(seconds=PATIENCE)


def script(directory: Path, body: str, name: str = "node-convert") -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def an_environment(*hidden: str) -> Environment:
    """Returns the environment of a converter, and the values that dnm must hide in its output."""
    return Environment(environment=dict(os.environ), secrets=Secrets(hidden))


def never() -> bool:
    return False


def run_script(
    path: Path,
    timeout: timedelta = LONG,
    should_leave: Callable[[], bool] = never,
    grace: timedelta = LONG,
    key: str = "k",
) -> tuple[Ended, list[str]]:
    lines: list[str] = []
    call = ConverterCall(key, [str(path)], an_environment(), path.parent / "output")
    waits = ConverterPatience(timeout=timeout, patience=LONG, grace=grace)
    ended = run_converters({key: call}, waits, lambda _, line: lines.append(line), should_leave)
    return ended[key], lines
