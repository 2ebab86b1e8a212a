"""Tests of a site without a queue system: dnm counts the pods that kube-scheduler reports as
unschedulable, and only dnm's caps limit the lent nodes."""

from __future__ import annotations

from pathlib import Path

from tests.real.rig import Rig
from tests.real.site import plain_pod
from tests.real.slurm_site import SlurmSite
from tests.real.unmanaged import GUEST, NODE_TYPE, UNMANAGED, add_deployment, places
from tests.real_slurm import SlurmLab
from tests.slurm_lab import is_running


def test_workshop_without_a_queue_system_uses_five_nodes_and_returns_them(
    busy_rig: Rig, kubeconfig_without_yunikorn: Path, lab: SlurmLab, tmp_path: Path
) -> None:
    rig = busy_rig
    kubeconfig = kubeconfig_without_yunikorn
    site = SlurmSite(rig, tmp_path / "site", kubeconfig, lab, node_type=NODE_TYPE, **UNMANAGED)
    rig.note_versions({"Slurm": lab.release})
    job = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=nobody")
    lab.wait_for(lambda: is_running(lab, job), 60)
    path = add_deployment(rig, "workshop", 75, plain_pod("workshop", "4", "16Gi"))

    def is_served() -> bool:
        return rig.running("dev") == 75 and len(site.lent) == 5

    site.run_until(is_served, "every pod of the workshop runs on a node that serves", 120)
    lent = set(site.lent)
    assert "a001" not in lent
    assert places(rig, "dev") == lent and places(rig, GUEST) == {"k1", "k2", None}
    answer = site.json("check")
    assert answer["ok"], answer
    rig.api.delete(path)
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    assert rig.nodes() == {"k1", "k2"} and places(rig, GUEST) == {"k1", "k2", None}
    assert is_running(lab, job)
    site.assert_slurm_is_clean()
