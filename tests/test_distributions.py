"""Tests of the sdist and the wheel: what is in them, and where `pip install` puts it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from packages.build import SHARED, project
from packages.distributions import add_share, build_distributions, copy_source, tracked_files
from tests.docs.pages import PAGES, ROOT, section

VERSION = str(project()["version"])
RUN = (("dnm", "run"), "one run")  # all pages take a minute
STEP = section("docs/production.md", "1. The host")

pytestmark = pytest.mark.xdist_group("distributions")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    source = tmp_path_factory.mktemp("source")
    copy_source(source)
    add_share(source, VERSION, [RUN])
    return build_distributions(source, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a new virtual environment, in which only the wheel is installed."""
    directory = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", directory / "bin/python", "install", "--quiet",
         "--disable-pip-version-check", "--no-deps", "--no-index", built[1]], check=True,
    )  # fmt: skip
    return directory


def test_sdist_has_every_file_of_the_repository_and_the_made_ones(
    built: tuple[Path, Path],
) -> None:
    with tarfile.open(built[0]) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {str(name) for name in tracked_files()} <= names
    assert {"share/man/man8/dnm-run.8.gz", "share/bash-completion/completions/dnm"} <= names
    assert not [name for name in names if name.endswith(".pyc")]


def test_installed_wheel_has_the_files_that_a_package_has(environment: Path) -> None:
    """The files are those that the deb and the rpm install below /usr/share/dnm, and the units."""
    share = environment / "share" / "dnm"
    expected = [
        name for name in tracked_files()
        if str(name).startswith(tuple(f"{shared}/" for shared in SHARED))
        or str(name) in SHARED or name.parts[0] == "cron"
        or name.parent == Path("etc")
    ]  # fmt: skip
    assert len(expected) > 100
    for name in expected:
        assert (share / name).read_bytes() == (ROOT / name).read_bytes(), name
        executable = (ROOT / name).stat().st_mode & 0o100
        assert (share / name).stat().st_mode & 0o100 == executable, name
    assert not list(environment.rglob("dnm/lab"))


def test_page_names_the_paths_of_the_installed_files(environment: Path) -> None:
    """Runs the page's commands that copy files, with the new environment instead of /opt/dnm."""
    (moved,) = re.findall(r"^cd (/opt/dnm/\S+)$", STEP, re.M)
    sources = [
        word
        for line in re.findall(r"^install -m 644 (.*)$", STEP.partition("**Rehearsal**")[0], re.M)
        for word in line.split()[:-1]
    ]
    assert {"etc/dynamic_node_config.ini", "cron/dnm.timer"} <= set(sources)
    directory = environment / Path(moved).relative_to("/opt/dnm")
    assert not [name for name in sources if not (directory / name).is_file()]
    (manuals,) = re.findall(r"`/opt/dnm/(share/man)`", STEP)
    assert (environment / manuals / "man8" / "dnm-run.8.gz").is_file()
    assert (environment / manuals / "man5" / "dynamic_node_config.ini.5.gz").is_file()
    for program in ("dnm", "node-convert", "nodeset-convert", "bridge-convert"):
        assert (environment / "bin" / program).is_file()


def test_every_shown_version_is_that_of_the_project() -> None:
    """Each page and manifest that shows a version of dnm must show that of pyproject.toml."""
    manifests = {str(name): (ROOT / name).read_text(encoding="utf-8")
                 for name in tracked_files() if name.parts[0] == "deploy"}  # fmt: skip
    shown = [
        (name, version)
        for name, text in {**PAGES, **manifests}.items()
        for version in re.findall(r"(?:dnm[:_-]|newTag: )v?(\d+\.\d+\.\d+)", text)
    ]
    assert len(shown) >= 5
    assert {version for _, version in shown} == {VERSION}, shown
