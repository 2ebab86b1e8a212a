"""Test that pytest can import the tests on real servers. They run only at night, so that otherwise
a renamed helper would be noticed late."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_on_real_servers_is_collected() -> None:
    files = sorted(str(path) for path in (ROOT / "tests" / "real").glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *files],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
