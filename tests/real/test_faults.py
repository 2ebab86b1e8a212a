"""Tests of a faulty node on a real Slurm and a real API server. dnm returns a node with a fault in
Kubernetes to Slurm, drained with the fault as the reason. It does not lend a node that Slurm's
health check drains. All the time, the tests read which of the two may start work on the node."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.account import KUBECONFIG
from tests.real.cluster import QUEUES
from tests.real.http_api import ApiError, Json
from tests.real.rig import Rig
from tests.real.site import CONTROLLERS, DEV, add_controller, edit_file, pod
from tests.real.slurm_site import SlurmSite
from tests.real_slurm import SlurmLab

NODE, PEOPLE = "a001", 40  # the one that may be lent; they need it
FAULT = "faulty in Kubernetes: Healthy:False"
NHC = "NHC: check_hw_ib: no link"


class Sides:
    """A record of which of Slurm and Kubernetes may start work on the node. Kubernetes is read
    before and after Slurm, so that both answers are of one moment."""

    def __init__(self, rig: Rig, lab: SlurmLab) -> None:
        self.rig, self.lab = rig, lab
        self.seen: list[str] = []
        self.failure: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Sides:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def now(self) -> str:
        assert self.failure is None, self.failure
        return self.seen[-1] if self.seen else ""

    def _watch(self) -> None:
        try:
            while not self._over.wait(0.2):
                before, slurm, after = self._kubernetes(), self._slurm(), self._kubernetes()
                if before is after:
                    names = {"Kubernetes": before, "Slurm": slurm}
                    output = " and ".join(name for name, may in names.items() if may) or "nobody"
                    self.seen += [] if self.seen[-1:] == [output] else [output]
        except BaseException as error:  # the waiting story reports it
            self.failure = error

    def _kubernetes(self) -> bool:
        try:
            spec = self.rig.api.get(f"/api/v1/nodes/{NODE}")["spec"]
        except ApiError:
            return False
        return not spec.get("unschedulable") and not spec.get("taints")

    def _slurm(self) -> bool:
        state = self.lab.client.read_node(NODE).state
        is_up = state.base == "IDLE" and not state.flags & {"DRAIN", "FAIL", "NOT_RESPONDING"}
        return is_up and not any(
            NODE in reservation.nodes for reservation in self.lab.client.read_reservations()
        )


@pytest.fixture
def site(rig: Rig, lab: SlurmLab, tmp_path: Path) -> SlurmSite:
    """Returns a site on which all nodes except one are in maintenance."""
    lab.run("scontrol", "update", "nodename=a[002-010]", "state=drain", "reason=maintenance")
    return SlurmSite(
        rig, tmp_path / "site", KUBECONFIG, lab, max_converted_nodes=1,
        fault_conditions="condition gpu.example/Healthy=False",
    )  # fmt: skip


@pytest.fixture
def sides(rig: Rig, lab: SlurmLab, site: SlurmSite) -> Iterator[Sides]:
    with Sides(rig, lab) as result:
        yield result
    assert result.failure is None and "Kubernetes and Slurm" not in result.seen, result.seen


def begin_work(rig: Rig) -> None:
    add_controller(rig, "work", pod("work", DEV, "4", "8Gi"), PEOPLE)


def end_work(rig: Rig) -> None:
    rig.api.ask("DELETE", f"{CONTROLLERS}/replicasets/work?propagationPolicy=Background")


def run_to_work(rig: Rig, site: SlurmSite) -> None:
    site.run_until(lambda: rig.running("dev") == PEOPLE, "all of it runs", code=None)
    assert site.lent == [NODE]


def pods_there(rig: Rig) -> list[Json]:
    return [entry for entry in rig.pods("dev") if entry["spec"].get("nodeName") == NODE]


def show(rig: Rig, status: str) -> None:
    """Sets the status of the Node's condition, as a Node Problem Detector does."""
    document = {"type": "gpu.example/Healthy", "status": status, "reason": "Xid79", "message": "x"}
    path = f"/api/v1/nodes/{NODE}/status"
    rig.api.patch(path, {"status": {"conditions": [document]}}, "strategic")


def resume(lab: SlurmLab) -> None:
    lab.run("scontrol", "update", f"nodename={NODE}", "state=resume")


def assert_left_drained(lab: SlurmLab, reason: str) -> None:
    node = lab.client.read_node(NODE)
    assert "DRAIN" in node.state.flags and node.reason.startswith(reason), node
    assert not node.comment and not lab.client.read_reservations()


def test_fault_of_a_lent_node_is_reported_to_slurm(rig: Rig, site: SlurmSite, sides: Sides) -> None:
    """The node is lent, faulty, emptied, returned, drained, resumed manually, and lent again."""
    lab = site.lab
    rig.wait_for(lambda: sides.now == "Slurm", "Slurm has it")
    begin_work(rig)
    run_to_work(rig, site)
    rig.wait_for(lambda: sides.now == "Kubernetes", "Kubernetes has it")
    show(rig, "False")
    site.run_until(lambda: sides.now == "nobody", "it is fenced", code=None)
    show(rig, "True")  # an improved condition does not make the node healthy
    site.run_until(lambda: not site.lent, "it is returned", code=None)
    assert_left_drained(lab, FAULT)
    assert rig.nodes() == {"k1", "k2"}
    for _ in range(2):  # the evicted pods wait, and no node may be lent
        site.dnm("run", code=None)
    assert not site.lent and sides.now == "nobody" and rig.running("dev") < PEOPLE
    listed = site.convert("--list", "--node-name", NODE).stdout
    assert "SKIP" in listed and FAULT in listed
    resume(lab)
    rig.wait_for(lambda: sides.now == "Slurm", "an administrator has resumed it")
    run_to_work(rig, site)
    rig.wait_for(lambda: sides.now == "Kubernetes", "Kubernetes has it again")
    end_work(rig)
    site.run_until(lambda: not site.lent, "it is returned", code=None)
    assert rig.queues_text() == QUEUES
    rig.wait_for(lambda: sides.now == "Slurm", "Slurm has it again")
    lend = ["Slurm", "nobody", "Kubernetes", "nobody"]
    assert sides.seen == [*lend, *lend, "Slurm"]
    output = site.dnm("history", NODE).stdout
    assert "Healthy:False" in output and "emptying" in output, output


def find_bad(site: SlurmSite, hook: str) -> None:
    """Edits a hook of the site so that it drains the node, as Slurm's health check does."""
    command = (
        f"SLURM_CONF={site.lab.environ['SLURM_CONF']} PATH={site.environment['PATH']} "
        f"scontrol update State=DRAIN NodeName=$1 'Reason={NHC}'"
    )
    edit_file(site.hooks / hook, "set -eu\n", f"set -eu\n{command}\n")


@pytest.mark.parametrize("hook", ["reach", "prepare"])
def test_node_drained_by_a_health_check_during_its_claim_is_not_lent(
    rig: Rig, site: SlurmSite, sides: Sides, hook: str
) -> None:
    """Neither dnm's reservation nor its drain keeps a health check from draining the node too."""
    find_bad(site, hook)
    begin_work(rig)
    site.run_until(
        lambda: site.lab.client.read_node(NODE).reason.startswith(NHC), "it is bad", code=None
    )
    site.run_until(lambda: not site.lent and sides.now == "nobody", "given back", code=None)
    rig.wait_for(lambda: not site.lab.client.read_reservations(), "nothing holds it")
    assert_left_drained(site.lab, NHC)
    site.dnm("run", code=None)
    assert not site.lent and not pods_there(rig) and "Kubernetes" not in sides.seen
    resume(site.lab)
    rig.wait_for(lambda: sides.now == "Slurm", "an administrator has resumed it")


def test_node_drained_by_a_health_check_while_lent_stays_drained(
    rig: Rig, site: SlurmSite, sides: Sides
) -> None:
    begin_work(rig)
    run_to_work(rig, site)
    lab: Any = site.lab
    lab.run("scontrol", "update", "State=DRAIN", f"NodeName={NODE}", f"Reason={NHC}")
    site.dnm("run", code=None)
    assert pods_there(rig) and site.lent == [NODE], "its pods may end"
    end_work(rig)
    site.run_until(lambda: NODE not in rig.nodes(), "it goes back", code=None)
    site.run_until(lambda: not lab.client.read_reservations(), "it is left to Slurm", code=None)
    assert_left_drained(lab, NHC)
    resume(lab)
    site.run_until(lambda: not site.lent, "it is forgotten", code=None)
    rig.wait_for(lambda: sides.now == "Slurm", "Slurm has it")
    assert sides.seen[-2:] == ["nobody", "Slurm"]
