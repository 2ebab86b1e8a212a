"""Wrong clocks for one process and its children; see clock.c."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.real.build import cache as built


@cache
def clock_library() -> Path:
    """Builds the library that shifts the clock of a process, and returns its path."""
    source, library = Path(__file__).with_name("clock.c"), built() / "clock.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        # Several rigs build it at once, each in a namespace where its process has the same id.
        with tempfile.TemporaryDirectory(prefix=".building-clock-", dir=built()) as own:
            made = Path(own) / library.name
            command = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
            subprocess.run(command, check=True)
            made.rename(library)
    return library


def shifted(seconds: int) -> Mapping[str, str]:
    """Returns the environment variables that shift the clock of a process by `seconds`."""
    return {"CLOCK_OFF": str(seconds), "LD_PRELOAD": str(clock_library())}
