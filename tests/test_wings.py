"""Tests that dnm works without its optional packages: a run, the plan, the status, the check."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dnm
from dnm.lab.sandbox.cluster import Sandbox
from packages.build import make_wheel, project
from tests.site import QUEUE, Site, set_up_workshop

PACKAGE = Path(dnm.__file__).parent
WINGS = {  # an optional package -> its commands
    "lab": ("sandbox", "demo"),
    "converters": ("convert-test",),
    "simulate": ("simulate",),
}


class Installation:
    """A copy of dnm without some of its optional packages, which can be called as a command."""

    def __init__(self, directory: Path, *without: str) -> None:
        self.directory = directory
        ignored = shutil.ignore_patterns(*without)
        shutil.copytree(PACKAGE, directory / "dnm", ignore=ignored)

    def __call__(self, *words: str, config: Path | str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.directory), "DNM_CONFIG": str(config)}
        return subprocess.run(
            [sys.executable, "-m", "dnm.cli", *words], env=environment, cwd=self.directory,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    set_up_workshop(sandbox, 2)
    sandbox.add_pods(24, "dev", queue=QUEUE, cpu="4", memory="16G", run_seconds=100)
    sandbox.tick(1)
    return Site(sandbox, tmp_path / "site")


def test_node_is_lent_without_optional_packages(site: Site, tmp_path: Path) -> None:
    installation = Installation(tmp_path / "installation", *WINGS)
    for verb in ("check", "plan", "run", "status"):
        done = installation(verb, config=site.path)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == (1 if verb == "check" and "wrong" in done.stdout else 0), done
    assert site.registry.requests or site.registry.nodes
    for verb in (verb for verbs in WINGS.values() for verb in verbs):
        done = installation(verb)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert f"there is no command {verb!r}" in done.stderr


def test_optional_packages_provide_their_commands(tmp_path: Path) -> None:
    message = Installation(tmp_path / "installation")("--help").stdout
    assert not [verb for verbs in WINGS.values() for verb in verbs if f"  {verb} " not in message]


def test_wheel_does_not_contain_the_lab(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "source", str(project()["version"]))
    shutil.unpack_archive(wheel, tmp_path / "wheel", "zip")
    capacities = {path.name for path in (tmp_path / "wheel" / "dnm").iterdir()}
    assert {"run", "converters", "simulate"} <= capacities
    assert "lab" not in capacities
