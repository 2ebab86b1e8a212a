"""Two hosts with one instance_id: the report of each command, and how they change roles. The real
code over the sandbox's API; each host has its own state directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dnm.checks.findings import CheckResult, Finding
from dnm.checks.host import find_everything
from dnm.cli.act import admin
from dnm.cli.act.takeover import takeover
from dnm.cli.look.explain import explain_name
from dnm.cli.look.history import lines_since
from dnm.cli.look.status import status_document
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import ExitCode, KubeError, LeaseError, RegistryError
from dnm.plan.lost_registry import keep_names
from dnm.queues.yunikorn.admin.rebase_verb import rebase
from tests.cli.questions import answer_questions
from tests.site import QUEUE, Site, set_up_workshop

MAP = ("configmaps", "yunikorn-configs")
LEASE = ("leases", "dnm-prod")


@pytest.fixture
def east(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds the host that holds the Lease of the instance, and that lends a node."""
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=3000)
    site = Site(sandbox, tmp_path / "east")
    assert site.run().exit_code == 0 and site.registry.requests
    return site


@pytest.fixture
def west(sandbox: Sandbox, east: Site, tmp_path: Path) -> Site:
    """Builds a second host of the instance. Its run is refused, since `east` holds the Lease."""
    site = Site(sandbox, tmp_path / "west")
    assert site.run().exit_code == ExitCode.NEEDS_PERSON
    return site


def versions(sandbox: Sandbox) -> list[str]:
    rows = [sandbox.get(*MAP, "yunikorn"), sandbox.get(*LEASE, "dnm")]
    return [str(entry["metadata"]["resourceVersion"]) for entry in rows if entry]


def check_findings(site: Site, check: str) -> Finding:
    (result,) = [
        finding
        for finding in find_everything(site.path, dict(os.environ))
        if finding.check == check
    ]
    return result


def test_read_only_commands_report_the_other_host_and_write_nothing(
    east: Site, west: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    before = versions(east.sandbox), west.registry
    plan = west.plan()
    assert plan.exit_code == ExitCode.NEEDS_PERSON and plan.plan.actions == ()
    status = status_document(west.config, west.registry, west.now())
    checked = check_findings(west, "lease")
    assert explain_name(west.config, QUEUE) == ExitCode.NEEDS_PERSON
    message = [
        plan.plan.errors[0], status["last_run"]["errors"][0], checked.text,
        capsys.readouterr().out,
    ]  # fmt: skip
    for text in message:
        for part in (f"{east.directory}/state", f"{west.directory}/state", "dnm takeover"):
            assert "".join(part.split()) in "".join(text.split()), text  # lines are wrapped
    assert checked.result is CheckResult.FAILED
    assert (versions(east.sandbox), west.registry) == before
    assert east.plan().exit_code == 0


def test_pause_reports_the_hosts_that_it_applies_to(east: Site, west: Site) -> None:
    assert "here alone" not in admin.pause(east.config, reason="it burns")
    message = admin.pause(west.config, reason="it burns")
    assert "on this host only" in message and f"{east.directory}/state" in message


def test_rebase_is_refused_on_a_host_that_may_not_act(east: Site, west: Site) -> None:
    with pytest.raises(LeaseError, match="another dnm acts as instance prod"):
        rebase(west.config, "total", yes=True)
    assert rebase(east.config, "baseline", yes=True) == ExitCode.OK


def test_takeover_is_logged_and_takes_effect_at_once(
    east: Site, west: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer_questions(monkeypatch, False)
    assert "nothing was changed" in takeover(west.config)
    assert f"{east.directory}/state" in asked[0] and "stopped there for good" in asked[0]
    assert east.plan().exit_code == 0
    assert "acts as instance prod" in takeover(west.config, yes=True, reason="mgmt1 died")
    assert east.plan().exit_code == ExitCode.NEEDS_PERSON
    assert west.run().exit_code == 0
    lines = lines_since(west.config, west.now().replace(year=2000))
    (line,) = [line for line in lines if line.event == "takeover"]
    assert (line.kind, line.object, line.reason) == ("verb", "prod", "mgmt1 died")
    assert line.requester and line.host and f"{east.directory}/state" in line.numbers["taken_from"]
    assert "nothing was changed" in takeover(west.config, yes=True)


def test_takeover_command_asks_for_confirmation(east: Site, west: Site) -> None:
    refused = west.command("run")
    assert refused.returncode == ExitCode.NEEDS_PERSON and "Traceback" not in refused.stderr
    assert west.process("takeover", "--yes", "--reason", "moved").returncode == 0
    assert west.command("plan").returncode == 0
    reported = json.loads(west.command("history", "-o", "json").stdout.splitlines()[-1])
    assert reported["event"] == "takeover"


def test_unreadable_lease_stops_all_hosts(east: Site) -> None:
    def spoil(item: dict[str, dict[str, object]]) -> None:
        item["spec"]["leaseTransitions"] = "many"

    east.sandbox.edit(*LEASE, spoil, "dnm")
    plan = east.plan()
    assert plan.exit_code and not plan.plan.actions
    assert "Lease dnm/dnm-prod" in plan.plan.errors[0]
    assert check_findings(east, "lease").result is CheckResult.FAILED


@pytest.mark.parametrize(
    "settings",
    [
        {"queue_system": "none"},
        {"queue_system": "resource_quota"},
        {"yunikorn_cm_namespace": "other"},
    ],
    ids=lambda settings: ", ".join(settings.values()),
)
def test_host_with_another_queue_system_finds_the_same_lease(
    east: Site, tmp_path: Path, settings: dict[str, str]
) -> None:
    """Otherwise two runs would act for one instance, each with its own cap."""
    other = Site(east.sandbox, tmp_path / "other", **settings)
    plan = other.plan()
    assert plan.exit_code == ExitCode.NEEDS_PERSON and plan.plan.actions == ()
    assert f"{east.directory}/state" in plan.plan.errors[0]
    assert changing(other) == 1  # the conversion that east has requested


def test_registry_in_another_namespace_finds_the_same_lease(east: Site, tmp_path: Path) -> None:
    other = Site(east.sandbox, tmp_path / "other", queue_system="none", registry="kubernetes other")
    with pytest.raises(RegistryError, match=r"names another one.*east/state"):
        other.plan()
    assert changing(other) == 1


def changing(site: Site) -> int:
    return sum("--set" in call.arguments for call in site.sandbox.conversion.calls)


def test_missing_lease_permission_stops_lending_and_check_names_it(east: Site) -> None:
    east.sandbox.delete(*LEASE, "dnm")
    rights = {("list", kind, "") for kind in ("nodes", "pods")}
    rights |= {("get", "configmaps", "yunikorn"), ("update", "configmaps", "yunikorn")}
    east.sandbox.access.restrict(rights)
    calls = changing(east)
    ended = east.command("run")
    assert ended.returncode == ExitCode.FAILED
    assert "can't read Lease" in ended.stderr
    assert "`dnm check` names what is missing" in ended.stderr
    assert changing(east) == calls
    lines = [finding.text for finding in find_everything(east.path, dict(os.environ))
             if finding.result is CheckResult.FAILED and "leases" in finding.text]  # fmt: skip
    for verb in ("get", "patch", "create"):
        assert any(f"may not {verb} leases" in text for text in lines), lines


def test_takeover_fails_if_the_lease_cannot_be_written(east: Site, west: Site) -> None:
    west.sandbox.access.restrict({("get", "leases", "dnm")})
    with pytest.raises(KubeError, match="403"):
        takeover(west.config, yes=True)


def test_takeover_needs_no_queue_document(east: Site, west: Site) -> None:
    east.sandbox.delete(*MAP, "yunikorn")
    assert "acts as instance prod" in takeover(west.config, yes=True)
    assert east.plan().exit_code == ExitCode.NEEDS_PERSON


def test_deleted_lease_is_recreated_and_a_refused_host_stays_refused(
    east: Site, west: Site
) -> None:
    east.sandbox.delete(*LEASE, "dnm")
    refused = west.run()
    assert refused.exit_code == ExitCode.NEEDS_PERSON and "deleted" in refused.plan.errors[0]
    assert east.plan().exit_code == 0


def test_takeover_without_a_registry_restores_the_names_of_the_lease(
    east: Site, tmp_path: Path
) -> None:
    admin.pause(east.config, reason="it burns")
    east.run()
    north = Site(east.sandbox, tmp_path / "north")
    takeover(north.config, yes=True)
    assert north.registry.pause is not None
    assert keep_names(north.registry) == keep_names(east.registry)


def test_takeover_from_a_vanished_running_host(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vanished host has left a Lease that expires only after years."""
    sandbox.add_namespace("dnm")
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=3000)
    site = Site(sandbox, tmp_path / "here", registry="kubernetes", request_timeout_seconds=30)
    assert site.run().exit_code == 0

    def at_work(item: dict[str, Any]) -> None:
        item["spec"].update(holderIdentity="mgmt9:/dnm", leaseDurationSeconds=2**31 - 1)
        item["metadata"]["annotations"]["dynamic-node-manager/home"] = "of mgmt9"

    sandbox.edit(*LEASE, at_work, "dnm")
    assert site.command("run").returncode == ExitCode.LOCKED
    finding = check_findings(site, "lease")
    assert finding.result is CheckResult.WARNING and "mgmt9:/dnm is at work" in finding.text
    assert "mgmt9:/dnm is at work" in site.command("status", "--health").stdout
    asked = answer_questions(monkeypatch, True)
    takeover(site.config)
    assert "mgmt9:/dnm is at work" in asked[0]
    assert site.command("run").returncode == 0
    assert "nothing was changed" in takeover(site.config, yes=True)
