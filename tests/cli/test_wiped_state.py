"""Tests that no request of an administrator is lost together with the state directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import ExitCode
from tests.site import QUEUE, Site, set_up_workshop


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    set_up_workshop(sandbox, 3)
    return Site(sandbox, tmp_path / "site")


def wipe(site: Site) -> None:
    """Deletes the state directory, as a new installation of the host does."""
    shutil.rmtree(site.config.state_dir)
    site.config.state_dir.mkdir(mode=0o755)


def test_new_site_is_not_treated_as_wiped(site: Site) -> None:
    for _ in range(2):
        ended = site.command("run")
        assert ended.returncode == ExitCode.OK and "resume" not in ended.stdout + ended.stderr
    assert site.sandbox.get("leases", "dnm-prod", "dnm") is None


def test_pause_hold_and_exclusion_survive_the_state_directory(site: Site) -> None:
    site.command("hold", "a001", "--reason", "s3cret")
    site.command("exclude", "a002", "--for", "2d", "--reason", "s3cret")
    site.command("pause", "--reason", "s3cret")
    assert site.command("run").returncode == ExitCode.OK
    lease = str(site.sandbox.get("leases", "dnm-prod", "dnm"))
    assert "a001" in lease and "a002" in lease and "s3cret" not in lease
    wipe(site)
    site.sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=3000)
    for _ in range(2):
        ended = site.command("run")
        assert ended.returncode == ExitCode.NEEDS_PERSON
        assert "dnm resume" in site.command("status", "--health").stdout
        assert "dnm resume" in site.command("status").stdout
    assert "once more" in site.command("resume").stdout
    assert site.command("run").returncode == ExitCode.OK and not site.registry.requests
    assert "continue" in site.command("resume").stdout
    assert site.command("run").returncode == ExitCode.OK and site.registry.requests
    assert site.registry.held == ("a001",)
    (kept,) = site.registry.excluded.values()
    assert kept.until is not None and [*site.registry.excluded] == ["a002"]


def test_wiped_state_is_noticed_after_a_first_manual_command(site: Site) -> None:
    site.command("exclude", "a002")
    site.command("run")
    wipe(site)
    site.command("hold", "a001")
    assert site.command("run").returncode == ExitCode.NEEDS_PERSON
    assert (site.registry.held, [*site.registry.excluded]) == (("a001",), ["a002"])


def test_lent_nodes_are_adopted_but_nothing_is_lent_until_resume(site: Site) -> None:
    site.sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=3000)
    for _ in range(3):
        site.run()
        site.sandbox.tick(60)
    assert site.lent()
    site.sandbox.delete("leases", "dnm-prod", "dnm")
    wipe(site)
    ended = site.command("run")
    assert ended.returncode == ExitCode.NEEDS_PERSON
    assert "its marks on" in str(site.registry.last_run.errors)
    assert "continue" in site.command("resume").stdout
    assert site.command("run").returncode == ExitCode.OK and site.lent()
    assert not site.sandbox.violations


def test_kubernetes_state_before_the_move_names_the_move_command(site: Site) -> None:
    site.command("hold", "a001")
    site.sandbox.add_namespace("dnm")
    text = site.path.read_text()
    site.path.write_text(text.replace("[settings]", "[settings]\nregistry = kubernetes"))
    for words in (("run",), ("status",), ("pause",), ("resume",)):
        ended = site.command(*words)
        assert ended.returncode == ExitCode.NEEDS_PERSON, (words, ended)
        assert "dnm registry move --to kubernetes" in ended.stderr, words
    assert site.sandbox.get("secrets", "dnm-prod", "dnm") is None
    assert site.command("registry", "move", "--to", "kubernetes").returncode == ExitCode.OK
    assert site.command("run").returncode == ExitCode.OK
    assert site.command("takeover", "--yes").returncode == ExitCode.OK
