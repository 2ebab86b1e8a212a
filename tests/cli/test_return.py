"""Tests of `dnm return --evict`: the pods that it names, its refusals, and budgets of pods."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dnm.cli.act.admin import pause
from dnm.cli.look.status import status_document
from dnm.cli.look.status_view import manual_lines
from dnm.cli.manual.adopt import adopt
from dnm.cli.manual.holds import hold
from dnm.cli.manual.lending import lend
from dnm.cli.manual.returning import return_
from dnm.cli.terminal.operation import RefusedError
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import KubeError
from dnm.model.lent import Phase
from tests.cli.questions import answer_questions
from tests.cli.test_permissions import roles
from tests.site import QUEUE, Site, set_up_workshop


def pod_of(name: str, owner: str = "", **labels: str) -> dict[str, object]:
    """Returns a running pod on a001. The sandbox never deletes it for lack of its `owner`."""
    metadata: dict[str, object] = {"name": name, "namespace": "dev", "labels": labels}
    if name == "logs":
        metadata["annotations"] = {"kubernetes.io/config.mirror": "x"}
    if owner:
        version, _, kind = owner.rpartition(" ")
        entry = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}
        metadata["ownerReferences"] = [entry]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": "a001", "terminationGracePeriodSeconds": 20,
                 "containers": [{"name": "c", "image": "none"}]},
        "status": {"phase": "Running"},
    }  # fmt: skip


def budget(least: int) -> dict[str, object]:
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "dev"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}},
    }  # fmt: skip


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site with the lent node a001 and three pods: plain, with a budget, static."""
    set_up_workshop(sandbox, 2)
    sandbox.add_namespace("dev")
    sandbox.batch.claim(sandbox.batch.machines["a001"], "root-shell", "root converts it")
    sandbox.batch.machines["a001"].place = "kubernetes"
    sandbox.add_node("a001", labels={"dev": "true"})
    made = Site(sandbox, tmp_path / "site")
    made.run()
    adopt(made.config, "a001", "dev")
    made.run()
    made.run()
    assert made.registry.nodes["a001"].phase is Phase.SERVING
    for manifest in (pod_of("alone"), pod_of("web", "apps/v1 StatefulSet", app="web"),
                     pod_of("logs")):  # fmt: skip
        sandbox.create(manifest)
    sandbox.create(budget(1))
    sandbox.tick(5)  # the pods run
    return made


def catch_up(sandbox: Sandbox) -> None:
    """Sets the sandbox's clock, stopped between ticks, to the host's time, which commands use."""
    sandbox.clock.set(max(sandbox.clock.now(), time.time() + 1))


def names(sandbox: Sandbox) -> list[str]:
    """Returns the names of the pods in dev that are not terminating."""
    result = sandbox.store.objects("pods", "dev")
    return sorted(
        pod["metadata"]["name"] for pod in result if not pod["metadata"].get("deletionTimestamp")
    )


def test_disruption_budget_delays_an_eviction(
    sandbox: Sandbox, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = return_(site.config, ["a001"], evicts=True, yes=True, reason="a fan")
    assert capsys.readouterr().err.splitlines() == [
        "a001: 2 pods, and pods that start there before it is fenced: evicted by the next run",
        "  dev/alone: it has no controller that would replace it",
        "  dev/web: not now: Cannot evict pod as it would violate the pod's disruption budget: the "
        "disruption budget web does not allow one more",
    ]
    assert lines[0].startswith(
        "a001 is fenced by the next run, and returned when its pods were evicted"
    )
    assert names(sandbox) == ["alone", "logs", "web"]  # the question changes nothing
    catch_up(sandbox)
    result = site.run()
    assert result.exit_code == 0 and result.outcome is not None, result.plan.errors
    assert f"action=evict node=a001 pods=1 queue={QUEUE}" in result.outcome.actions
    assert names(sandbox) == ["logs", "web"]
    for _ in range(3):
        sandbox.tick(60)
        result = site.run()
    (line,) = manual_lines(status_document(site.config, site.registry, site.now()), site.now())
    assert line.startswith("a001 is returned manually: 1 pod evicted so far; dev/web is")
    (verdict,) = result.plan.nodes
    assert "dev/web is not evicted: Cannot evict pod" in verdict.sentence and result.exit_code == 0
    assert site.registry.nodes["a001"].phase is Phase.SERVING and names(sandbox) == ["logs", "web"]
    sandbox.delete("poddisruptionbudgets", "web", "dev")
    for _ in range(6):
        site.run()
        sandbox.tick(60)
    assert site.lent() == [] and not sandbox.violations
    assert sandbox.batch.machines["a001"].place == "batch"


def test_pods_have_their_grace_time_before_an_eviction(sandbox: Sandbox, site: Site) -> None:
    """dnm has only the roles of etc/rbac.yaml for its own work and for evictions."""
    sandbox.access.restrict_to_manifests(roles("-evict"))
    return_(site.config, ["a001"], evicts=True, grace="10m", yes=True)
    catch_up(sandbox)
    for _ in range(3):
        site.run()
        sandbox.tick(60)
    assert names(sandbox) == ["alone", "logs", "web"]
    assert sandbox.get("nodes", "a001")["spec"]["unschedulable"]  # type: ignore[index]
    sandbox.tick(600)
    site.run()
    assert names(sandbox) == ["logs", "web"]


def test_commands_report_that_dnm_is_paused(site: Site) -> None:
    pause(site.config)
    assert return_(site.config, ["a001"])[-1] == (
        "dnm is paused, and returns no node before `dnm resume`"
    )
    (message,) = lend(site.config, "dev", 1)
    assert "dnm is paused, and lends after `dnm resume`; `dnm return" in message


def test_refused_confirmation_changes_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_questions(monkeypatch, False)
    lines = return_(site.config, ["a001"], evicts=True)
    assert lines == ["nothing was changed"] and site.registry.nodes["a001"].leaves is None
    assert "  dev/web: not now" in capsys.readouterr().err


def test_evict_without_a_terminal_needs_yes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    with pytest.raises(
        RefusedError, match=r"dev/alone.*\n.*\n--evict needs a confirmation, .* add --yes"
    ):
        return_(site.config, ["a001"], evicts=True)
    assert site.registry.nodes["a001"].leaves is None
    return_(site.config, ["a001"], evicts=True, yes=True)
    assert site.registry.nodes["a001"].eviction is not None


def test_evict_refuses_a_node_cordoned_by_an_administrator(sandbox: Sandbox, site: Site) -> None:
    with sandbox.store.lock:
        sandbox.store.edit(
            "nodes", "", "a001", lambda entry: entry["spec"].update(unschedulable=True)
        )
    with pytest.raises(RefusedError, match="a001 is cordoned by an administrator, so dnm does not"):
        return_(site.config, ["a001"], evicts=True, yes=True)


def test_pod_of_a_node_set_is_named_and_not_evicted(
    sandbox: Sandbox, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox.create(pod_of("slurmd", "slinky.slurm.net/v1beta1 NodeSet"))
    return_(site.config, ["a001"], evicts=True, yes=True)
    assert capsys.readouterr().err.splitlines()[3] == "  dev/slurmd: of a NodeSet, is never evicted"


def test_evict_without_permission_is_refused_at_once(sandbox: Sandbox, site: Site) -> None:
    sandbox.access.restrict_to_manifests(roles())
    with pytest.raises(KubeError, match="the permission to create pods/eviction"):
        return_(site.config, ["a001"], evicts=True, yes=True)
    assert site.registry.nodes["a001"].leaves is None


def test_node_that_changed_during_the_confirmation_is_left_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_questions(monkeypatch, True, lambda: hold(site.config, ["a001"]))
    lines = return_(site.config, ["a001"], evicts=True)
    assert lines[-1].startswith("a001 was not changed, because")
    assert site.registry.nodes["a001"].leaves is None


def test_evict_is_recorded_with_author_reason_and_time(site: Site) -> None:
    return_(site.config, ["a001"], evicts=True, grace="1h", yes=True, reason="a fan")
    eviction = site.registry.nodes["a001"].eviction
    assert eviction is not None and eviction.since > datetime.now(UTC) + timedelta(minutes=50)
    line = site.registry.memory.unwritten[-1]
    assert (line.event, line.object, line.reason) == ("return", "a001", "a fan") and line.requester
    assert line.numbers == {"evict_from": eviction.since.isoformat(timespec="seconds")}
