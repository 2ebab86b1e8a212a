"""The real command in a shell: help, guesses, completion, pipes, monitors, terminals."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.site import QUEUE, Site, a_workshop_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    directory = tmp_path_factory.mktemp("shell")
    made = a_workshop_site(Sandbox(directory / "sandbox").start(), directory)
    made.run_until_rest()
    return made


@pytest.mark.parametrize("words", [(), ("status",), ("queues",), ("queues", "show")])
def test_help_has_a_short_name(site: Site, words: tuple[str, ...]) -> None:
    done = site.command(*words, "-h")
    assert done.returncode == 0 and "Usage:" in done.stdout and "--help" in done.stdout


GUESSES = {
    "stauts": "did you mean 'status'?",
    "runn": "there are run, plan",
    "unpause": "there are run, plan",
    "forgets": "there are run, plan",
}


@pytest.mark.parametrize("word", GUESSES)
def test_an_unknown_verb_gets_no_dangerous_guess(site: Site, word: str) -> None:
    done = site.command(word)
    assert done.returncode == 2 and GUESSES[word] in done.stderr
    assert f"there is no verb '{word}'" in done.stderr
    asked = site.command("queues", "rebse")
    assert "there are check, show, rebase" in asked.stderr


def completed(site: Site, line: str) -> list[str]:
    words = line.split(" ")
    done = subprocess.run(
        [Path(sys.executable).with_name("dnm")],
        env={**os.environ, "DNM_CONFIG": str(site.path), "_DNM_COMPLETE": "complete_bash",
             "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.split()


LINES = {
    "dnm hold a": ["a001", "a002"],
    "dnm reset root": [QUEUE],
    "dnm explain dev": ["dev/"],
    "dnm test-load list -n d": ["dev"],
    "dnm queues rebase --queue root.anvil": [QUEUE],
    "dnm test-load delete w": ["warm-up"],
    "dnm hold x": [],
}


def test_the_shell_completes_nodes_queues_namespaces_and_loads(site: Site) -> None:
    site.command("test-load", "create", "-n", "dev", "--name", "warm-up", "--replicas", "0")
    assert {line: completed(site, line) for line in LINES} == LINES
    site.path.rename(site.path.with_suffix(".away"))
    assert completed(site, "dnm hold a") == []
    site.path.with_suffix(".away").rename(site.path)


@pytest.mark.parametrize("words", [("plan",), ("status", "-o", "json"), ("history",)])
def test_the_exit_code_is_steady_where_the_reader_leaves(
    site: Site, words: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| true`: nobody is there from the beginning
    done = subprocess.run(
        [sys.executable, "-m", "dnm.cli", *words],
        env={**os.environ, "DNM_CONFIG": str(site.path)},
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_monitor_gets_one_word(site: Site) -> None:
    site.command("run")
    done = site.command("status", "--health")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    saved = site.config.converted_nodes_path.read_bytes()
    site.config.converted_nodes_path.write_bytes(b"{")
    done = site.command("status", "--health")
    site.config.converted_nodes_path.write_bytes(saved)
    assert done.returncode == 2 and done.stdout.startswith("person: ")


def at_a_terminal(site: Site, *words: str, **environment: str) -> str:
    """What the command says where stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "dnm.cli", *words],
        env={**os.environ, "DNM_CONFIG": str(site.path), "TERM": "xterm", **environment},
        stdout=theirs, stderr=theirs,
    ) as child:  # fmt: skip
        os.close(theirs)
        said = b""
        while part := _read(ours):
            said += part
        child.wait(60)
    os.close(ours)
    return said.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the terminal's other end is closed
        return b""


def test_no_colour_where_none_is_wanted_or_possible(site: Site) -> None:
    assert "\033[1mQueues\033[0m" in at_a_terminal(site, "status")
    assert "\033" not in at_a_terminal(site, "status", NO_COLOR="1")
    assert "\033" not in at_a_terminal(site, "status", TERM="dumb")


def test_a_locked_run_says_so_at_a_terminal(site: Site) -> None:
    from filelock import FileLock

    with FileLock(site.config.lock_path, mode=0o600):
        assert "another run holds the lock" in at_a_terminal(site, "run")
        silent = site.command("run")
        assert (silent.returncode, silent.stdout + silent.stderr) == (75, "")


def test_a_run_tells_its_actions_as_the_plan_has_them(sandbox: Sandbox, tmp_path: Path) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    planned = json.loads(site.command("plan", "-o", "json").stdout)["actions"]
    done = json.loads(site.command("run", "-o", "json").stdout)
    assert done["schema"] == "dnm.run/2" and len(planned) == 1
    assert [{**one, "id": ""} for one in done["actions"]] == [{**planned[0], "id": ""}]
    assert [line.split()[0] for line in done["lines"]] == ["action=convert"]


def test_the_log_says_why_and_for_whom(sandbox: Sandbox, tmp_path: Path) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    (line,) = [
        line for line in site.command("run", "--log-console").stderr.splitlines()
        if "action=convert" in line
    ]  # fmt: skip
    assert "reason='its pods" in line and line.endswith(" instance=prod")
