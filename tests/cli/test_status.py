"""Tests of `dnm status`, which reads only the registry, and of `dnm status --live`."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dnm.cli.look.status import status_document
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.registry import Registry
from tests.builders import NOW, a_config
from tests.site import QUEUE, Site, a_workshop_site


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    return a_workshop_site(sandbox, tmp_path)


def test_status_needs_the_registry_file_only(sandbox: Sandbox, site: Site) -> None:
    site.command("run")
    sandbox.tick(1)
    site.command("run")
    sandbox.stop()
    wide, narrow = site.command("status").stdout, site.at_a_terminal("status", width=50)
    for text in (wide, narrow):
        for word in ("a001", "serving", QUEUE, "all: 2 of 30 nodes lent", "exit code 0"):
            assert word in text
    document = json.loads(site.command("status", "--output", "json").stdout)
    assert document["schema"] == "dnm.status/1"
    assert {node["phase"] for node in document["nodes"]} == {"serving"}
    assert document["queues"][0]["lent"]["cpu"] == 256_000


def test_limit_lowered_manually_below_lent_nodes_is_a_warning(sandbox: Sandbox, site: Site) -> None:
    """The administrator may lower a limit: runs report no error, and `--health` a warning."""
    for _ in range(3):
        site.run()
        sandbox.tick(1)
    lowered = sandbox.queues_text().replace("vcore: 336", "vcore: 100")
    sandbox.set_queues(lowered.replace("vcore: 264", "vcore: 8"))
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="400", memory="16G", name="huge")
    result = site.run()
    assert result.exit_code == 0
    status = site.registry.last_run.queues[QUEUE]
    assert (status.limit["cpu"], status.lent["cpu"]) == (100_000, 256_000)
    assert datetime.fromisoformat(status.waits_since) <= site.now() and status.floor == 0
    health = site.command("status", "--health")
    assert health.returncode == 1
    assert health.stdout.startswith(f"warning: {QUEUE}: its cpu limit 100 is below the 256 that")


def test_missing_nodes_of_min_nodes_are_a_warning(sandbox: Sandbox, site: Site) -> None:
    sandbox.batch.start_job(["a001", "a002", "a003", "a004"])
    site.path.write_text(site.path.read_text() + "[namespace:dev]\nmin_nodes = 2\n")
    site.run()
    assert site.registry.last_run.queues[QUEUE].floor == 2
    message = json.loads(site.command("status", "-o", "json").stdout)["warnings"]
    missing = f"{QUEUE}: 2 nodes of the 2 that min_nodes or an event requires are missing: "
    assert missing in message[0]


def test_live_status_shows_the_present_and_no_plan(sandbox: Sandbox, site: Site) -> None:
    """Although a run would request a node here, `--live` shows no incoming node."""
    sandbox.add_pods(20, "dev", queue=QUEUE, cpu="8", memory="16G")
    plan = json.loads(site.command("plan", "-o", "json").stdout)
    assert [action["action"] for action in plan["actions"]] == ["StartConversion"]
    shown = site.command("status", "--live").stdout
    assert "coming" not in shown and "all: 0 of" in shown
    live = json.loads(site.command("status", "--live", "-o", "json").stdout)
    assert live["requests"] == live["nodes"] == []
    (queue,) = [queue for queue in live["queues"] if queue["queue"] == QUEUE]
    assert queue["pending_pods"] == 40 and queue["limit"] == queue["baseline"]


def test_live_status_shows_the_current_errors(sandbox: Sandbox, site: Site) -> None:
    site.command("run")
    sandbox.fault("status", path="/pods", code=403)
    refused = "the pods of namespace dev could not be read"
    shown = site.command("status", "--live")
    assert shown.returncode == 1 and f"\nerror: {refused}" in shown.stdout
    document = json.loads(site.command("status", "--live", "-o", "json").stdout)
    (error,) = document["errors"]
    assert refused in error and document["last_run"]["exit_code"] == 0
    sandbox.stop()
    shown = site.command("status", "--live")
    assert shown.returncode == 1 and "\nerror: " in shown.stdout and "refused" in shown.stdout
    assert json.loads(site.command("status", "-o", "json").stdout)["errors"] == []


def test_cooldown_of_a_fast_clock_is_not_shown(tmp_path: Path) -> None:
    later = Registry(last_conversion=NOW + timedelta(days=9))
    assert status_document(a_config(tmp_path), later, NOW)["restrictions"]["cooldown_seconds"] == 0
