"""What `make test` plays once more, and what fails at once: its own options, on made tests."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = """
from pathlib import Path
from dnm.lab.sandbox.violations import Violation

def is_second(name):
    path = Path(__file__).parent / name
    was_there = path.exists()
    path.touch()
    return was_there

def test_busy():
    assert is_second("busy"), "the machine was busy"

def test_broken():
    violations = [] if is_second("broken") else [Violation(kind="x", node="a", detail="b", at="c")]
    assert not violations

def test_always():
    assert is_second("always") is None
"""


def options() -> list[str]:
    """The Makefile's own."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (line,) = (one for one in text.splitlines() if one.startswith("AGAIN :="))
    return shlex.split(line.partition(":=")[2])


def test_what_went_by_the_clock_is_played_once_more_and_a_broken_promise_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_made.py").write_text(TESTS)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rf", *options(), tmp_path],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    tests, _, end = answer.stdout.partition("rerun test summary")
    assert answer.returncode == 1 and "2 failed, 1 passed, 2 rerun" in end, answer.stdout
    assert "test_busy" in end and "the machine was busy" in end
    failed = {line.split("::")[1].split()[0] for line in end.splitlines() if "FAILED" in line}
    assert failed == {"test_broken", "test_always"} and "Violation(kind='x'" in tests
