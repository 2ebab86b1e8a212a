"""Tests of `dnm demo` as a newcomer runs it, but faster."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.night import sample_by_day
from tests.processes import wait_until

ROOT = Path(__file__).parents[2]
PLAY = "import sys; from dnm.lab.demo.workshop import demo; sys.exit(demo(speed=5))"


def start(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PLAY], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory), "COLUMNS": "80"},
        start_new_session=True,
    )  # fmt: skip


def read_until_workshop(process: subprocess.Popen[str]) -> IO[str]:
    """Reads the demo's output until its workshop begins. Returns the stream of the rest."""
    assert process.stdout is not None
    assert any("A workshop begins" in line for line in process.stdout)
    return process.stdout


def servers(directory: Path) -> list[str]:
    """Returns the command lines of running processes that name the directory."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(directory) in word for word in words):
            lines.append(" ".join(words))
    return lines


def test_demo_ends_with_every_node_returned(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        message, _ = process.communicate(timeout=300)
    assert process.returncode == 0, message
    assert "75 of 75 sessions ran to their end" in message
    assert "All checks passed" in message
    assert [line for line in message.splitlines() if len(line) > 80] == []
    assert list(tmp_path.iterdir()) == [] and servers(tmp_path) == []


def assert_nothing_is_left(directory: Path) -> None:
    wait_until(lambda: not servers(directory))
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("sent", sample_by_day(3, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_stopped_demo_leaves_nothing_behind(tmp_path: Path, sent: signal.Signals) -> None:
    with start(tmp_path) as process:
        stdout = read_until_workshop(process)
        os.killpg(process.pid, sent)
        message = stdout.read()
        process.wait(timeout=300)
    assert process.returncode == 130, message
    assert_nothing_is_left(tmp_path)


def test_demo_interrupted_repeatedly_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    with start(tmp_path) as process:
        read_until_workshop(process)

        def ends() -> bool:
            os.killpg(process.pid, signal.SIGINT)
            return process.poll() is not None

        wait_until(ends)
    assert_nothing_is_left(tmp_path)


def test_demo_with_a_closed_terminal_leaves_nothing_behind(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PYTHONPATH=str(ROOT), TMPDIR=str(tmp_path))
        os.execv(sys.executable, [sys.executable, "-c", PLAY])
    message = b""
    while b"A workshop begins" not in message:
        message += os.read(terminal, 65536)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0
    assert_nothing_is_left(tmp_path)
