"""Tests that all processes of the tests end with pytest, in whatever way it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.processes import PATIENCE, wait_until

ROOT = Path(__file__).parent.parent
# A daemon in a session of its own, without any tie to its starter, and two folders.
LEAVES = """
import os, subprocess, sys, tempfile, time
from pathlib import Path
from tests.reaper import in_memory

def test_leaves():
    here = Path(os.environ["HERE"])
    subprocess.run(["sh", "-c", "setsid env -i sleep 98765 & echo $! > $HERE/daemon"], check=True)
    folders = (tempfile.mkdtemp(), tempfile.mkdtemp(dir=in_memory()))
    (here / "folders").write_text(" ".join(folders))
    (here / "tests").write_text(str(os.getpid()))
    (here / "ready").touch()
    while (here / "waits").exists():
        time.sleep(0.02)
"""
SIGNALS = """
import re, subprocess

def test_signals():
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    ignored = int(re.search("SigIgn:\\\\s*(\\\\w+)", status)[1], 16)
    assert not ignored & (1 << 0 | 1 << 1 | 1 << 14), status
"""


def play(directory: Path, test: str, *options: str) -> subprocess.Popen[str]:
    (directory / "test_made.py").write_text(test)
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "tests.reaper", "-p", "no:cacheprovider",
         *options, str(directory)],
        cwd=ROOT, env={**os.environ, "HERE": str(directory)}, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def kill_tests(command: int, number: int, directory: Path) -> None:
    os.kill(int((directory / "tests").read_text()), number)


def _is_removed(folder: Path, command: subprocess.Popen[str]) -> bool:
    """Returns whether a folder is removed, or may be kept because the tests failed."""
    return not folder.exists() or command.returncode == 1


WAYS = {
    "it passes": (None, 0, 1),  # and reports the process that it leaves
    "it is interrupted": (os.kill, signal.SIGINT, 2),
    "it is told to end": (os.kill, signal.SIGTERM, 128 + 15),
    "it is killed": (os.kill, signal.SIGKILL, -9),
    "its group is killed": (os.killpg, signal.SIGKILL, -9),
    "the process that plays is killed": (kill_tests, signal.SIGKILL, None),
}


@pytest.mark.parametrize(("blow", "number", "code"), WAYS.values(), ids=WAYS)
def test_no_process_outlives_the_tests(
    tmp_path: Path, blow: Callable[..., None] | None, number: int, code: int | None
) -> None:
    if blow:
        (tmp_path / "waits").touch()
    command = play(tmp_path, LEAVES, *(["--numprocesses=1"] if blow is kill_tests else []))
    wait_until(lambda: (tmp_path / "ready").exists())
    daemon = Path(f"/proc/{(tmp_path / 'daemon').read_text().strip()}")
    if blow is kill_tests:
        kill_tests(command.pid, number, tmp_path)
        (tmp_path / "waits").unlink()  # another worker plays it again
    elif blow:
        blow(command.pid, number)
    message, errors = command.communicate(timeout=PATIENCE)
    wait_until(lambda: not daemon.exists())
    for folder in map(Path, (tmp_path / "folders").read_text().split()):
        assert folder.parent.name.startswith("dnm-tests-")
        wait_until(partial(_is_removed, folder.parent, command))
    assert code in (None, command.returncode), message + errors
    assert blow or "the tests did not end, and left: sleep 98765" in errors


def test_children_of_the_tests_inherit_no_ignored_signal(tmp_path: Path) -> None:
    before = {item: signal.signal(item, signal.SIG_IGN) for item in (signal.SIGINT, signal.SIGHUP)}
    try:
        command = play(tmp_path, SIGNALS)
    finally:
        for signals, handler in before.items():
            signal.signal(signals, handler)
    message, errors = command.communicate(timeout=PATIENCE)
    assert command.returncode == 0, message + errors
