"""The example hooks of etc/: shell-checked, and run against stand-ins for ssh, ipmitool and the
rest that write down how they were called."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dnm.lab.slurm.hooks import write_lab_hooks

HOOKS = Path(__file__).parents[2] / "etc" / "hooks"
EXAMPLES = sorted(path for path in HOOKS.glob("*/*"))
NAMES = {"reach", "prepare", "join", "ready", "leave", "reset", "health"}
SECRET = 'pa"ss\\w0rd'

# Answers of the programs that the hooks call; what is not here only writes down its call.
ANSWERS = {
    "ipmitool": "case $* in *status) echo 'Chassis Power is off';; esac",
    "rpower": '[ $2 != stat ] || echo "$1: off"',
    "curl": 'cat >>"$CALLS.stdin"; echo \'{"PowerState": "Off"}\'',
    "ssh": 'cat >>"$CALLS.stdin"',
    "kubectl": "case $* in *gpu*) echo 4;; esac",
    "kubeadm": "echo abcdef.0123456789abcdef",
    "openssl": "cat",
    "nodeset": ":",
    "rsetboot": ":",
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, answer in ANSWERS.items():
        path = directory / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"$CALLS"\n{answer}\n')
        path.chmod(0o755)
    return directory


def test_there_is_an_example_of_every_hook() -> None:
    assert {path.name for path in EXAMPLES} == NAMES
    text = (HOOKS / "README.md").read_text()
    assert set(re.findall(r"^\| `([a-z]+)` \|", text, re.M)) == NAMES


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="'make test' installs shellcheck")
def test_the_examples_are_shell_checked(tmp_path: Path) -> None:
    """Those of the lab too, as they are written for a demo or a test."""
    write_lab_hooks(tmp_path, tmp_path / "slurm", "http://127.0.0.1:1", {"cpu": "8"})
    lab = [path for path in tmp_path.iterdir() if os.access(path, os.X_OK)]
    answer = subprocess.run(
        ["shellcheck", *map(str, [*EXAMPLES, *lab])], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("hook", EXAMPLES, ids=[f"{p.parent.name}-{p.name}" for p in EXAMPLES])
def test_an_example_does_its_work_and_keeps_the_secret(
    hook: Path, programs: Path, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    calls.touch()
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "CALLS": str(calls),
        "PASSWORD": SECRET,
        "DNM_NODE": "a001",
        "DNM_NODE_TYPE": "g",
        "DNM_NAMESPACE": "dev",
        "DNM_LABELS": "dev=true,example.org/pool=a",
        "DNM_TAINTS": "dev=true:NoSchedule,gpu:NoExecute",
        "NODE_SEARCH_DOMAIN": "example.org",
    }
    assert os.access(hook, os.X_OK)
    answer = subprocess.run(
        [hook, "a001"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert calls.read_text(), "it called nothing"
    assert SECRET not in calls.read_text() + answer.stdout + answer.stderr
    if hook.parent.name == "redfish":
        given = Path(f"{calls}.stdin").read_text()
        assert 'user = "root:pa\\"ss\\\\w0rd"' in given
    if hook.parent.name == "kubeadm" and hook.name == "join":
        given = Path(f"{calls}.stdin").read_text()
        assert 'node-labels: "dev=true,example.org/pool=a"' in given
        assert (
            'taints: [{key: "dev", value: "true", effect: "NoSchedule"},'
            '{key: "gpu", value: "", effect: "NoExecute"}]' in given
        )
