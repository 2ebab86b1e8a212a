"""Tests of reports about runs that began and never ended, and of signals at a bad moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dnm.checks.host import check_last_run
from dnm.cli.act.run import StopSignals
from dnm.cli.terminal import interrupted
from dnm.model.config import Config
from dnm.model.registry import Registry, RunRecord
from dnm.run.health import judge_health
from tests.builders import a_config


def site(directory: Path, began: timedelta, ended: timedelta) -> tuple[Config, datetime]:
    """Builds a site with a last run that began and ended so long ago. Returns also the time."""
    config = a_config(converted_nodes_path=directory / "converted_nodes.json")
    now = datetime.now(UTC)
    for path, age in ((config.began_path, began), (config.ended_path, ended)):
        path.touch()
        os.utime(path, ((now - age).timestamp(),) * 2)
    return config, now


def test_runs_that_are_always_killed_make_health_stale(tmp_path: Path) -> None:
    config, now = site(tmp_path, timedelta(seconds=30), timedelta(hours=3))
    word, why, _ = judge_health(config, Registry(), now)
    assert word == "stale", why


def test_unfinished_run_has_no_exit_code(tmp_path: Path) -> None:
    config, now = site(tmp_path, timedelta(seconds=30), timedelta(seconds=90))
    registry = Registry(last_run=RunRecord(exit_code=1, errors=("of the one before",)))
    assert "ended with code" not in str([*check_last_run(config, registry, now)])


@pytest.mark.parametrize(
    ("words", "is_look"),
    [("plan", True), ("--config /etc/x.ini plan", True), ("run", False), ("-c plan run", False)],
)
def test_config_argument_named_like_a_command_is_no_command(
    words: str, is_look: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dnm", *words.split()])
    assert interrupted._print_interrupted() == interrupted.CODE
    assert ("unfinished" not in capsys.readouterr().err) is is_look


class Busy:
    """A stderr that is in the middle of a write, so that a signal handler cannot write to it."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")


def test_signal_during_a_log_line_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.getsignal(kind) for kind in kinds]
    signals = StopSignals(timedelta(seconds=9))
    monkeypatch.setattr(sys, "stderr", Busy())
    try:
        signals._note(15, None)
    finally:
        signals.close()
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
    assert "finishing the current action" in capfd.readouterr().err


def test_non_blocking_stdout_is_awaited() -> None:
    """ssh, or another process that shares stdout, may have made it non-blocking."""
    code = (
        "import sys; from dnm.cli import __main__ as m; m._open_streams()\n"
        "for _ in range(300): print('x' * 1000)\n"
        "sys.stdout.flush(); print('done', file=sys.stderr)\n"
    )
    read, write = os.pipe()
    os.set_blocking(write, False)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(write)
        time.sleep(0.3)  # by now the pipe is full, or it fills during the read
        got = 0
        while piece := os.read(read, 65536):
            got += len(piece)
        os.close(read)
        assert process.stderr is not None and "done" in process.stderr.read()
    assert got == 300 * 1001
