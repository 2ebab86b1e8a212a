"""What the README says is so: commands exist, tables are whole, links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dnm.model.plan import Reason
from dnm.sandbox.client import ask
from dnm.sandbox.cluster import Sandbox
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, flags=re.S)
LINES = [
    line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()
]
INLINE = re.findall(r"`((?:dnm|node-convert) [^`]+)`", README)
COMMANDS = sorted({*INLINE, *(line for line in LINES if re.match(r"(dnm|node-convert) ", line))})


def words_of(command: str) -> list[str]:
    """Without placeholders: NAME, [OPTIONAL], …"""
    plain = re.sub(r"\[[^]]*\]|…|\.\.\.", " ", command)
    return [word for word in shlex.split(plain) if word and not word.isupper()]


def help_of(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dnm.cli", *words, "--help"],
        capture_output=True, text=True, check=False, env={"COLUMNS": "200", "PATH": "/usr/bin"},
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


GROUPS = ("queues", "test-load", "sandbox")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("dnm ")])
def test_every_command_of_dnm_exists_with_its_options(command: str) -> None:
    _, *words = words_of(command)
    if not words or words[0].startswith("-"):
        verbs: list[str] = []
    else:
        verbs = words[:2] if words[0] in GROUPS else words[:1]
    text = help_of(*verbs)
    for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", command.replace("[", " ")):
        assert re.search(rf"(?<!\S){re.escape(option)}\b", text), f"{option} in {command}"


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("node-convert ")])
def test_every_option_of_node_convert_exists(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dnm.convert.cli", "--help"],
        capture_output=True, text=True, check=True, env={"COLUMNS": "200", "PATH": "/usr/bin"},
    )  # fmt: skip
    for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", command):
        assert option in done.stdout, option


def test_every_reason_is_explained() -> None:
    table = README.split("## What each reason means")[1].split("\n## ")[0]
    explained = re.findall(r"^\| ([^|]+?) \| [^|]+ \|$", table, flags=re.M)
    assert [row for row in explained if row != "reason"] == [reason.value for reason in Reason]


def test_every_target_of_the_makefile_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in {word for line in LINES if line.startswith("make") for word in line.split()[1:]}:
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def test_every_link_leads_somewhere() -> None:
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", README, flags=re.M)
    }
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (ROOT / target).exists(), target


def test_every_file_that_is_copied_exists() -> None:
    for name in re.findall(r"(?<![/\w])((?:etc|cron)/[\w.-]*\w)", README):
        assert (ROOT / name).exists(), name


def test_every_dependency_is_given_its_reason() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = project.split("dependencies = [")[1].split("\n]")[0]
    table = README.split("## Dependencies")[1]
    for name in re.findall(r'^\s+"([a-z-]+)', listed, flags=re.M):
        assert f"| {name}" in table, name


def test_what_is_tried_by_hand_finds_the_commands_that_make_has_installed() -> None:
    by_hand = next(block for block in BLOCKS if "dnm sandbox up" in block)
    assert by_hand.startswith("export PATH=$PWD/.venv/bin:$PATH\n")
    assert "VENV := .venv\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    before = README.split(by_hand)[0].split("## Two commands")[1]
    assert set(re.findall(r"`dnm ([^`]+)`", before)) == {"run"}  # what it tells of, not what to do


def test_every_way_to_make_things_go_wrong_is_taken(sandbox: Sandbox) -> None:
    sandbox.add_machines(3)
    sandbox.join_by_hand("a003", "dev")
    lines = re.findall(r"^curl (.*)\$URL(/sandbox/.*)$", README, flags=re.M)
    assert len(lines) == 6
    kept = []
    for options, path in lines:
        words = shlex.split(options)
        body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
        method = "DELETE" if "DELETE" in words else "POST" if body else "GET"
        ask(sandbox.url, method, path, body)
        kept.append((len(sandbox.faults._faults), len(sandbox.conversion.behaviours)))
    assert kept == [(1, 0), (0, 0), (0, 1), (0, 0), (0, 0), (0, 0)]


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.add_machines(3)
    sandbox.add_pods(12, "dev", queue=QUEUE, cpu="4", memory="16G")
    return Site(sandbox, tmp_path / "site")


def test_every_json_document_has_its_schema(sandbox: Sandbox, site: Site) -> None:
    rows = re.findall(r"\| `dnm ([^`]+)` \| `(dnm\.[a-z.-]+/1)` \| ([^|]+) \|", README)
    assert len(rows) == 7
    for command, schema, holds in rows:
        document = json.loads(site.command(*command.split()).stdout)
        assert document["schema"] == schema
        for key in re.findall(r"`(\w+)`", holds.split(":")[0]):
            assert key in document, f"{key} of {schema}"


def test_going_back_to_the_predecessor_gives_its_registry(sandbox: Sandbox, site: Site) -> None:
    site.run()
    sandbox.tick(1)
    site.run()
    line = next(line for line in LINES if line.startswith("python3 -c"))
    program = shlex.split(line.split(" < ")[0])[2]
    text = site.config.converted_nodes_path.read_text()
    done = subprocess.run(
        [sys.executable, "-c", program], input=text, capture_output=True, text=True, check=True
    )
    old = json.loads(done.stdout)
    assert old and set(old) == set(site.lent())
    assert set(old["a001"]) == {"namespace", "last_pod_end", "owner"}
