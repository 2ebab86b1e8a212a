"""Tests of the files that `make release` writes about a release, and of its rehearsal."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

from dnm.config.load import load_config
from packages.release import (
    REHEARSAL,
    VERSION,
    pack_context,
    rehearsal_ini,
    tag_command,
    write_sums,
)
from tests.docs.pages import PAGES, ROOT, section


def test_sha256sum_verifies_the_checksums(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("dnm_1_amd64.deb", "dnm-1.tar.gz")]
    for number, file in enumerate(files):
        file.write_bytes(bytes([number]) * 100)
    sums = write_sums(files, tmp_path)
    command = ["sha256sum", "--check", "--strict", sums.name]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    files[0].write_bytes(b"changed")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 1


def test_image_context_has_all_that_the_containerfile_reads(tmp_path: Path) -> None:
    deb = tmp_path / "dnm_1_amd64.deb"
    deb.write_bytes(b"deb")
    first = pack_context(deb, tmp_path).read_bytes()
    assert pack_context(deb, tmp_path).read_bytes() == first
    with tarfile.open(pack_context(deb, tmp_path)) as archive:
        names = {member.name.partition("/")[2] for member in archive}
    assert names == {"deploy/Containerfile", f"dist/{deb.name}"}
    text = (ROOT / "deploy/Containerfile").read_text(encoding="utf-8")
    assert "source=dist," in text and "/dist/dnm_*.deb" in text


def test_rehearsal_plays_the_configuration_of_the_set_up_page(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "namespace_queue_paths.json").write_text('{"dev": "root.anvil.services.dev"}')
    ini = site / "dynamic_node_config.ini"
    ini.write_text(rehearsal_ini().replace("@PORT@", "9080"))
    for file in site.iterdir():
        file.chmod(0o644)
    config = load_config(ini, {})
    assert config.queues == ("root.anvil.services.dev",)
    assert config.state_dir == tmp_path / "state"
    assert config.yunikorn_url == "http://127.0.0.1:9080"


def test_rehearsal_runs_the_commands_of_the_set_up_page() -> None:
    script = REHEARSAL.read_text(encoding="utf-8")
    page = section("docs/production.md", "6. Check")
    for command in ("check", "nodes", "plan", "run"):
        assert f"\ndnm {command} " in page and f'"$dnm" {command}' in script
    for command in ("test-load dev", "return", "status --health", "report", "simulate --set"):
        assert f"dnm {command}" in PAGES["docs/production.md"] and f'"$dnm" {command}' in script


def test_tag_has_the_version_of_the_changelog() -> None:
    assert f"\n## [{VERSION}] - " in PAGES["CHANGELOG.md"]
    assert f" v{VERSION} " in tag_command()
