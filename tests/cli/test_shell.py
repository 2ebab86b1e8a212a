"""The real command in a shell: help, suggestions, completion, pipes, monitoring, terminals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from dnm.cli.app import app
from dnm.cli.look.history import KINDS
from dnm.cli.table import TABLE
from dnm.cli.terminal.interrupted import LOOKS
from dnm.lab.sandbox.cluster import Sandbox
from tests.night import sample_by_day
from tests.site import QUEUE, Site, a_workshop_site

ALL = typer.main.get_command(app)
VERBS = sorted(ALL.list_commands(None))  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    directory = tmp_path_factory.mktemp("shell")
    made = a_workshop_site(Sandbox(directory / "sandbox").start(), directory)
    made.run_until_rest()
    return made


@pytest.mark.parametrize("words", [(), ("status",), ("queues",), ("queues", "show")])
def test_help_has_a_short_option(site: Site, words: tuple[str, ...]) -> None:
    done = site.command(*words, "-h")
    assert done.returncode == 0 and "Usage:" in done.stdout and "--help" in done.stdout


GUESSES = {
    "stauts": "did you mean 'status'?",
    "lned": "did you mean 'lend'?",
    "forgets": "did you mean 'forget'?",
    "unhodl": "did you mean 'unhold'?",
    "unpause": "--help` lists the commands",  # not the opposite command
    "xyz": "--help` lists the commands",
    "queues rebse": "did you mean 'rebase'?",
    "queues xyz": "commands: check, show, rebase",
    "--config nowhere.ini stauts": "did you mean 'status'?",
}


@pytest.mark.parametrize("words", GUESSES)
def test_unknown_command_gets_a_suggestion_and_does_nothing(site: Site, words: str) -> None:
    done = site.command(*words.split())
    assert done.returncode == 2 and GUESSES[words] in done.stderr
    assert f"there is no command '{words.split()[-1]}'" in done.stderr


OUT_OF_RANGE = {
    "demo --speed 0": "0.0 is not in the range 0.1<=x<=1000",
    "demo --speed -1": "-1.0 is not in the range 0.1<=x<=1000",
    "sandbox up --speed inf": "inf is not in the range 0.1<=x<=1000",
    "sandbox up --port 99999": "99999 is not in the range 0<=x<=65535",
    "sandbox up --nodes -1": "-1 is not in the range x>=0",
}


@pytest.mark.parametrize("words", OUT_OF_RANGE)
def test_number_out_of_range_is_named_and_nothing_starts(
    site: Site, tmp_path: Path, words: str
) -> None:
    place = ("--dir", str(tmp_path / "up")) if "up" in words.split() else ()
    done = site.command(*words.split(), *place)
    assert done.returncode == 2 and OUT_OF_RANGE[words] in done.stderr, done.stderr
    assert not (tmp_path / "up").exists() and not done.stdout


BEFORE = [("--config", "{}", "plan"), ("--config={}", "plan"), ("-c", "{}", "queues", "show"),
          ("-c{}", "event", "list"), ("--config", "{}", "node-types", "check"),
          ("--config", "/nowhere.ini", "plan", "-c", "{}")]  # fmt: skip


@pytest.mark.parametrize("words", BEFORE, ids=" ".join)
def test_config_option_is_accepted_before_and_after_the_command(
    site: Site, words: tuple[str, ...]
) -> None:
    named = [word.format(site.path) for word in words]
    assert site.command(*named, DNM_CONFIG="/nowhere.ini").returncode == 0
    missing = site.command(*(word.format("/nix.ini") for word in words))
    assert missing.returncode == 2 and "/nix.ini" in missing.stdout + missing.stderr


def test_help_lists_each_command_once_by_purpose(site: Site) -> None:
    shown = site.command("--help").stdout
    parts = re.split(r"^(Look|Act|Manual changes|Set up):$", shown, flags=re.M)[1:]
    verbs = {
        title: re.findall(r"^  ([a-z][a-z-]*) ", text, flags=re.M)
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }
    assert list(verbs) == ["Look", "Act", "Manual changes", "Set up"]
    assert {"plan", "status", "explain"} <= set(verbs["Look"])
    assert {"lend", "return", "exclude", "event"} <= set(verbs["Manual changes"])
    assert sorted(item for many in verbs.values() for item in many) == VERBS
    assert "..." not in shown.partition("Look:")[2]


def leaves(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every command of dnm with its path, also those in groups of commands."""
    if not hasattr(command, "list_commands"):
        yield words, command
        return
    for name in command.list_commands(None):
        yield from leaves(command.get_command(None, name), *words, name)


LEAVES = dict(leaves(ALL))


def test_history_help_names_all_kinds() -> None:
    (kind,) = (param for param in LEAVES["history",].params if param.name == "kind")
    assert f": {', '.join(KINDS)}." in kind.help


def test_read_only_commands_have_no_reason_option() -> None:
    """Only commands that change the registry record a reason."""
    for word in LOOKS - {""}:
        of = [
            leaf for words, leaf in LEAVES.items() if f"{' '.join(words)} ".startswith(f"{word} ")
        ]
        assert of and not any(param.name == "reason" for item in of for param in item.params)


SILENT = {
    "demo",
    "sandbox",
    "convert-test",
    "node-types render",
    "queues rebase",
    "test-load",
}


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_option_has_a_single_spelling_and_letter_a_single_meaning(words: tuple[str, ...]) -> None:
    options = {letter: param for param in LEAVES[words].params for letter in param.opts}
    for letter, long in (("-n", "--namespace"), ("-c", "--config"), ("-o", "--output")):
        assert options.get(letter) is options.get(long)
    assert "--node-type" not in options
    assert "-o" in options or words[0] in SILENT or " ".join(words) in SILENT


def test_each_document_is_available_as_yaml_and_as_names(site: Site) -> None:
    for words in (("status",), ("plan",), ("nodes",), ("queues", "show"), ("event", "list"),
                  ("event", "list"), ("check",)):  # fmt: skip
        as_json = json.loads(site.command(*words, "-o", "json").stdout)
        as_yaml = yaml.safe_load(site.command(*words, "-o", "yaml").stdout)
        assert as_yaml.keys() == as_json.keys() and as_yaml["schema"] == as_json["schema"]
    lent = site.command("status", "-o", "name").stdout.split()
    assert lent == sorted(site.registry.nodes) and lent
    assert QUEUE in site.command("queues", "show", "-o", "name").stdout.splitlines()
    assert set(lent) <= set(site.command("nodes", "-o", "name", "--type", "a").stdout.split())
    lines = list(map(json.loads, site.command("history", "-o", "json").stdout.splitlines()))
    assert list(yaml.safe_load_all(site.command("history", "-o", "yaml").stdout)) == lines
    assert lines and {line["schema"] for line in lines} == {1}


def test_changing_command_reports_its_actions_as_a_document(site: Site) -> None:
    done = site.command("hold", "a[001-002]", "-o", "json", "--reason", "disk", SUDO_USER="erin")
    reported = json.loads(done.stdout)
    assert reported["lines"] == ["each of a[001-002] is held until `dnm unhold a[001-002]`"]
    assert [(item["verb"], item["object"], item["requester"]) for item in reported["actions"]] == [
        ("hold", "a001", "erin"), ("hold", "a002", "erin")
    ]  # fmt: skip
    assert "held: a[001-002]" in site.command("status").stdout
    assert site.command("unhold", "a[001-002]", "-o", "name").stdout == "a001\na002\n"
    again = json.loads(site.command("unhold", "a001", "-o", "json").stdout)
    assert (again["actions"], again["lines"]) == ([], ["a001 was not held"])
    order = site.command("lend", "1", "-n", "dev", "-o", "name").stdout.strip()
    ended = json.loads(site.command("return", order, "--now", "-o", "json").stdout)
    assert ended["actions"][0]["object"] == order and ended["run"]["schema"] == "dnm.run/1"


def test_plan_ends_with_sums_that_its_exit_code_reflects(sandbox: Sandbox, tmp_path: Path) -> None:
    made = a_workshop_site(sandbox, tmp_path)
    done = made.command("plan", "--detailed-exitcode")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (3, "2 to lend, 0 to return")
    assert made.command("plan").returncode == 0
    document = json.loads(made.command("plan", "-o", "json").stdout)
    assert (document["to_lend"], document["to_return"]) == (2, 0)
    made.run_until_rest()
    rest = made.command("plan", "--detailed-exitcode")
    assert (rest.returncode, rest.stdout.splitlines()[-1]) == (0, "0 to lend, 0 to return")
    sandbox.stop()
    assert made.command("plan", "--detailed-exitcode").returncode == 1


def test_health_output_refuses_json(site: Site) -> None:
    refused = site.command("status", "--health", "-o", "json")
    assert refused.returncode == 2 and "prints only text" in refused.stderr


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
    "dnm test-load d": ["dev"],
    "dnm queues rebase --queue root.anvil": [QUEUE],
    "dnm hold x": [],
}


def test_shell_completes_nodes_queues_and_namespaces(site: Site) -> None:
    assert {line: completed(site, line) for line in LINES} == LINES
    site.path.rename(site.path.with_suffix(".away"))
    assert completed(site, "dnm hold a") == []
    site.path.with_suffix(".away").rename(site.path)


def redirected(site: Site, words: str, how: str) -> tuple[int, str]:
    """Runs the command in a shell. Returns its exit code and its stderr."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m dnm.cli {words} {how}', sys.executable],
        env={**os.environ, "DNM_CONFIG": str(site.path)}, text=True, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words",
    sample_by_day(4, ["plan", "status -o json", "history", "nodes", "explain dev", "queues show",
               "hold a003", "unhold a003", "lend --help", "node-types check", "event list"]),
)  # fmt: skip
def test_exit_code_is_unchanged_if_the_reader_closes_the_pipe(site: Site, words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| true`: the pipe has no reader
    done = subprocess.run(
        [sys.executable, "-m", "dnm.cli", *words.split()],
        env={**os.environ, "DNM_CONFIG": str(site.path)},
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


FULL = "dnm: cannot write to stdout: no space left on device"
SHUT = "dnm: cannot write to stdout: it is closed"
OUTPUTS = {
    "status": (">/dev/full", 1, f"{FULL}; the command itself succeeded\n"),
    "status --wide": (">&-", 1, f"{SHUT}; the command itself succeeded\n"),
    "queues check": (">/dev/full", 1, f"{FULL}; the command itself succeeded\n"),
    "--help": (">/dev/full", 1, f"{FULL}; the command itself succeeded\n"),
    "plan --detailed-exitcode --help": (">&-", 1, f"{SHUT}; the command itself succeeded\n"),
    "hold a003": (">/dev/full", 1, f"{FULL}; the command itself succeeded\n"),
    "unhold a003 -o json": (">&- <&-", 1, f"{SHUT}; the command itself succeeded\n"),
    "stauts": (">/dev/null 2>&-", 2, ""),
    "nodes": (">/dev/null 2>/dev/full", 0, ""),
    "queues show": ("2>&- >/dev/null", 0, ""),
}


@pytest.mark.parametrize("words", sample_by_day(3, OUTPUTS))
def test_full_or_closed_output_does_not_interrupt_a_command(site: Site, words: str) -> None:
    how, *expected = OUTPUTS[words]
    assert redirected(site, words, how) == tuple(expected)
    if "hold" in words:
        assert ("a003" in site.registry.held) is words.startswith("hold")


@pytest.mark.parametrize(("unbuffered", "output"), [("1", "told"), ("", "")])
def test_unbuffered_output_appears_before_the_end(unbuffered: str, output: str) -> None:
    program = (
        "from os import _exit; from dnm.cli.__main__ import _open_streams as opened\n"
        "opened(); print('told'); _exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    assert done.stdout.strip() == output


@pytest.mark.parametrize(
    ("words", "how", "code"),
    sample_by_day(3, [
        ("run", ">/dev/full", 1), ("run", ">&- 2>&-", 1),
        ("run --log-console", "2>&- >/dev/null", 0), ("run", "<&- >&- 2>/dev/full", 1),
        ("lend 1 -n dev --now", ">/dev/full 2>&1", 1),
    ]),
)  # fmt: skip
def test_run_is_completed_without_any_usable_output(
    sandbox: Sandbox, tmp_path: Path, words: str, how: str, code: int
) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    assert redirected(site, words, how)[0] == code
    sandbox.tick(5)
    assert site.command("run").returncode == 0
    assert len(site.registry.nodes) > ("lend" in words)


def test_health_prints_a_single_word(site: Site) -> None:
    site.command("run")
    done = site.command("status", "--health")
    assert (done.returncode, done.stdout) == (0, "ok\n")
    saved = site.config.converted_nodes_path.read_bytes()
    site.config.converted_nodes_path.write_bytes(b"{")
    done = site.command("status", "--health")
    site.config.converted_nodes_path.write_bytes(saved)
    assert done.returncode == 2 and done.stdout.startswith("person: ")


@pytest.mark.parametrize("verb", ["history", "report", "simulate", "run"])
def test_missing_state_directory_is_reported_with_a_remedy(tmp_path: Path, verb: str) -> None:
    site = Site(Sandbox(tmp_path / "sandbox"), tmp_path / "site", state_dir=tmp_path / "none")
    done = site.command(verb)
    assert done.returncode == 2 and f"reate the state directory {tmp_path}/none" in done.stderr


def test_locked_run_is_reported_on_a_terminal_only(site: Site) -> None:
    """cron mails what a run prints. A script that moves the registry must know why it failed."""
    from filelock import FileLock

    with FileLock(site.config.lock_path, mode=0o600):
        assert "another run holds the lock" in site.at_a_terminal("run")
        silent = site.command("run")
        assert (silent.returncode, silent.stdout + silent.stderr) == (75, "")
        moved = site.command("registry", "move", "--to", "kubernetes")
        assert moved.returncode == 75 and "another run holds the lock" in moved.stderr


def test_run_document_lists_actions_like_the_plan(sandbox: Sandbox, tmp_path: Path) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    planned = json.loads(site.command("plan", "-o", "json").stdout)["actions"]
    done = json.loads(site.command("run", "-o", "json").stdout)
    assert done["schema"] == "dnm.run/1" and len(planned) == 1
    assert [{**action, "id": ""} for action in done["actions"]] == [{**planned[0], "id": ""}]
    assert [line.split()[0] for line in done["lines"]] == ["action=convert"]


@pytest.mark.parametrize("order", [(), ("lend", "1", "-n", "dev", "--reason", "course")])
def test_log_contains_reason_and_author_of_a_lend(
    sandbox: Sandbox, tmp_path: Path, order: tuple[str, ...]
) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    assert not order or site.command(*order).returncode == 0
    line = next(
        line for line in site.command("run", "--log-console").stderr.splitlines()
        if "action=convert" in line
    )  # fmt: skip
    message = "requested it: course'" if order else "reason='no node has free capacity"
    assert message in line and line.endswith(" instance=prod")


@pytest.mark.parametrize("name", TABLE)
def test_each_command_has_the_help_of_its_table(name: str) -> None:
    command, ctx = typer.main.get_command(app), None
    for word in name.split():
        command = command.get_command(ctx, word)  # type: ignore[attr-defined]
    assert (command.help or "").split("\n")[0] == TABLE[name].text


def test_number_of_commands_is_bounded() -> None:
    assert len([pair for pair in TABLE.values() if pair.target]) <= 36


def test_command_imports_no_other_command() -> None:
    program = (
        "import sys; sys.argv = ['dnm', 'hold', '--help'];"
        "from dnm.cli.app import main\ntry: main()\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith(('dnm.cli.look', 'dnm.cli.set_up'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
