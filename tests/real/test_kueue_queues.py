"""Tests of Workloads with other queueing strategies and neighbours, beside Kueue's own manager."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dnm.model.kueue import IN_QUEUE, LEDGER
from tests.real.http_api import Json
from tests.real.kueue import OBJECTS, apply, named, quota_rows
from tests.real.kueue_site import (
    COHORT,
    JOBS,
    LABEL,
    QUEUE,
    QUOTAS,
    add_job,
    cluster_queue,
    converter_site,
    end_job,
    evicted,
    has_condition,
    is_active,
    lent_quota,
    make_course,
    parse_amount,
    quota_of,
    return_all,
    workloads,
)
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import CONTROLLERS, plain_pod
from tests.real.unmanaged import GUEST, make_guest, places

GUEST_JOBS = f"/apis/batch/v1/namespaces/{GUEST}/jobs"
BACKGROUND = "?propagationPolicy=Background"


def test_deployment_fills_its_own_quota_and_gets_nodes_for_the_rest(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    rig = kueue_rig
    make_course(rig)
    site = converter_site(rig, tmp_path / "site", kueue_kubeconfig)
    labels = {"app": "course"}
    template = {"metadata": {"labels": labels}, "spec": plain_pod("x", "4", "16Gi")["spec"]}
    spec = {"replicas": 75, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "course", "labels": {LABEL: "course"}}
    rig.api.post(f"{CONTROLLERS}/deployments", {"metadata": metadata, "spec": spec})
    site.run_until(lambda: rig.running("dev") == 75, "every pod runs", 120)
    assert len(site.lent) == 4 and places(rig, "dev") == {"k1", "k2", *site.lent}
    rig.api.patch(f"{CONTROLLERS}/deployments/course", {"spec": {"replicas": 20}})
    rig.wait_for(lambda: len(rig.pods("dev")) == 20, "the Deployment has shrunk")
    rig.api.ask("DELETE", f"{CONTROLLERS}/deployments/course{BACKGROUND}")
    return_all(rig, site)


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_head_that_never_fits_blocks_only_a_strict_queue(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path, strategy: str
) -> None:
    """The first Workload requests more than dnm may lend. Kueue decides what runs after it."""
    rig, is_strict = kueue_rig, strategy == "StrictFIFO"
    make_course(rig, queueingStrategy=strategy)
    site = converter_site(rig, tmp_path / "site", kueue_kubeconfig)
    add_job(rig, "head", 500)
    rig.wait_for(lambda: len(workloads(rig)) == 1, "the head has a Workload")
    time.sleep(1.1)  # the order in the queue is by whole seconds
    add_job(rig, "behind", 30)
    rig.wait_for(lambda: len(workloads(rig)) == 2, "both have a Workload")
    if is_strict:
        for _ in range(4):
            site.dnm("run")
        assert not any("--set" in call for call in site.calls) and not rig.running("dev")
        text = site.dnm("check", code=None).stdout
        assert "StrictFIFO" in text and "requests no node" in text, text
        rig.api.ask("DELETE", f"{JOBS}/head{BACKGROUND}")
    site.run_until(lambda: rig.running("dev") == 30, "the Job behind runs", 120)
    assert len(site.lent) == 2
    end_job(rig, "behind")
    rig.api.delete(f"{JOBS}/head{BACKGROUND}")
    return_all(rig, site)


# --- a neighbour ---------------------------------------------------------------------------------


def keep_permanent(group: Json) -> Json:
    """Returns a resource group of which other queues cannot borrow quota of permanent nodes."""
    for flavor in group["flavors"]:
        for row in flavor["resources"]:
            row |= {"lendingLimit": "0"} if flavor["name"] == "permanent" else {}
    return group


def make_neighbours(rig: Rig, reclaim: str) -> None:
    """Creates the course below a parent Cohort, and there another ClusterQueue with quota for 20
    pods in both flavors. Neither can borrow the other's quota of permanent nodes."""
    make_course(rig, resourceGroups=[keep_permanent(quota_rows(QUOTAS))])
    path = f"{OBJECTS}/cohorts/{COHORT}"
    apply(rig, path, named("Cohort", COHORT, {"parentName": "university"}))
    make_guest(rig)
    own = {"cpu": "80", "memory": "320Gi"}
    spec = cluster_queue(
        "b", cohortName="university", preemption={"reclaimWithinCohort": reclaim},
        resourceGroups=[keep_permanent(quota_rows({"permanent": own, "lent": own}))],
    )  # fmt: skip
    rig.api.post(f"{OBJECTS}/clusterqueues", spec)
    queue = named("LocalQueue", "course", {"clusterQueue": "b"}, namespace=GUEST)
    rig.api.post(f"{OBJECTS}/namespaces/{GUEST}/localqueues", queue)
    rig.wait_for(lambda: is_active(rig, "b"), "the neighbour is active")


def guest_job(rig: Rig, name: str, pods: int) -> None:
    template = plain_pod(name, "4", "16Gi", restartPolicy="Never")
    template["spec"]["containers"][0]["image"] = "registry.example/stays:1"
    rig.api.post(
        GUEST_JOBS,
        {"metadata": {"name": name, "labels": {LABEL: "course"}},
         "spec": {"parallelism": pods, "completions": pods, "suspend": True,
                  "template": template}},
    )  # fmt: skip


def admitted_guests(rig: Rig) -> int:
    items: list[Json] = rig.api.get(f"{OBJECTS}/namespaces/{GUEST}/workloads")["items"]
    return sum(1 for item in items if has_condition(item, "Admitted"))


def test_neighbour_that_reclaims_quota_never_evicts_pods_of_lent_nodes(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    """dnm lends below a parent Cohort only if no member reclaims quota. If one begins to, dnm keeps
    the quota until the Job on lent nodes has ended."""
    rig = kueue_rig
    make_neighbours(rig, "Any")
    site = converter_site(rig, tmp_path / "site", kueue_kubeconfig)
    add_job(rig, "workshop", 30)
    for _ in range(3):
        site.dnm("run", code=2)
    assert not site.lent and not any("--set" in call for call in site.calls)
    assert "preemption" in site.dnm("plan", code=2).stdout
    assert "preemption" in site.dnm("check", code=1).stdout

    queue = f"{OBJECTS}/clusterqueues/b"
    rig.api.patch(queue, {"spec": {"preemption": {"reclaimWithinCohort": "Never"}}})
    site.run_until(lambda: rig.running("dev") == 30, "the workshop runs", 120)
    nodes = site.lent
    assert len(nodes) == 2 and lent_quota(rig) == quota_of(2)

    guest_job(rig, "one", 20)
    rig.wait_for(lambda: admitted_guests(rig) == 1, "the neighbour uses its permanent nodes")
    rig.api.patch(queue, {"spec": {"preemption": {"reclaimWithinCohort": "Any"}}})
    for node in nodes:
        site.dnm("return", node, "--reason", "an exam")
    for _ in range(3):
        site.dnm("run", code=None)
    assert lent_quota(rig)["cpu"] >= 4 * 30
    guest_job(rig, "two", 20)  # asks for its own quota of lent nodes, and may take it back
    rig.wait_for(lambda: admitted_guests(rig) == 2, "the neighbour has its own quota in use")
    for _ in range(3):
        site.dnm("run", code=None)
        time.sleep(1)
    assert rig.running("dev") == 30 and not evicted(rig)
    rig.api.ask("DELETE", GUEST_JOBS + BACKGROUND)
    end_job(rig, "workshop")
    return_all(rig, site)


def test_neighbour_does_not_borrow_lent_quota(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    """The quota of lent nodes has capacity for ten more pods, and ten of the neighbour wait."""
    rig = kueue_rig
    make_neighbours(rig, "Never")
    site = converter_site(rig, tmp_path / "site", kueue_kubeconfig)
    guest_job(rig, "one", 20)
    guest_job(rig, "two", 20)
    rig.wait_for(lambda: admitted_guests(rig) == 2, "the neighbour has its own quota in use")
    guest_job(rig, "three", 10)
    add_job(rig, "workshop", 22)  # two nodes for 32 pods
    site.run_until(lambda: rig.running("dev") == 22, "the workshop runs", 120)
    time.sleep(3)
    assert admitted_guests(rig) == 2 and lent_quota(rig) == quota_of(len(site.lent))
    rig.api.ask("DELETE", GUEST_JOBS + BACKGROUND)
    end_job(rig, "workshop")
    return_all(rig, site)


# --- a site without Cohorts ----------------------------------------------------------------------


def quota_in_queue(rig: Rig) -> tuple[dict[str, int], bool]:
    """Returns the ClusterQueue's quota of lent nodes, and whether it has a ledger."""
    queue = rig.api.get(f"{OBJECTS}/clusterqueues/{QUEUE}")
    (rows,) = [flavor["resources"] for group in queue["spec"]["resourceGroups"]
               for flavor in group["flavors"] if flavor["name"] == "lent"]  # fmt: skip
    quota = {row["name"]: parse_amount(row["nominalQuota"]) for row in rows}
    return quota, LEDGER in queue["metadata"].get("annotations", {})


def test_queue_without_a_cohort_has_its_lent_quota_itself(
    kueue_rig: Rig, kueue_kubeconfig: Path, tmp_path: Path
) -> None:
    """Manifests that are applied again remove lent nodes from the quota, and the last of them also
    the ledger. The next run restores both."""
    rig = kueue_rig
    rig.shell(f"kubectl apply -f {REPOSITORY}/etc/rbac-kueue-cluster-queue.yaml")
    manifest = cluster_queue(cohortName=None)
    manifest["metadata"]["annotations"] = dict([IN_QUEUE])
    make_course(rig, cohortName=None)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest))
    rig.shell(f"kubectl replace -f {path}")
    site = converter_site(rig, tmp_path / "site", kueue_kubeconfig)
    assert site.json("check")["ok"]
    add_job(rig, "workshop", 30)
    site.run_until(lambda: rig.running("dev") == 30, "the workshop runs", 120)
    assert len(site.lent) == 2 and quota_in_queue(rig) == (quota_of(2), True)
    for command, has_ledger in (
        ("kubectl apply", True),
        ("kubectl apply --server-side --force-conflicts --field-manager=gitops", True),
        ("kubectl replace", False),
    ):
        rig.shell(f"{command} -f {path}")
        assert quota_in_queue(rig) == (quota_of(0), has_ledger), command
        site.dnm("run", code=None)
        assert quota_in_queue(rig) == (quota_of(2), True), command
    add_job(rig, "more", 16)
    site.run_until(lambda: rig.running("dev") == 46, "a further Job runs", 120)
    for name in ("workshop", "more"):
        end_job(rig, name)
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    assert quota_in_queue(rig) == (quota_of(0), False)
    assert rig.nodes() == {"k1", "k2"} and not evicted(rig)
    assert not rig.api.get(f"{OBJECTS}/cohorts")["items"]
