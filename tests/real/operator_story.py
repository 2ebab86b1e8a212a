"""Tests of a workshop with nodeset-convert beside the real slurm-operator, in both of its modes.

pytest does not collect them with the other tests of real servers, since the operator is built only
on request: `make test-operator`. A job runs on one machine all the time; the others are lent."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dnm.converters.nodeset import FENCE
from tests.real.cluster import QUEUES
from tests.real.rig import Rig
from tests.real.second_writer import SecondWriter
from tests.real.site import PODS, add_pods
from tests.real.slinky import roles
from tests.real.slurm_operator import Slinky, slinky
from tests.real.slurm_site import StandingSite
from tests.slurm_lab import is_running

LABEL = ("slurm", "yes")
BARE = "s001"  # the node of Slurm without a pod
NAMES = ("a001", "a002", "a003")
BUSY = "a001"
PEOPLE = 50  # 800 GiB: 400 of the queue's own, and two nodes


@pytest.fixture
def directory() -> Iterator[Path]:
    """Returns a directory that the users of Slurm's jobs can read."""
    with tempfile.TemporaryDirectory(prefix="dnm-operator-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@contextmanager
def at_work(rig: Rig, directory: Path, mode: str) -> Iterator[Slinky]:
    """Yields a cluster with slurm-operator and an idle slurmd in a pod on each machine."""
    fence = {"key": FENCE.key, "effect": FENCE.effect}
    for name in NAMES:
        rig.add_node(name, cpu=128, **{LABEL[0]: LABEL[1]})
        rig.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [fence]}})
    rig.wait_for(lambda: rig.ready_nodes() >= set(NAMES), "the machines are Ready")
    with slinky(rig, directory, (BARE,)) as made, roles(rig):
        made.make_node_set(mode, len(NAMES), LABEL, FENCE.key)
        rig.wait_for(
            lambda: made.states() == {name: {"Idle"} for name in NAMES},
            "the operator reports each machine as idle", 120,
        )  # fmt: skip
        with SecondWriter(rig, NAMES):
            yield made


@pytest.mark.parametrize("mode", ["DaemonSet", "StatefulSet"])
def test_workshop_beside_slurm_operator_loses_no_job(
    rig: Rig, directory: Path, tmp_path: Path, mode: str
) -> None:
    with at_work(rig, directory, mode) as made:
        lab = made.slurm
        job = lab.submit("-w", BUSY, "-p", "b", "-n1", script="sleep 3000")
        lab.wait_for(lambda: is_running(lab, job), 60)
        site = StandingSite(
            rig, tmp_path / "site", lab, "nodeset-convert",
            more=f"nodeset_label = {'='.join(LABEL)}", max_converted_nodes=3,
        )  # fmt: skip
        add_pods(rig, PEOPLE)
        site.run_until(lambda: rig.running("dev") == PEOPLE, "every pod of the workshop runs", 200)
        assert sorted(site.lent) == [name for name in NAMES if name != BUSY]
        rig.api.ask("DELETE", PODS)
        site.run_until(lambda: not site.lent, "every node is returned", 200)
        assert rig.queues_text() == QUEUES
        assert is_running(lab, job)
        ended = {line.split()[2] for line in made.controls.order if line.startswith("preStop")}
        assert ended == {f"{name}:" for name in NAMES if name != BUSY}, made.controls.order
        assert not lab.client.read_reservations()
        for node in lab.read_nodes():
            assert node.state.base != "DOWN" and "DRAIN" not in node.state.flags, node
            assert not node.extra, node
        assert_a_faulty_node_stays_drained(rig, made, site)


def assert_a_faulty_node_stays_drained(rig: Rig, made: Slinky, site: StandingSite) -> None:
    """Checks that a faulty node stays drained, although the operator removes its own drains when it
    recreates the pod of a node."""
    name, fault = NAMES[-1], "Healthy:False"
    lent = site.convert("--set", "k8s", "--node-name", name, "--namespace", "dev")
    assert lent.returncode == 0, lent.stderr
    back = site.convert("--set", "batch", "--node-name", name, "--leave-drained", fault)
    assert back.returncode == 0, back.stderr
    rig.wait_for(
        lambda: made.states()[name] == {"Idle", "Drain"}, "the operator sees the drain", 120
    )
    node = made.slurm.client.read_node(name)
    assert "DRAIN" in node.state.flags and node.reason == f"faulty in Kubernetes: {fault}", node
    assert not made.slurm.client.read_reservations()
    made.slurm.run("scontrol", "update", f"nodename={name}", "state=resume")
    rig.wait_for(lambda: made.states()[name] == {"Idle"}, "an administrator has resumed it", 120)
