"""Tests of a namespace with a ResourceQuota and the default scheduler: dnm lends nodes for pods
that the API server refuses, and restores the quota."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.http_api import Json
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import plain_pod
from tests.real.slurm_site import SlurmSite
from tests.real.unmanaged import (
    NODE_TYPE,
    UNMANAGED,
    add_deployment,
    apply_policies,
    make_guest,
)
from tests.real_slurm import SlurmLab

QUOTA = "/api/v1/namespaces/dev/resourcequotas/course"
HARD = {"requests.cpu": "80", "requests.memory": "320Gi", "count/configmaps": "50"}  # 20 pods


@pytest.fixture
def kubeconfig(plain_rig: Rig, kubeconfig_without_yunikorn: Path) -> Path:
    """Returns the kubeconfig of an account with the roles of both files."""
    plain_rig.shell(f"kubectl apply -f {REPOSITORY}/etc/rbac-resource-quota.yaml")
    return kubeconfig_without_yunikorn


@pytest.fixture
def quota_rig(plain_rig: Rig) -> Iterator[Rig]:
    make_guest(plain_rig)
    apply_policies(plain_rig)
    metadata = {"name": "course", "annotations": {"owner": "course"}}
    plain_rig.api.post(QUOTA.rpartition("/")[0], {"metadata": metadata, "spec": {"hard": HARD}})
    yield plain_rig
    plain_rig.api.delete(QUOTA)
    plain_rig.remove_guards()


def site_of(rig: Rig, directory: Path, kubeconfig: Path, lab: SlurmLab, **more: Any) -> SlurmSite:
    settings = {**UNMANAGED, "queue_system": "resource_quota", "monitored_namespaces": "dev"}
    return SlurmSite(rig, directory, kubeconfig, lab, node_type=NODE_TYPE, **settings, **more)


def stored(rig: Rig) -> Json:
    """Returns limits and annotations of the quota, except the one that names the host."""
    quota = rig.api.get(QUOTA)
    notes = quota["metadata"]["annotations"]
    return {**quota["spec"]["hard"], **{k: v for k, v in notes.items() if "/fence" not in k}}


def test_refused_deployment_gets_nodes_and_quota_is_restored(
    quota_rig: Rig, kubeconfig: Path, lab: SlurmLab, tmp_path: Path
) -> None:
    rig, before = quota_rig, stored(quota_rig)
    site = site_of(rig, tmp_path / "site", kubeconfig, lab, wake_workloads=True)
    rig.note_versions({"Slurm": lab.release})
    path = add_deployment(rig, "workshop", 75, plain_pod("workshop", "4", "16Gi"))
    rig.wait_for(lambda: rig.running("dev") == 20, "the quota admits 20 pods")

    def is_served() -> bool:
        return rig.running("dev") == 75

    site.run_until(is_served, "every pod of the workshop runs", 120)
    assert 4 <= len(site.lent) <= 5
    answer = site.json("check")
    assert answer["ok"], answer
    assert int(stored(rig)["requests.cpu"]) == 80 + 128 * len(site.lent)
    rig.api.delete(path)
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    assert stored(rig) == before
    assert rig.nodes() == {"k1", "k2"}
    site.assert_slurm_is_clean()
