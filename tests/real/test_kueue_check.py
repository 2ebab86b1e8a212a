"""Tests of configurations that Kueue's own manager accepts and `dnm check` reports as faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real.http_api import Json
from tests.real.kueue import OBJECTS, Kueue, apply, named, quota_rows
from tests.real.kueue_site import (
    COHORT,
    LENT_FLAVOR,
    NOTHING,
    QUEUE,
    QUOTAS,
    cluster_queue,
    converter_site,
    make_course,
)
from tests.real.rig import Rig

QUEUES, COHORTS, FLAVORS = (
    f"{OBJECTS}/{kind}" for kind in ("clusterqueues", "cohorts", "resourceflavors")
)
OWN = QUOTAS["permanent"]


def change_queue(**spec: Any) -> Callable[[Rig], None]:
    return lambda rig: rig.api.patch(f"{QUEUES}/{QUEUE}", {"spec": spec})


def replace_flavor(**spec: Any) -> Callable[[Rig], None]:
    """Returns a function that recreates the flavor and its ClusterQueue with another spec."""

    def change(rig: Rig) -> None:
        rig.api.delete(f"{QUEUES}/{QUEUE}")
        rig.wait_for(lambda: not rig.api.get(QUEUES)["items"], "the ClusterQueue is gone")
        rig.api.delete(f"{FLAVORS}/lent")
        rig.wait_for(lambda: len(rig.api.get(FLAVORS)["items"]) == 1, "the flavor is gone")
        if "topologyName" in spec:
            levels = {"levels": [{"nodeLabel": "example.org/rack"}]}
            rig.api.post(f"{OBJECTS}/topologies", named("Topology", "racks", levels))
        rig.api.post(FLAVORS, named("ResourceFlavor", "lent", {**LENT_FLAVOR, **spec}))
        rig.api.post(QUEUES, cluster_queue())

    return change


def remove_flavor(rig: Rig) -> None:
    groups = [quota_rows({**QUOTAS, "nosuch": NOTHING})]
    rig.api.patch(f"{QUEUES}/{QUEUE}", {"spec": {"resourceGroups": groups}})


def add_queue(cohort: str, reclaim: str = "Never") -> Callable[[Rig], Json]:
    spec = cluster_queue("b", cohortName=cohort, preemption={"reclaimWithinCohort": reclaim})
    return lambda rig: dict(rig.api.post(QUEUES, spec))


def add_cohort(name: str = COHORT, **spec: Any) -> Callable[[Rig], Json]:
    return lambda rig: dict(apply(rig, f"{COHORTS}/{name}", named("Cohort", name, spec)))


def parent_that_reclaims(rig: Rig) -> None:
    add_cohort(parentName="university")(rig)
    add_queue("university", "Any")(rig)


def stopped(**spec: Any) -> Json:
    return {"resourceGroups": [quota_rows(QUOTAS, **spec)]}


Fault = Callable[[Rig], object]
# fault -> a part of the text of the failed check
REFUSED: dict[str, tuple[Fault, str]] = {
    "no cohortName": (change_queue(cohortName=None), "cohortName (none)"),
    "another Cohort": (change_queue(cohortName="university"), "cohortName university"),
    "the flavor is not listed": (
        change_queue(resourceGroups=[quota_rows({"permanent": OWN})]), "does not list the flavor"),
    "the flavor is first": (
        change_queue(resourceGroups=[quota_rows({"lent": NOTHING, "permanent": OWN})]),
        "before permanent"),
    "the flavor has no labels": (replace_flavor(nodeLabels={}), "no nodeLabels"),
    "the flavor has other labels": (
        replace_flavor(nodeLabels={"example.org/lent": "exam"}), "lacks the labels"),
    "the flavor tolerates nothing": (replace_flavor(tolerations=[]), "no toleration"),
    "the flavor has a topology": (replace_flavor(topologyName="racks"), "topology racks"),
    "a flavor is missing": (remove_flavor, "is inactive"),
    "the queue is stopped": (change_queue(stopPolicy="Hold"), "stopPolicy is Hold"),
    "no namespaceSelector": (change_queue(namespaceSelector=None), "has no namespaceSelector"),
    "borrowingLimit 0": (change_queue(**stopped(borrowingLimit="0")), "borrowingLimit 0"),
    "borrowingLimit below a node": (
        change_queue(**stopped(borrowingLimit="100")), "a borrowingLimit of"),
    "another member": (add_queue(COHORT), "b would use"),
    "a Cohort below": (
        add_cohort("department", parentName=COHORT), "department would use"),
    "a parent with a member that reclaims": (parent_that_reclaims, "by preemption"),
    "quotas of another writer": (
        add_cohort(resourceGroups=[quota_rows({"lent": OWN})]), "administrator wrote"),
}  # fmt: skip


def failures(rig: Rig, directory: Path, kubeconfig: Path) -> list[str]:
    """Returns the failed checks, with text and remedy."""
    site = converter_site(rig, directory, kubeconfig)
    answer = site.json("check", code=1)
    assert not answer["ok"]
    return [f"{item}" for item in answer["checks"] if item["result"] == "failed"]


@pytest.mark.parametrize("name", REFUSED)
def test_check_refuses_a_fault_that_kueue_accepts(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path, name: str
) -> None:
    rig, (break_it, words) = kueue_rig, REFUSED[name]
    make_course(rig)
    break_it(rig)
    assert any(words in item for item in failures(rig, tmp_path / "site", kueue_kubeconfig))


def test_check_reports_that_kueue_is_away(
    kueue_rig: Rig, kueue: Kueue, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    make_course(kueue_rig)
    add_cohort()(kueue_rig)
    kueue.kill()
    failed = failures(kueue_rig, tmp_path / "site", kueue_kubeconfig)
    assert any("kb.io" in item for item in failed)


def test_check_is_content_with_a_course(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    make_course(kueue_rig)
    site = converter_site(kueue_rig, tmp_path / "site", kueue_kubeconfig)
    answer = site.json("check")
    assert answer["ok"], answer
