"""Tests of manifests applied again, and of kills of Kueue and of dnm, while nodes are lent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.real.kills import Kind, killed_run
from tests.real.kueue import OBJECTS, Kueue, named
from tests.real.kueue_site import (
    COHORT,
    QUEUE,
    add_job,
    cluster_queue,
    converter_site,
    end_job,
    ledger,
    lent_quota,
    make_course,
    quota_of,
    return_all,
    workloads,
)
from tests.real.programs import RigError
from tests.real.rig import Rig
from tests.real.site import Site

APPLY = "kubectl apply -f"
SERVER_SIDE = "kubectl apply --server-side --force-conflicts --field-manager=gitops -f"
REPLACE = "kubectl replace -f"


def served_site(rig: Rig, directory: Path, kubeconfig: Path) -> Site:
    """Returns a site with two lent nodes, on which a Job of 30 pods runs."""
    make_course(rig)
    site = converter_site(rig, directory, kubeconfig)
    add_job(rig, "workshop", 30)
    site.run_until(lambda: rig.running("dev") == 30, "the workshop runs", 120)
    assert len(site.lent) == 2
    return site


def run_manifest(rig: Rig, command: str, manifest: object, directory: Path) -> None:
    path = directory / "manifest.json"
    path.write_text(json.dumps(manifest))
    rig.shell(f"{command} {path}")


@pytest.mark.parametrize("command", [APPLY, SERVER_SIDE, REPLACE])
def test_manifest_of_a_queue_that_is_applied_again_keeps_its_lent_quota(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path, command: str
) -> None:
    rig = kueue_rig
    site = served_site(rig, tmp_path / "site", kueue_kubeconfig)
    run_manifest(rig, command, cluster_queue(), tmp_path)
    for _ in range(2):
        site.dnm("run")
    assert len(site.lent) == 2 and lent_quota(rig) == quota_of(2)
    assert site.json("check")["ok"]
    add_job(rig, "more", 16)  # Kueue still uses the Cohort, and it grows
    site.run_until(lambda: rig.running("dev") == 46, "a further Job runs", 120)
    for name in ("workshop", "more"):
        end_job(rig, name)
    return_all(rig, site)


def test_manifest_without_its_cohort_stops_lending_until_it_is_mended(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    rig = kueue_rig
    site = served_site(rig, tmp_path / "site", kueue_kubeconfig)
    run_manifest(rig, REPLACE, cluster_queue(cohortName=None), tmp_path)
    add_job(rig, "more", 40)
    rig.wait_for(lambda: len(workloads(rig)) == 2, "the further Job has a Workload")
    for _ in range(4):
        site.dnm("run", code=None)
    assert len(site.lent) == 2 and rig.running("dev") == 30
    assert "cohortName" in site.dnm("plan", code=None).stdout
    assert "cohortName" in site.dnm("check", code=1).stdout
    run_manifest(rig, REPLACE, cluster_queue(), tmp_path)
    site.run_until(lambda: rig.running("dev") == 70, "the further Job runs", 120)
    for name in ("workshop", "more"):
        end_job(rig, name)
    return_all(rig, site)


@pytest.mark.parametrize("command", [APPLY, SERVER_SIDE, REPLACE])
def test_manifest_of_a_cohort_that_is_applied_again_is_completed(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path, command: str
) -> None:
    """A site may keep an empty Cohort in its manifests. Its `kubectl replace` removes quota and
    ledger, which dnm restores from the registry."""
    rig = kueue_rig
    site = served_site(rig, tmp_path / "site", kueue_kubeconfig)
    run_manifest(rig, command, named("Cohort", COHORT, {}), tmp_path)
    for _ in range(2):
        site.dnm("run")
    assert len(site.lent) == 2 and lent_quota(rig) == quota_of(2) and ledger(rig)
    end_job(rig, "workshop")
    return_all(rig, site)


def test_kueue_that_is_killed_keeps_lent_nodes_and_gets_no_more(
    kueue_rig: Rig, kueue: Kueue, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    rig = kueue_rig
    site = served_site(rig, tmp_path / "site", kueue_kubeconfig)
    add_job(rig, "more", 40)
    rig.wait_for(lambda: len(workloads(rig)) == 2, "the further Job has a Workload")
    kueue.kill()
    for _ in range(4):
        site.dnm("run", code=None)
    assert len(site.lent) == 2 and sum("--set k8s" in call for call in site.calls) == 1
    assert lent_quota(rig) == quota_of(2) and rig.running("dev") == 30
    assert "kb.io" in site.dnm("check", code=1).stdout
    kueue.restart()
    site.run_until(lambda: rig.running("dev") == 70, "the further Job runs", 120)
    for name in ("workshop", "more"):
        end_job(rig, name)
    return_all(rig, site)


def test_kueue_that_is_killed_during_a_return_delays_it(
    kueue_rig: Rig, kueue: Kueue, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    """dnm lowers the quota before it returns a node, which waits until Kueue's webhook answers."""
    rig = kueue_rig
    site = served_site(rig, tmp_path / "site", kueue_kubeconfig)
    end_job(rig, "workshop")
    kueue.kill()
    for _ in range(4):
        site.dnm("run", code=None)
    assert lent_quota(rig) == quota_of(2)
    kueue.restart()
    return_all(rig, site)


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_at_any_write_of_a_lend_and_a_return_is_repaired(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path, when: str
) -> None:
    """`before`: the API server never gets the write. `after`: dnm never gets the answer."""
    rig = kueue_rig
    make_course(rig)
    # Long enough for Kueue on a busy machine: nodes that it left idle would count as of no use.
    idle = {"reversion_idle_seconds": 20}
    site = converter_site(rig, tmp_path / "site", kueue_kubeconfig, **idle)

    def run_until_killed_no_more(is_so: object, condition: str) -> set[Kind]:
        kinds: set[Kind] = set()

        def is_there() -> bool:
            assert callable(is_so)
            if is_so():
                return True
            killed_run(site, kueue_kubeconfig, tmp_path, when, kinds)
            # After any kill: two nodes at most, each of which counts once or not at all.
            assert len(rig.nodes()) <= 4
            return False

        try:
            rig.wait_for(is_there, condition, 180)
        except RigError as error:
            raise RigError(f"{error}\n{site.dnm('status', code=None).stdout}") from error
        return kinds

    add_job(rig, "workshop", 30)
    lend = run_until_killed_no_more(
        lambda: rig.running("dev") == 30 and len(site.lent) == 2, "the pods run"
    )
    assert lent_quota(rig) == quota_of(2)
    end_job(rig, "workshop")
    back = run_until_killed_no_more(site.has_returned_nodes, "every node is returned")
    assert lent_quota(rig) == quota_of(0) and not ledger(rig)
    print(when, lend, back)
    assert {("PATCH", COHORT), ("POST", "cohorts")} <= lend and ("PATCH", COHORT) in back
    assert rig.api.get(f"{OBJECTS}/clusterqueues/{QUEUE}")["spec"]["cohortName"] == COHORT
