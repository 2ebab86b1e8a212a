"""Tests of a course in a ClusterQueue with too little quota: Kueue admits it on lent nodes, and the
quota is restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.kueue_site import (
    add_job,
    course_pod,
    end_job,
    lent_quota,
    list_steps,
    make_course,
    quota_of,
    return_all,
    slurm_site,
)
from tests.real.rig import Rig
from tests.real.site import PODS
from tests.real.unmanaged import places
from tests.real_slurm import SlurmLab


@pytest.mark.parametrize(("kind", "least"), [("job", 5), ("pods", 4)])
def test_workshop_is_admitted_on_lent_nodes_and_the_quota_is_restored(
    kueue_rig: Rig, kueue_kubeconfig: Path, lab: SlurmLab, tmp_path: Path, kind: str, least: int
) -> None:
    """Kueue never splits a Job between flavors, so that its 75 pods need five lent nodes. If
    they are single pods, 20 of them run on the nodes of the cluster."""
    rig = kueue_rig
    make_course(rig)
    site = slurm_site(rig, tmp_path / "site", kueue_kubeconfig, lab)
    rig.note_versions({"Slurm": lab.release})
    if kind == "job":
        job = add_job(rig, "workshop", 75)
    else:
        for number in range(75):
            rig.api.post(PODS, course_pod(f"p{number:02}"))
    site.run_until(lambda: rig.running("dev") == 75, "every pod of the workshop runs", 120)
    lent = set(site.lent)
    assert len(lent) == least
    own = set() if kind == "job" else {"k1", "k2"}
    assert places(rig, "dev") == lent | own
    assert lent_quota(rig) == quota_of(least)
    answer = site.json("check")
    assert answer["ok"], answer
    if kind == "job":
        steps = list_steps(rig, job)
        print(steps)
        assert list(steps.values()) == sorted(steps.values())
        end_job(rig, "workshop")
    else:
        rig.api.ask("DELETE", PODS)
    return_all(rig, site)
    site.assert_slurm_is_clean()
