"""The verbs of a person, on a registry of real files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dnm.cli import admin, by_hand, person
from dnm.model.config import Config
from dnm.model.errors import DnmError
from dnm.model.lent import LentNode, Phase
from dnm.model.observed import Backoff
from dnm.model.registry import Registry
from dnm.run.registry import load_registry, save_registry
from tests.builders import NOW, QUEUE, a_config, a_lent_node


def site(directory: Path, **nodes: LentNode) -> Config:
    config = a_config(directory)
    save_registry(config, Registry(nodes=nodes))
    return config


HOLDER = (
    "import sys; from filelock import FileLock\n"
    "with FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
)


def test_a_person_waits_for_the_run_that_is_at_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that listens to its converter holds the lock for a while, and at 3 a.m. that is
    just when somebody wants to pause dnm."""
    config = site(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(config.lock_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    say_wait = person.say_wait
    stdin = holder.stdin

    def then_let_go() -> None:
        say_wait()
        stdin.close()

    monkeypatch.setattr(person, "say_wait", then_let_go)
    assert "paused" in admin.pause(config, None, "it burns")
    assert "waits for it to end" in capsys.readouterr().err
    pause = load_registry(config, NOW).pause
    assert pause is not None and pause.reason == "it burns"
    assert holder.wait() == 0
    holder.stdout.close()


def test_what_is_reset_is_said(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    backoff = Backoff(failures=1, until=NOW, ask_at_most=1)
    nodes = {"a001": a_lent_node(Phase.FAILED), "a002": a_lent_node()}
    save_registry(config, Registry(nodes=nodes, backoffs={"a": backoff}))
    closed = f"the breaker of {QUEUE} is closed; it may be lent nodes again"
    for name, said in (
        ("a001", "a001 will be returned to Slurm by the next run"),
        (QUEUE.upper(), closed),
        ("a", "node type a backs off no more"),
        ("a", "node type a was not backing off"),
    ):
        assert admin.reset(config, name) == said
    with pytest.raises(DnmError, match="a002 is serving, not failed"):
        admin.reset(config, "a002")
    registry = load_registry(config, NOW)
    assert registry.nodes["a001"].phase is Phase.RETURNING and not registry.backoffs


def test_the_end_of_the_last_run_stays_where_it_was(tmp_path: Path) -> None:
    """`dnm status` tells from the file's time when the last run ended."""
    config = site(tmp_path, a001=a_lent_node())
    path = config.converted_nodes_path
    os.utime(path, (1000, 1000))
    by_hand.hold(config, ["a001"])
    assert load_registry(config, NOW).held == ("a001",)
    assert path.stat().st_mtime == 1000
