"""Sites without a queue system: kube-scheduler reports the pods that dnm counts, and nothing limits
them but dnm's own caps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.account import make_account_without_yunikorn, restore_account
from tests.real.rig import Rig
from tests.real.site import plain_pod
from tests.real.slurm_site import SlurmSite
from tests.real.unmanaged import (
    GUEST,
    NODE_TYPE,
    SETTINGS,
    add_deployment,
    apply_policies,
    create,
    make_guest,
    places,
)
from tests.real_slurm import SlurmLab
from tests.slurm_lab import is_running


@pytest.fixture
def kubeconfig(plain_rig: Rig) -> Iterator[Path]:
    """Yields the kubeconfig of the account that docs/none.md creates."""
    try:
        yield make_account_without_yunikorn(plain_rig)
    finally:
        restore_account(plain_rig)


@pytest.fixture
def busy_rig(plain_rig: Rig) -> Iterator[Rig]:
    """Yields a rig whose nodes are full of pods of another namespace. A further pod waits."""
    make_guest(plain_rig)
    apply_policies(plain_rig)
    for number in range(3):
        create(plain_rig, GUEST, f"wide-{number}", "64")
    plain_rig.wait_for(lambda: plain_rig.running(GUEST) == 2, "the nodes are full")
    yield plain_rig
    plain_rig.remove_guards()


def test_workshop_without_a_queue_system_uses_five_nodes_and_returns_them(
    busy_rig: Rig, kubeconfig: Path, lab: SlurmLab, tmp_path: Path
) -> None:
    rig = busy_rig
    site = SlurmSite(rig, tmp_path / "site", kubeconfig, lab, node_type=NODE_TYPE, **SETTINGS)
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
