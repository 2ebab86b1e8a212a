"""Tests that requirements/ pins all dependencies of pyproject.toml, with hashes for pip."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from packages.build import PYTHONS
from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REQUIRED = {
    "test": [
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["test"],
    ],
    **PROJECT["dependency-groups"],
}
REQUIRED["oldest"] = REQUIRED["test"]  # fmt: skip
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def read_entries(name: str) -> dict[str, list[str]]:
    """Returns `package==version` -> its hashes, for a file of requirements/."""
    text = re.sub(r"#.*", "", (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8"))
    entries = text.replace("\\\n", " ").split("\n")
    pairs = [entry.partition(" --hash=") for entry in entries if entry.strip()]
    return {pin.strip(): hashes.split(" --hash=") for pin, _, hashes in pairs}


def test_each_set_of_dependencies_has_a_lock_file() -> None:
    assert {path.stem for path in (ROOT / "requirements").iterdir()} == set(REQUIRED)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_lock_file_has_a_version_for_each_requirement(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    direct = re.findall(r"(?:via|#  ) dnm \(pyproject.toml", text)
    assert len(direct) == len(REQUIRED[name]), "run `make lock`"
    pins = [Requirement(entry) for entry in read_entries(name)]
    for requirement in map(Requirement, REQUIRED[name]):
        for python in PYTHONS:
            versions = [
                next(iter(pin.specifier)).version
                for pin in pins
                if canonicalize_name(pin.name) == canonicalize_name(requirement.name)
                and (pin.marker is None or pin.marker.evaluate({"python_full_version": python}))
            ]
            assert len(versions) == 1, (requirement, python, versions)
            assert requirement.specifier.contains(versions[0]), (requirement, versions)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_each_locked_package_has_hashes_and_no_address(name: str) -> None:
    for entry, hashes in read_entries(name).items():
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; .+)?", entry), entry
        assert hashes, entry
        for item in hashes:
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", item.strip()), (entry, item)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_make_installs_only_locked_packages(name: str) -> None:
    is_of_tests = REQUIRED[name] is REQUIRED["test"]
    assert (
        f"LOCK{' := ' if name == 'test' else '='}requirements/{name}.txt" in MAKEFILE
        or not is_of_tests
    )
    assert f"\n\t$(LOCKED) {'$(LOCK)' if is_of_tests else f'requirements/{name}.txt'}\n" in MAKEFILE
    assert re.search(r"^LOCKED := .* --require-hashes --requirement$", MAKEFILE, re.M)
    installs = re.findall(r"^\t.*\$\(PIP\) (.*)$", MAKEFILE, re.M)
    assert [line for line in installs if "--no-deps" not in line] == []
