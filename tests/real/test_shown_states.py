"""`node_conditions` on a real API server and a real Slurm: what kubectl shows of a lent node with
the one right that dnm's account needs more, and what a run does without it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.account import KUBECONFIG
from tests.real.cluster import QUEUES
from tests.real.http_api import Json
from tests.real.namespaces import REPOSITORY
from tests.real.proxy import Proxy, proxied
from tests.real.rig import Rig
from tests.real.site import PODS, add_pods
from tests.real.slurm_site import SlurmSite
from tests.real_slurm import SlurmLab

ROLE = "dynamic-node-manager-conditions"
BINDING = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ROLE}"
CONDITION = "SlurmNodeState"
SHOWN = "dynamic-node-manager/slurm"
WORDS = {
    "IDLE": "Idle", "DOWN": "Down", "MIXED": "Mixed", "ALLOCATED": "Allocated",
    "UNKNOWN": "Unknown", "DRAIN": "Drain", "NOT_RESPONDING": "NotResponding",
    "COMPLETING": "Completing", "MAINTENANCE": "Maintenance",
}  # fmt: skip
REASON = re.compile(r"Reason=(.*) \[(\w+)@(\S+)\]")


@pytest.fixture
def proxy(rig: Rig, tmp_path: Path) -> Iterator[Proxy]:
    """Every request of dnm goes through it; it ends without the right."""
    with proxied(rig, KUBECONFIG, tmp_path) as proxy:
        try:
            yield proxy
        finally:
            rig.api.delete(BINDING)


@pytest.fixture
def site(rig: Rig, lab: SlurmLab, proxy: Proxy, tmp_path: Path) -> SlurmSite:
    return SlurmSite(rig, tmp_path / "site", proxy.kubeconfig, lab, node_conditions="true")


def allow(rig: Rig) -> None:
    """The command that stands beside the role."""
    text = (REPOSITORY / "etc" / "rbac.yaml").read_text()
    found = re.search(rf"#   (kubectl create clusterrolebinding {ROLE} \\\n)#   (.*)\n", text)
    assert found, "etc/rbac.yaml has no command that binds the role"
    rig.shell(found[1] + found[2])


def conditions(rig: Rig, name: str) -> dict[str, Json]:
    """Those of Slurm, by what follows the operator's prefix."""
    found = rig.api.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
    return {one["type"].removeprefix(CONDITION): one for one in found if CONDITION in one["type"]}


def writes_of_conditions(rig: Rig, name: str) -> list[Json]:
    """Who has written Slurm's conditions, and when, as the API server keeps it; its kubelet and its
    controllers write to the Node too."""
    fields = rig.api.get(f"/api/v1/nodes/{name}")["metadata"]["managedFields"]
    return [one for one in fields if CONDITION in str(one["fieldsV1"])]


def annotation(rig: Rig, name: str) -> str | None:
    metadata = rig.api.get(f"/api/v1/nodes/{name}")["metadata"]
    found: str | None = metadata.get("annotations", {}).get(SHOWN)
    return found


def state_of(lab: SlurmLab, name: str) -> tuple[str, str]:
    """What `scontrol show node` prints: the state, and its Reason with user and time in UTC."""
    said = lab.run("env", "TZ=UTC", "scontrol", "-o", "show", "node", name)
    state, reason = re.search(r" State=(\S+)", said), REASON.search(said)
    assert state, said
    return state[1], f"{reason[1]} [{reason[2]}@{reason[3]}Z]" if reason else ""


def shows_slurm(rig: Rig, lab: SlurmLab, name: str) -> bool:
    """Whether the Node shows what Slurm says now."""
    state, reason = state_of(lab, name)
    base, *flags = state.split("+")
    text = ": ".join(filter(None, ("+".join((base, *sorted(flags))), reason)))
    found = conditions(rig, name)
    return (
        set(found) == {WORDS[one] for one in (base, *flags) if one in WORDS}
        and {one["message"] for one in found.values()} == {reason}
        and {one["status"] for one in found.values()} == {"True"}
        and annotation(rig, name) == text
    )


def settled(lab: SlurmLab, name: str) -> bool:
    """Slurm has noticed that the slurmd is gone: it says nothing new of the node from now on."""
    state, _ = state_of(lab, name)
    return state.startswith("DOWN") and "RESERVED" in state


def test_a_lent_node_shows_how_slurm_has_it(
    rig: Rig, lab: SlurmLab, proxy: Proxy, site: SlurmSite
) -> None:
    add_pods(rig, 30)
    allow(rig)
    site.run_until(lambda: rig.running("dev") == 30, "every pod runs")
    (name,) = site.lent
    site.run_until(lambda: settled(lab, name), "Slurm has noticed that its slurmd is gone")
    site.dnm("run")
    assert shows_slurm(rig, lab, name), (conditions(rig, name), state_of(lab, name))
    before = conditions(rig, name)
    assert before["Drain"]["reason"] == "DrainedByDnm"
    assert before["Drain"]["message"].startswith("dnm:real ")
    assert before["Down"]["reason"] == "ToldBySlurm"
    described = rig.shell(f"kubectl describe node {name}")
    assert re.search(r"SlurmNodeStateDrain +True .* DrainedByDnm +dnm:real ", described), described

    # At rest nothing is written, of the Node or anything else.
    written = writes_of_conditions(rig, name)
    proxy.seen.clear()
    for _ in range(3):
        site.dnm("run")
    assert proxy.seen and not proxy.writes, proxy.writes
    assert written and writes_of_conditions(rig, name) == written
    assert {state: one["lastHeartbeatTime"] for state, one in conditions(rig, name).items()} == {
        state: one["lastHeartbeatTime"] for state, one in before.items()
    }

    # An administrator's drain, in Slurm.
    lab.run("scontrol", "update", f"nodename={name}", "state=drain", "reason=bad disk")
    site.dnm("run")
    assert [one.path for one in proxy.writes] == [f"/api/v1/nodes/{name}/status"]
    assert shows_slurm(rig, lab, name), (conditions(rig, name), state_of(lab, name))
    drained = conditions(rig, name)
    assert drained["Drain"]["reason"] == "DrainedByAnother"
    assert drained["Drain"]["message"].startswith("bad disk [root@")
    times = {state: one["lastTransitionTime"] for state, one in before.items()}
    assert {state: one["lastTransitionTime"] for state, one in drained.items()} == times
    told = "drained in Slurm by another, and stays so when it is back: bad disk [root@"
    for command in (("status",), ("plan",), ("explain", name)):
        assert told in flat(site.dnm(*command).stdout), command

    # An administrator's cordon, in Kubernetes: it stays lent, empty or not.
    rig.shell(f"kubectl cordon {name}")
    rig.api.ask("DELETE", PODS)
    rig.wait_for(lambda: not rig.pods("dev"), "the pods are gone")
    end = time.monotonic() + 5  # it is idle for long enough after two seconds
    while time.monotonic() < end:
        site.dnm("run")
    for command in (("status",), ("plan",), ("explain", name)):
        assert "is cordoned by an administrator" in flat(site.dnm(*command).stdout), command
    assert site.lent == [name]
    assert rig.api.get(f"/api/v1/nodes/{name}")["spec"]["unschedulable"] is True
    state, reason = state_of(lab, name)
    assert "DRAIN" in state and reason.startswith("bad disk [root@"), (state, reason)

    # Without the cordon it goes back, drained as it was, and is told until it is resumed.
    rig.shell(f"kubectl uncordon {name}")
    site.run_until(lambda: name not in rig.nodes(), "the Node is gone")
    rig.wait_for(lambda: "RESERVED" not in state_of(lab, name)[0], "the reservation is gone")
    state, reason = state_of(lab, name)
    assert "DRAIN" in state and reason.startswith("bad disk [root@"), (state, reason)
    site.dnm("run")
    assert site.lent == [name] and told in flat(site.dnm("status").stdout)
    lab.run("scontrol", "update", f"nodename={name}", "state=resume")
    site.run_until(lambda: not site.lent, "the node is Slurm's")
    assert rig.queues_text() == QUEUES and rig.nodes() == {"k1", "k2"}


def flat(text: str) -> str:
    """One line, for tables break sentences."""
    return " ".join(text.split())


def test_without_the_right_a_run_says_so_and_goes_on(
    rig: Rig, lab: SlurmLab, proxy: Proxy, site: SlurmSite
) -> None:
    checks = site.json("check", code=None)["checks"]
    found = [one for one in checks if "nodes/status" in f"{one}"]
    assert [one["result"] for one in found] == ["warning"], found
    assert "no Node shows how Slurm has it" in found[0]["text"] + found[0]["remedy"], found
    add_pods(rig, 30)
    runs = site.run_until(lambda: rig.running("dev") == 30, "every pod runs", code=None)
    (name,) = site.lent
    refused = [one for one in proxy.seen if one.path == f"/api/v1/nodes/{name}/status"]
    assert refused and {one.code for one in refused} == {403}
    said = [one for one in runs if "the permission to patch nodes/status" in one.stderr]
    assert said and {one.returncode for one in said} == {1}, runs
    assert not conditions(rig, name) and annotation(rig, name) is None
    allow(rig)
    site.run_until(lambda: conditions(rig, name), "the Node shows it", code=None)
    rig.api.ask("DELETE", PODS)
    site.run_until(lambda: not site.lent, "the node is back")
    assert rig.queues_text() == QUEUES
    site.assert_slurm_is_clean()
