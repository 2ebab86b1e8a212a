"""`node_conditions` over HTTP with the real client: what a Node shows of Slurm, who has drained and
cordoned it, and that nothing is written at rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.kube.shown_state import make_patch
from dnm.lab.sandbox.batch import OWN_DRAIN
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.node import ShownState
from dnm.model.plan import Pass, ShowState
from tests.builders import NOW
from tests.site import Site, a_workshop_site


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """One node serves, with pods on it."""
    site = a_workshop_site(sandbox, tmp_path)
    settings = "max_converted_nodes = 1\nnode_conditions = true\n"
    site.path.write_text(site.path.read_text() + settings)
    site.run_until_rest()
    return site


def lent(site: Site) -> str:
    (name,) = site.lent()
    return name


def conditions(sandbox: Sandbox, name: str) -> dict[str, dict[str, Any]]:
    """Those of Slurm, by the operator's names."""
    prefix = "SlurmNodeState"
    found = sandbox.get("nodes", name)["status"]["conditions"]
    return {one["type"].removeprefix(prefix): one for one in found if prefix in one["type"]}


def annotation(sandbox: Sandbox, name: str) -> str | None:
    found = sandbox.get("nodes", name)["metadata"].get("annotations") or {}
    text: str | None = found.get("dynamic-node-manager/slurm")
    return text


def writes(sandbox: Sandbox) -> list[str]:
    """The writes, without those of the Lease."""
    changes = (one for one in sandbox.requests.all() if one.method not in ("GET", "POST"))
    return [one.path for one in changes if one.resource != "leases"]


def run(site: Site) -> Pass:
    site.sandbox.tick(60)
    site.sandbox.requests.clear()
    return site.run()


def test_a_lent_node_shows_slurm_s_state_and_at_rest_nothing_is_written(
    sandbox: Sandbox, site: Site
) -> None:
    name = lent(site)
    found = conditions(sandbox, name)
    assert found.keys() == {"Down", "Drain"}
    said = "dnm:prod converting for dev [root]"
    assert {one["status"] for one in found.values()} == {"True"}
    assert {one["message"] for one in found.values()} == {said}
    assert found["Drain"]["reason"] == "DrainedByDnm" and found["Down"]["reason"] == "ToldBySlurm"
    assert annotation(sandbox, name) == f"DOWN+DRAIN+RESERVED: {said}"
    sandbox.set_ready(name, True)
    assert conditions(sandbox, name) == found, "a kubelet leaves them alone"
    for _ in range(2):
        result = run(site)
        assert result.outcome is not None and not result.outcome.actions
        assert writes(sandbox) == [] and not result.plan.errors


def test_an_administrator_s_drain_and_cordon_are_shown_apart_and_neither_is_lifted(
    sandbox: Sandbox, site: Site
) -> None:
    name = lent(site)
    before = conditions(sandbox, name)
    sandbox.batch.drain(name, "bad disk", owner="alice")
    result = run(site)
    assert writes(sandbox) == [f"/api/v1/nodes/{name}/status"]
    after = conditions(sandbox, name)
    assert after["Drain"]["reason"] == "DrainedByAnother"
    assert after["Drain"]["message"] == "bad disk [alice]"
    kept = {state: one["lastTransitionTime"] for state, one in before.items()}
    assert {state: one["lastTransitionTime"] for state, one in after.items()} == kept
    told = "drained in Slurm by another, and stays so when it is back: bad disk [alice]"
    assert any(told in note for note in result.plan.notes)
    assert told in site.registry.last_run.nodes[name]
    shown = sandbox.get("nodes", name)
    assert not shown["spec"].get("unschedulable"), "a drain in Slurm is no cordon"
    sandbox.cordon(name)
    run(site)
    sentence = site.registry.last_run.nodes[name]
    assert sentence.startswith("is cordoned by an administrator") and told in sentence
    run(site)
    assert sandbox.batch.machines[name].drains.keys() == {OWN_DRAIN, "alice"}
    assert sandbox.get("nodes", name)["spec"]["unschedulable"] is True
    sandbox.batch.resume(name, owner="alice")
    result = run(site)
    assert conditions(sandbox, name)["Drain"]["reason"] == "DrainedByDnm"
    assert not any("by another" in note for note in result.plan.notes)


def test_a_drain_of_another_outlives_the_return(sandbox: Sandbox, site: Site) -> None:
    name = lent(site)
    sandbox.batch.drain(name, "bad disk", owner="alice")
    run(site)
    sandbox.finish_pods([pod for pod, on in site.pods().items() if on == name], "dev")
    sandbox.finish_pods(list(site.pods()), "dev")
    for _ in range(8):
        run(site)
    assert name not in {node["metadata"]["name"] for node in sandbox.objects("nodes")}
    assert sandbox.batch.machines[name].drains == {"alice": "bad disk"}
    assert not sandbox.violations


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        pytest.param({"kind": "status", "code": 403}, "patch nodes/status", id="no-right"),
        pytest.param(
            {"kind": "garbage", "body": "{}"},
            "it is not known whether dnm could show",
            id="garbage",
        ),
        pytest.param({"kind": "lost"}, "it is not known whether dnm could show", id="lost"),
    ],
)
def test_a_patch_that_fails_is_said_and_stops_nothing(
    sandbox: Sandbox, site: Site, fault: dict[str, Any], sentence: str
) -> None:
    name = lent(site)
    sandbox.batch.drain(name, "bad disk", owner="alice")
    sandbox.fault(**fault, path="/status", methods=("PATCH",), times=1)
    result = run(site)
    assert result.outcome is not None and sentence in "".join(result.outcome.errors)
    assert lent(site) == name
    result = run(site)
    assert result.outcome is not None and not result.outcome.errors
    assert annotation(sandbox, name) == "DOWN+DRAIN+RESERVED: bad disk [alice]"
    assert not run(site).plan.actions


def test_off_takes_off_what_was_shown_and_then_writes_nothing(sandbox: Sandbox, site: Site) -> None:
    name = lent(site)
    text = site.path.read_text().replace("node_conditions = true", "node_conditions = false")
    site.path.write_text(text)
    run(site)
    assert conditions(sandbox, name) == {} and annotation(sandbox, name) is None
    run(site)
    assert writes(sandbox) == []


def test_a_node_that_slurm_has_again_shows_nothing(sandbox: Sandbox, site: Site) -> None:
    sandbox.add_node("k1")
    kube = KubeClient.connect(site.config)
    one = ShowState(node="k1", wanted=ShownState(states=("Idle",), text="IDLE"))
    assert kube.show_state(one, NOW) and conditions(sandbox, "k1").keys() == {"Idle"}
    run(site)
    assert conditions(sandbox, "k1") == {} and annotation(sandbox, "k1") is None
    types = {one["type"] for one in sandbox.get("nodes", "k1")["status"]["conditions"]}
    assert "Ready" in types, "what others say stays"
    gone = ShowState(node="k2", wanted=None)
    assert kube.show_state(gone, NOW) is False
    kube.close()


def test_a_patch_is_absolute_and_keeps_the_time_of_what_stands() -> None:
    wanted = ShownState(states=("Drain", "Idle"), text="IDLE+DRAIN")
    show = ShowState(node="a001", wanted=wanted, message="m", standing=("Drain", "Strange"))
    patch = make_patch(show, NOW)
    drain, idle, *deleted = patch["status"]["conditions"]
    assert "lastTransitionTime" not in drain
    assert idle["lastTransitionTime"] == idle["lastHeartbeatTime"] == "2026-03-02T12:00:00Z"
    assert all(one["$patch"] == "delete" for one in deleted)
    gone = {one["type"].removeprefix("SlurmNodeState") for one in deleted}
    assert gone == {
        "Allocated", "Completing", "Down", "Error", "Fail", "Future", "Invalid", "InvalidReg",
        "Maintenance", "Mixed", "NotResponding", "Strange", "Undrain", "Unknown",
    }  # fmt: skip
    assert patch["metadata"] == {"annotations": {"dynamic-node-manager/slurm": "IDLE+DRAIN"}}
