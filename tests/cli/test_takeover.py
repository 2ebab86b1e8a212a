"""Two hosts with one instance_id: what each verb says of it, and how they change places. The real
code over the sandbox's API, each host with a state directory of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dnm.cli import admin
from dnm.cli.check import find_everything
from dnm.cli.explain import explain_name
from dnm.cli.findings import CheckResult, Finding
from dnm.cli.history import lines_since
from dnm.cli.status import status_document
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import ExitCode, KubeError, LeaseError
from dnm.plan.record_lease import lease_annotation
from tests.site import QUEUE, Site, set_up_workshop

MAP = ("configmaps", "yunikorn-configs")


@pytest.fixture
def east(sandbox: Sandbox, tmp_path: Path) -> Site:
    """It has acted, and lends a node."""
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=3000)
    site = Site(sandbox, tmp_path / "east")
    assert site.run().exit_code == 0 and site.registry.requests
    return site


@pytest.fixture
def west(sandbox: Sandbox, east: Site, tmp_path: Path) -> Site:
    """It was refused."""
    site = Site(sandbox, tmp_path / "west")
    assert site.run().exit_code == ExitCode.NEEDS_PERSON
    return site


def annotate(sandbox: Sandbox, text: str | None) -> None:
    key = lease_annotation("prod")

    def change(item: dict[str, dict[str, dict[str, str]]]) -> None:
        annotations = item["metadata"]["annotations"]
        annotations.pop(key, None)
        if text is not None:
            annotations[key] = text

    sandbox.edit(*MAP, change, "yunikorn")


def versions(sandbox: Sandbox) -> str:
    found = next(m for m in sandbox.objects("configmaps", "yunikorn")
                 if m["metadata"]["name"] == MAP[1])  # fmt: skip
    return str(found["metadata"]["resourceVersion"])


def found_by_check(site: Site, check: str) -> Finding:
    (found,) = [one for one in find_everything(site.path, dict(os.environ)) if one.check == check]
    return found


def test_verbs_that_only_look_say_it_and_write_nothing(
    east: Site, west: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    before = versions(east.sandbox), west.registry
    plan = west.plan()
    assert plan.exit_code == ExitCode.NEEDS_PERSON and plan.plan.actions == ()
    status = status_document(west.config, west.registry, west.now())
    checked = found_by_check(west, "instance")
    assert explain_name(west.config, os.environ, QUEUE, "text") == ExitCode.NEEDS_PERSON
    said = [
        plan.plan.errors[0], status["last_run"]["errors"][0], checked.text,
        capsys.readouterr().out,
    ]  # fmt: skip
    for text in said:
        for part in (f"{east.directory}/state", f"{west.directory}/state", "dnm takeover"):
            assert "".join(part.split()) in "".join(text.split()), text  # lines are wrapped
    assert checked.result is CheckResult.FAILED
    assert (versions(east.sandbox), west.registry) == before
    assert east.plan().exit_code == 0


def test_a_pause_says_for_whom_it_holds(east: Site, west: Site) -> None:
    assert "here alone" not in admin.pause(east.config, None, "it burns")
    said = admin.pause(west.config, None, "it burns")
    assert "here alone" in said and f"{east.directory}/state" in said


def test_a_rebase_is_refused_where_nobody_knows_what_serves(east: Site, west: Site) -> None:
    with pytest.raises(LeaseError, match="another dnm acts as instance prod"):
        admin.rebase(west.config, "total", [], lambda text: True)
    assert admin.rebase(east.config, "baseline", [], lambda text: True) == ExitCode.OK


def test_a_takeover_is_told_and_in_force_at_once(
    east: Site, west: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    assert "nothing was changed" in admin.take_over(west.config, lambda t: bool(asked.append(t)))
    assert f"{east.directory}/state" in asked[0] and "stopped there for good" in asked[0]
    assert east.plan().exit_code == 0
    assert "acts as instance prod" in admin.take_over(west.config, lambda text: True, "mgmt1 died")
    assert east.plan().exit_code == ExitCode.NEEDS_PERSON
    assert west.run().exit_code == 0
    lines = lines_since(west.config, west.now().replace(year=2000))
    (line,) = [line for line in lines if line.event == "takeover"]
    assert (line.kind, line.object, line.reason) == ("verb", "prod", "mgmt1 died")
    assert line.who and line.host and f"{east.directory}/state" in line.numbers["taken_from"]
    assert "nothing was changed" in admin.take_over(west.config, lambda text: True)


def test_the_command_asks_and_takes_its_answer(east: Site, west: Site) -> None:
    refused = west.command("run")
    assert refused.returncode == ExitCode.NEEDS_PERSON and "Traceback" not in refused.stderr
    assert west.process("takeover", "--yes", "--reason", "moved").returncode == 0
    assert west.command("plan").returncode == 0
    told = json.loads(west.command("history", "-o", "json").stdout.splitlines()[-1])
    assert told["event"] == "takeover"


def test_a_mark_that_can_not_be_read_is_taken_over(east: Site) -> None:
    annotate(east.sandbox, "{")
    plan = east.plan()
    assert plan.exit_code == ExitCode.NEEDS_PERSON and "can't be read" in plan.plan.errors[0]
    asked: list[str] = []
    admin.take_over(east.config, lambda text: not asked.append(text))
    assert "Nobody knows" in asked[0] and east.plan().exit_code == 0


def test_what_can_not_be_written_is_no_takeover(east: Site, west: Site) -> None:
    rights = {("get", "configmaps", "yunikorn")}
    west.sandbox.access.restrict(rights)
    with pytest.raises(KubeError, match="403"):
        admin.take_over(west.config, lambda text: True)


def test_without_the_config_map_there_is_nothing_to_take(east: Site) -> None:
    east.sandbox.edit(*MAP, lambda item: item.update(immutable=True), "yunikorn")
    with pytest.raises(LeaseError, match="can be written"):
        admin.take_over(east.config, lambda text: True)


@pytest.mark.parametrize("change", ["immutable", "gone"])
def test_check_says_that_nothing_guards_against_a_second_host(east: Site, change: str) -> None:
    if change == "gone":
        east.sandbox.delete("configmaps", *MAP[1:], "yunikorn")
    else:
        east.sandbox.edit(*MAP, lambda item: item.update(immutable=True), "yunikorn")
    found = found_by_check(east, "instance")
    assert found.result is CheckResult.WARNING and "is not guarded" in found.text


def test_check_says_that_the_mark_is_missing(east: Site) -> None:
    annotate(east.sandbox, None)
    found = found_by_check(east, "instance")
    assert found.result is CheckResult.WARNING and "missing" in found.text
    assert any("missing" in note for note in east.plan().plan.notes)


def test_a_run_at_work_elsewhere_that_is_gone_is_taken_from(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Its Lease says that it is good for years."""
    sandbox.add_namespace("dnm")
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=3000)
    site = Site(sandbox, tmp_path / "here", state="kubernetes", request_timeout_seconds=30)
    assert site.run().exit_code == 0
    claim = {"holderIdentity": "mgmt9:/dnm", "leaseDurationSeconds": 2**31 - 1}
    sandbox.edit("leases", "dnm-prod", lambda item: item["spec"].update(claim), "dnm")
    assert site.command("run").returncode == ExitCode.LOCKED
    found = found_by_check(site, "lease")
    assert found.result is CheckResult.WARNING and "mgmt9:/dnm is at work" in found.text
    assert "mgmt9:/dnm is at work" in site.command("status", "--health").stdout
    asked: list[str] = []
    admin.take_over(site.config, lambda text: not asked.append(text))
    assert "mgmt9:/dnm is at work" in asked[0]
    assert site.command("run").returncode == 0
    assert "nothing was changed" in admin.take_over(site.config, lambda text: True)
