"""Tests of two hosts with one registry in Kubernetes: runs on both, administrators' commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dnm.cli.act import admin
from dnm.cli.terminal import operation
from dnm.host import place
from dnm.lab.sandbox.access import RbacRule
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import DnmError, ExitCode, LockedError
from dnm.run.recorded import read_last_run
from dnm.run.registry import opened_state
from dnm.run.verbs import change_registry
from tests.site import QUEUE, Site, set_up_workshop


@pytest.fixture
def hosts(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, Site]:
    """Builds two hosts, and pods that need two nodes in a full queue. dnm takes them for hosts even
    if the tests themselves run in a pod."""
    (tmp_path / "machine-id").write_text("0123456789abcdef" * 2)
    monkeypatch.setattr(place, "_MACHINE_ID", tmp_path / "machine-id")
    sandbox.add_namespace("dnm")
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(2, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=150)
    east, west = (
        Site(sandbox, tmp_path / name, registry="kubernetes") for name in ("east", "west")
    )
    return east, west


def play(hosts: tuple[Site, Site], sandbox: Sandbox, rounds: int = 14) -> list[int]:
    """Plays runs on both hosts in turn. Returns the number of lent nodes after each run."""
    lent = []
    for number in range(rounds):
        assert hosts[number % 2].run().exit_code == 0
        lent.append(len(hosts[0].lent()))
        sandbox.tick(30)
    return lent


def test_each_host_continues_the_work_of_the_other_host(
    sandbox: Sandbox, hosts: tuple[Site, Site]
) -> None:
    before = sandbox.queues_text()
    lent = play(hosts, sandbox)
    assert max(lent) == 2 and lent[-1] == 0
    assert hosts[0].registry == hosts[1].registry
    assert sandbox.queues_text() == before and not sandbox.violations
    calls = [call.arguments for call in sandbox.conversion.calls if "--set" in call.arguments]
    assert len(calls) == 3  # one for both nodes, and one return for each
    assert not [path for site in hosts for path in site.directory.rglob("converted_nodes.json*")]


def test_neither_host_writes_when_nothing_changes(
    sandbox: Sandbox, hosts: tuple[Site, Site]
) -> None:
    play(hosts, sandbox, 20)
    sandbox.requests.clear()
    for site in (*hosts, *hosts):
        assert site.run().exit_code == 0
        sandbox.tick(60)
    assert sandbox.requests.writes() == []
    asked = [pair.resource for pair in sandbox.requests.all()]
    assert (asked.count("leases"), asked.count("secrets")) == (4, 4)


def test_second_host_ends_with_75_during_a_run(sandbox: Sandbox, hosts: tuple[Site, Site]) -> None:
    east, west = hosts
    with opened_state(east.config) as at_work:
        at_work.begin()
        with pytest.raises(LockedError) as raised:
            west.run()
    assert raised.value.exit_code == ExitCode.LOCKED and str(east.directory) in str(raised.value)
    assert read_last_run(west.config).took is not None  # it does not act
    assert west.run().exit_code == 0 and east.registry.requests


def test_plan_is_possible_during_a_run_of_another_host(hosts: tuple[Site, Site]) -> None:
    with opened_state(hosts[0].config) as at_work:
        at_work.begin()
        assert hosts[1].plan().plan.actions


def test_pause_on_a_single_host_stops_all_hosts_and_names_its_author(
    sandbox: Sandbox, hosts: tuple[Site, Site]
) -> None:
    east, west = hosts
    admin.pause(west.config, reason="it burns")
    assert east.run().exit_code == 0
    pause = east.registry.pause
    assert east.registry.requests == ()
    assert pause is not None and pause.reason == "it burns" and " on " in pause.requester
    admin.resume(east.config)
    west.run()
    assert east.registry.requests


def test_command_waits_for_a_run_on_another_host(
    hosts: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dnm.run import verbs

    east, west = hosts
    monkeypatch.setattr(verbs, "_LOOK_EVERY", 0.01)
    waited: list[None] = []
    with opened_state(east.config) as at_work:
        at_work.begin()
        monkeypatch.setattr(operation, "print_wait", lambda: waited.append(at_work.end()))
        admin.pause(west.config, reason="")
    assert len(waited) == 1 and west.registry.pause is not None


@pytest.mark.parametrize("resource", ["secrets", "leases"])
@pytest.mark.parametrize("verb", ["get", "patch", "create"])
def test_missing_permission_is_named_and_nothing_is_done(
    sandbox: Sandbox, hosts: tuple[Site, Site], verb: str, resource: str
) -> None:
    if verb == "patch":
        admin.pause(hosts[0].config, reason="")
        admin.resume(hosts[0].config)  # otherwise the first request is a create
    sandbox.access.rules = tuple(
        RbacRule((item,), (kind,), "*")
        for item in ("get", "list", "patch", "update", "create")
        for kind in (
            "nodes", "pods", "configmaps", "persistentvolumes", "persistentvolumeclaims",
            "secrets", "leases",
        )
        if (item, kind) != (verb, resource)
    )  # fmt: skip
    with pytest.raises(DnmError, match=f"permission to {verb} {resource}"):
        hosts[1].run()
    assert not [call for call in sandbox.conversion.calls if "--set" in call.arguments]


def test_missing_secret_and_lease_stop_lending_until_resume(
    sandbox: Sandbox, hosts: tuple[Site, Site]
) -> None:
    """Marks and ledger show that this instance has lent nodes. dnm adopts them after `resume`."""
    east, west = hosts
    play(hosts, sandbox, 5)
    assert len(east.lent()) == 2
    sandbox.delete("secrets", "dnm-prod", "dnm")
    sandbox.delete("leases", "dnm-prod", "dnm")
    for site in (east, west):
        reported = site.run()
        assert (reported.exit_code, len(site.lent())) == (ExitCode.NEEDS_PERSON, 2)
        assert any("`dnm resume`" in error for error in reported.plan.errors)
    admin.resume(west.config)
    for _ in range(12):
        assert west.run().exit_code == 0 == east.run().exit_code
        sandbox.tick(60)
    assert not east.lent() and not sandbox.violations


def test_deleted_secret_stops_all_hosts_until_resume_and_keeps_holds(
    sandbox: Sandbox, hosts: tuple[Site, Site]
) -> None:
    east, west = hosts
    admin.pause(west.config, reason="s3cret reason")
    change_registry(west.config, lambda registry: replace(registry, held=("a001",)))
    lease = sandbox.get("leases", "dnm-prod", "dnm") or {}
    assert "a001" in str(lease) and "s3cret" not in str(lease)
    sandbox.delete("secrets", "dnm-prod", "dnm")
    for site in hosts:
        ended = site.command("run")
        assert ended.returncode == ExitCode.NEEDS_PERSON and "dnm resume" in ended.stderr
        assert "dnm resume" in site.command("status", "--health").stdout
        assert site.command("status").returncode == ExitCode.NEEDS_PERSON
    assert sandbox.get("secrets", "dnm-prod", "dnm") is None
    assert "once more" in admin.resume(east.config)
    assert west.registry.held == ("a001",)
    assert west.run().exit_code == 0 and not west.registry.requests, "it is paused as before"
    admin.resume(west.config)
    assert east.run().exit_code == 0 and west.registry.requests
