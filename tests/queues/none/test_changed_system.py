"""Tests of a changed `queue_system` while nodes are lent: the run stops and names the cause, and no
ledger is lost."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import ExitCode
from dnm.model.plan import Pass
from tests.cli.test_permissions import report_unschedulable
from tests.site import QUEUE, Site, set_up_workshop

SYSTEMS = {
    "yunikorn": {"queue_system": "yunikorn"},
    "none": {"queue_system": "none"},
    "resource_quota": {"queue_system": "resource_quota"},
}
CHANGES = [(old, new) for old in SYSTEMS for new in SYSTEMS if old != new]


@pytest.fixture
def workshop(sandbox: Sandbox) -> Sandbox:
    set_up_workshop(sandbox, 3)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=240)
    (pod,) = sandbox.objects("pods", "dev")
    sandbox.edit("pods", pod["metadata"]["name"], report_unschedulable, "dev")
    return sandbox


def configure(site: Site, system: str) -> None:
    queues = site.directory / "queues.json" if system == "yunikorn" else ""
    site.change(queue_system=system, namespace_queue_paths=str(queues))


def runs(site: Site, number: int) -> Pass:
    for _ in range(number):
        result = site.run()
        site.sandbox.tick(60)
    return result


def lending(sandbox: Sandbox, directory: Path, system: str) -> Site:
    """Returns a site with this queue system, on which a001 is lent and serves."""
    site = Site(sandbox, directory / "site", **SYSTEMS[system])
    runs(site, 2)
    assert site.lent() == ["a001"] and site.registry.last_run.queue_systems == {"dev": system}
    return site


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_changed_queue_system_stops_the_run_and_is_undone(
    workshop: Sandbox, tmp_path: Path, old: str, new: str
) -> None:
    site = lending(workshop, tmp_path, old)
    before, ledger = workshop.queues_text(), site.registry.last_run.ledger
    configure(site, new)
    result = runs(site, 6)
    assert result.exit_code == ExitCode.NEEDS_PERSON and result.plan.actions == ()
    (error,) = result.plan.errors
    for part in (f"queue_system = {new}", f"a001 have {old}", f"queue_system = {old} again"):
        assert part in error
    assert ("call the converter" in error) is (old != "none")
    assert (workshop.queues_text(), site.registry.last_run.ledger) == (before, ledger)
    assert site.lent() == ["a001"]
    configure(site, old)
    runs(site, 6)
    assert site.lent() == [] and site.registry.last_run.queue_systems == {}
    assert "vcore: 208" not in workshop.queues_text()
    configure(site, new)
    assert runs(site, 1).exit_code == ExitCode.OK


def test_nodes_of_a_removed_queue_system_leave_by_the_converter(
    workshop: Sandbox, tmp_path: Path
) -> None:
    workshop.add_node("k01")  # dnm does not trust an empty list of Nodes
    site = lending(workshop, tmp_path, "yunikorn")
    workshop.delete("configmaps", "yunikorn-configs", "yunikorn")
    configure(site, "none")
    assert runs(site, 5).exit_code == ExitCode.NEEDS_PERSON
    command = [str(site.config.node_convert_path), "--set", "batch", "--node-name", "a001"]
    subprocess.run(command, check=True, timeout=60)
    workshop.tick(300)
    assert runs(site, 2).exit_code == ExitCode.OK and site.lent() == []


def test_check_names_the_changed_queue_system(workshop: Sandbox, tmp_path: Path) -> None:
    site = lending(workshop, tmp_path, "yunikorn")
    configure(site, "none")
    checked = site.command("check")
    assert checked.returncode and "its lent nodes a001 have yunikorn" in checked.stdout
