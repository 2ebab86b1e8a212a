"""Tests of the content of deb and rpm. `make test-packages` installs, upgrades and removes them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dnm.config.keys import KUBELET_KEYS, NAMESPACE_KEYS, NODE_CONVERT_KEYS, SETTINGS
from dnm.model.errors import ExitCode
from packages.build import (
    CONVERTERS,
    PYTHONS,
    packaged_unit,
    project,
    stage_files,
    switched_off,
    verbs,
)
from packages.manuals import configuration_page, examples_of, exit_codes, included
from tests.docs.pages import ROOT, quoted, table_of

SCRIPTS = sorted((ROOT / "packages" / "scripts").iterdir())
CONTENT = yaml.safe_load((ROOT / "packages" / "nfpm.yaml").read_text())


def test_packaged_cron_line_is_disabled_and_can_be_enabled() -> None:
    text = (ROOT / "cron" / "dnm.cron").read_text()
    off = switched_off(text)
    assert not [line for line in off.splitlines() if re.match(r"[^#\s].* dnm ", line)]
    assert off.rstrip().rpartition("\n")[2].removeprefix("#") == text.rstrip().rpartition("\n")[2]


@pytest.mark.parametrize("name", ["dnm.service", "dnm@.service"])
def test_packaged_unit_starts_the_packaged_program(name: str) -> None:
    unit = packaged_unit((ROOT / "cron" / name).read_text())
    assert re.findall(r"^ExecStart=(\S+)", unit, re.M) == ["/usr/sbin/dnm"]
    links = {content["dst"] for content in CONTENT["contents"] if content.get("type") == "symlink"}
    assert links == {f"/usr/sbin/{command}" for command in project()["scripts"]}


def test_configuration_files_are_never_overwritten_by_an_upgrade() -> None:
    for content in CONTENT["contents"]:
        if content["dst"].startswith("/etc/") and content.get("type") != "dir":
            assert content["type"] == "config|noreplace", content["dst"]


def test_every_file_of_the_package_is_staged(tmp_path: Path) -> None:
    stage_files(tmp_path)
    made_by_tools = ("/opt/dnm", "/man/", "/man5/", "/doc/", "/completion/")
    for content in CONTENT["contents"]:
        source = content.get("src", "")
        if source.startswith("${STAGE}") and not any(name in source for name in made_by_tools):
            assert list(tmp_path.glob(source.removeprefix("${STAGE}/"))), source
    assert set(CONTENT["scripts"].values()) == {
        f"packages/scripts/{script.name}" for script in SCRIPTS
    }


def test_every_command_has_a_manual_page_with_a_sentence() -> None:
    results = dict(verbs())
    assert {("dnm",), ("dnm", "run"), ("dnm", "queues", "rebase")} <= results.keys()
    assert all(results.values())


def test_manual_page_has_examples_exit_codes_and_files() -> None:
    """The manual page has the same examples as the documentation, which other tests check."""
    page = included(("dnm", "simulate"), "play it")
    assert "dnm simulate \\-\\-set headroom=0.8" in page
    for title in ("EXAMPLES", "EXIT STATUS", "FILES"):
        assert f"[{title}]\n" in page
    assert [int(code) for code, _ in exit_codes()] == [int(code) for code in ExitCode]
    without = [words for words, _ in verbs() if len(words) == 2 and not examples_of(words)]
    assert len(without) < 15, without


def test_no_manual_page_names_a_source_file() -> None:
    """The packages do not install these files, so manual pages must not refer to them."""
    pages = [included(words, summary) for words, summary in (*verbs(), *CONVERTERS)]
    for page in (*pages, configuration_page("1.0.0")):
        assert not re.search(r"\w\.py\b|\b(dnm|tests|packages)/\w", page.replace("share/dnm/", ""))


def test_configuration_manual_page_has_every_key() -> None:
    page = configuration_page("1.0.0")
    for keys in (SETTINGS, NAMESPACE_KEYS, NODE_CONVERT_KEYS, KUBELET_KEYS):
        for key in keys:
            assert re.search(rf"^\\fB{re.escape(key)}\\fR = ", page, re.M | re.I), key


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
def test_man_reports_no_error(tmp_path: Path) -> None:
    (tmp_path / "page.5").write_text(configuration_page("1.0.0"))
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(tmp_path / "page.5")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_supported_pythons_of_host_and_package_agree() -> None:
    oldest, newest = (tuple(map(int, name.split("."))) for name in (PYTHONS[0], PYTHONS[-1]))
    script = (ROOT / "packages" / "scripts" / "postinstall.sh").read_text()
    assert f"{oldest} <= sys.version_info < {(newest[0], newest[1] + 1)}" in script
    depends = [f"python3 (>= {PYTHONS[0]})", f"python3 (<< {newest[0]}.{newest[1] + 1})"]
    assert CONTENT["depends"] == depends
    assert str(project()["requires-python"]) == f">={PYTHONS[0]}"


def test_every_installed_directory_is_documented() -> None:
    """docs/packages.md has each directory of installed files."""
    lines = [path for row in table_of("docs/packages.md", "The packages, and several instances on "
                                     "a host", "path |") for path in quoted(row[0])]  # fmt: skip
    for content in CONTENT["contents"]:
        if (
            content["dst"] != "/opt/dnm"
            and "/zsh/" not in content["dst"]
            and "/fish/" not in content["dst"]
        ):
            assert any(content["dst"].startswith(path.rstrip("/")) for path in lines), content[
                "dst"
            ]
