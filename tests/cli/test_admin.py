"""The verbs of a person, on a registry of real files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dnm.cli import admin, by_hand, person
from dnm.model.config import Config
from dnm.model.plan import Reason
from dnm.model.registry import Backoff, ConverterProcess, LentNode, Phase, Registry
from dnm.plan.phases import advance_node
from dnm.run.registry import load_registry, save_registry
from tests.builders import NOW, a_batch_node, a_config, a_lent_node, facts

CONVERTER = ConverterProcess(pid=77, start_ticks=5)


def site(directory: Path, **nodes: LentNode) -> Config:
    config = a_config(directory)
    save_registry(config, Registry(nodes=nodes))
    return config


@pytest.mark.parametrize("phase", [Phase.RETURNING, Phase.FAILED])
def test_a_reset_waits_for_the_converter_that_is_still_at_work(
    tmp_path: Path, phase: Phase
) -> None:
    config = site(tmp_path, a001=a_lent_node(phase, converter=CONVERTER, attempts=3))
    assert "returned" in admin.reset(config, "a001")
    entry = load_registry(config, NOW).nodes["a001"]
    assert (entry.phase, entry.attempts) == (Phase.RETURNING, 0)
    at_work = facts(batch=[a_batch_node(in_service=False)], running=frozenset([CONVERTER]))
    step = advance_node(config, "a001", entry, at_work)
    assert not step.wants_return and step.verdict.reason is Reason.RETURNING


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


def test_a_back_off_is_ended_once(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    backoff = Backoff(failures=1, until=NOW, ask_at_most=1)
    save_registry(config, Registry(backoffs={"a": backoff}))
    assert admin.reset(config, "a") == "node type a backs off no more"
    assert admin.reset(config, "a") == "node type a was not backing off"


def test_the_end_of_the_last_run_stays_where_it_was(tmp_path: Path) -> None:
    """`dnm status` tells from the file's time when the last run ended."""
    config = site(tmp_path, a001=a_lent_node())
    path = config.converted_nodes_path
    os.utime(path, (1000, 1000))
    by_hand.hold(config, ["a001"])
    assert load_registry(config, NOW).held == ("a001",)
    assert path.stat().st_mtime == 1000
