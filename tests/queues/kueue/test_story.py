"""Runs of dnm beside objects of Kueue. The tests themselves admit Workloads, as a real Kueue was
observed to do; there is no model of Kueue's decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.kueue import LEDGER
from dnm.model.lent import Phase
from dnm.model.reason import Reason
from tests.queues.kueue.objects import (
    LABEL,
    NODE_TYPE,
    TAINT,
    TOLERATION,
    a_cluster_queue,
    a_flavor,
    a_local_queue,
    a_pod_set,
    a_workload,
    admitted,
    pending,
)
from tests.server_side_apply import with_apply
from tests.site import Site

LEAST = 5  # 75 pods of 16 GB, 16 on each node
NOTHING = {"cpu": "0", "memory": "0"}
TOO_MUCH = "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor permanent"


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site with a ClusterQueue for 20 pods and two full permanent nodes."""
    with_apply(sandbox)
    sandbox.add_machine_type("a", labels={LABEL: "true"}, taints=[TAINT])
    for namespace in ("dnm", "dev"):
        sandbox.add_namespace(namespace)
    for name in ("k1", "k2"):
        sandbox.add_node(name, cpu="40", memory="160G", labels={"pool": "permanent"})
    sandbox.add_machines(12)
    quotas = {"permanent": {"cpu": "80", "memory": "320G"}, "lent": NOTHING}
    sandbox.create(a_flavor("permanent", nodeLabels={"pool": "permanent"}))
    sandbox.create(a_flavor())
    sandbox.create(a_cluster_queue("a8", quotas))
    sandbox.create(a_local_queue("a8"))
    site = Site(
        sandbox, tmp_path / "site", sections=NODE_TYPE, queue_system="kueue", max_converted_nodes=6
    )
    site.write(site.directory / "queues.json", '{"dev": "a8"}\n')
    return site


def run_for(site: Site, runs: int, seconds: float = 60) -> None:
    for _ in range(runs):
        site.run()
        site.sandbox.tick(seconds)


def lent_quota(sandbox: Sandbox) -> dict[str, str]:
    spec = (sandbox.get("cohorts", "dnm-a8") or {}).get("spec") or {}
    rows = [row for group in spec.get("resourceGroups") or [] for row in
            group["flavors"][0]["resources"]]  # fmt: skip
    return {row["name"]: row["nominalQuota"] for row in rows}


def admit(sandbox: Sandbox, name: str, count: int) -> list[str]:
    """Admits a Workload to lent nodes and creates its pods."""
    usage = {"cpu": str(4 * count), "memory": f"{16 * count}G"}
    sandbox.edit(
        "workloads", name, lambda item: item.update(status=admitted("a8", "lent", count, usage)),
        "dev",
    )  # fmt: skip
    spec: dict[str, Any] = {"nodeSelector": {LABEL: "true"}, "tolerations": [TOLERATION]}
    return sandbox.add_pods(count, "dev", cpu="4", memory="16G", name=name, spec=spec)


def finish(sandbox: Sandbox, name: str, pods: list[str]) -> None:
    sandbox.finish_pods(pods, "dev")
    sandbox.edit(
        "workloads", name,
        lambda item: item["status"]["conditions"].append({"type": "Finished", "status": "True"}),
        "dev",
    )  # fmt: skip


def test_job_of_a_workshop_gets_the_fewest_nodes_and_returns_all(
    sandbox: Sandbox, site: Site
) -> None:
    sandbox.create(a_workload("workshop", [a_pod_set(75)], status=pending(TOO_MUCH)))
    sandbox.tick(1)
    run_for(site, 2)
    assert len(site.lent()) == LEAST
    assert lent_quota(sandbox) == {"cpu": str(LEAST * 128), "memory": f"{LEAST * 256}G"}
    people = admit(sandbox, "workshop", 75)
    run_for(site, 2)
    assert all(site.pods().values())
    assert len(site.lent()) == LEAST
    finish(sandbox, "workshop", people)
    run_for(site, 12)
    assert site.lent() == []
    assert lent_quota(sandbox) == NOTHING
    assert not sandbox.violations


def test_workload_that_waits_for_a_moment_only_causes_no_conversion(
    sandbox: Sandbox, site: Site
) -> None:
    """The Workload fits the queue's own quota, so that Kueue will admit it without dnm."""
    sandbox.create(a_workload("small", [a_pod_set(20)]))
    run_for(site, 3)
    assert site.lent() == [] and not site.registry.requests


def test_nodes_are_lent_to_no_queue_outside_its_cohort(sandbox: Sandbox, site: Site) -> None:
    sandbox.edit("clusterqueues", "a8", lambda item: item["spec"].pop("cohortName"))
    sandbox.create(a_workload("workshop", [a_pod_set(75)]))
    run_for(site, 3)
    assert site.lent() == []
    assert site.registry.last_run.queues["a8"].code == Reason.QUEUE_UNREADABLE.name


def test_kueue_that_is_away_gets_no_node_and_loses_none(sandbox: Sandbox, site: Site) -> None:
    sandbox.create(a_workload("first", [a_pod_set(30)]))
    sandbox.tick(1)
    run_for(site, 2)
    before, quota = site.lent(), lent_quota(sandbox)
    assert before
    admit(sandbox, "first", 30)
    sandbox.fault("status", path="cohorts", methods=("PATCH", "POST"), code=500)
    sandbox.create(a_workload("second", [a_pod_set(40)]))
    run_for(site, 4)
    assert (site.lent(), lent_quota(sandbox)) == (before, quota)
    sandbox.faults.clear()
    run_for(site, 4)
    assert len(site.lent()) > len(before)


def test_own_quota_of_permanent_nodes_is_no_use_of_lent_nodes(sandbox: Sandbox, site: Site) -> None:
    """Pods that use the own quota on permanent nodes do not keep lent nodes from being returned."""
    own = a_workload("own", [a_pod_set(20)])
    usage = {"cpu": "80", "memory": "320G"}
    sandbox.create({**own, "status": admitted("a8", "permanent", 20, usage)})
    sandbox.add_pods(20, "dev", cpu="4", memory="16G", spec={"nodeSelector": {"pool": "permanent"}})
    sandbox.create(a_workload("more", [a_pod_set(16)]))
    sandbox.tick(1)
    run_for(site, 4)
    assert len(site.lent()) == 1
    finish(sandbox, "more", admit(sandbox, "more", 16))
    run_for(site, 12)
    assert site.lent() == [] and lent_quota(sandbox) == NOTHING


def test_ledger_that_another_client_has_written_is_replaced(sandbox: Sandbox, site: Site) -> None:
    """The test plays `kubectl annotate`, which on a real API server then owns the annotation."""
    sandbox.create(a_workload("workshop", [a_pod_set(75)]))
    sandbox.tick(1)
    run_for(site, 2)
    ledger = (sandbox.get("cohorts", "dnm-a8") or {})["metadata"]["annotations"][LEDGER]
    client = KubeClient.connect(site.config)
    client.kueue_objects.change_object(
        "Cohort", "dnm-a8", {"metadata": {"annotations": {LEDGER: "{}"}}}
    )
    assert not site.run().plan.errors
    assert (sandbox.get("cohorts", "dnm-a8") or {})["metadata"]["annotations"][LEDGER] == ledger


def test_workload_waits_until_enough_nodes_are_idle(sandbox: Sandbox, site: Site) -> None:
    """Kueue admits a Workload as a whole, so three of five nodes would be returned unused."""
    site.change(exclude_nodes="a[004-012]")
    sandbox.create(a_workload("workshop", [a_pod_set(75)], status=pending(TOO_MUCH)))
    sandbox.tick(30)
    run_for(site, 5)
    assert site.lent() == [] and not site.registry.requests
    assert site.registry.last_run.queues["a8"].code == Reason.INCOMPLETE.name
    assert site.registry.last_run.queues["a8"].pending_pods == 75
    assert not site.registry.breakers
    site.change(exclude_nodes="")
    run_for(site, 2)
    assert len(site.lent()) == LEAST


def test_partial_admission_takes_the_nodes_that_are_idle(sandbox: Sandbox, site: Site) -> None:
    site.change(exclude_nodes="a[004-012]")
    sandbox.create(a_workload("workshop", [a_pod_set(75, minCount=30)]))
    sandbox.tick(30)
    run_for(site, 2)
    assert len(site.lent()) == 3
    assert site.registry.last_run.queues["a8"].code != Reason.INCOMPLETE.name


def test_nodes_that_wait_for_the_rest_of_their_workload_are_no_unused_nodes(
    sandbox: Sandbox, site: Site
) -> None:
    """Each of six runs lends a node, and none can be used before the last one has joined."""
    site.change(max_conversions_per_run="1")
    sandbox.create(a_workload("workshop", [a_pod_set(96)]))
    sandbox.tick(30)
    run_for(site, 8)
    assert len(site.lent()) == 6


def test_plan_names_workloads_that_lent_nodes_do_not_help(sandbox: Sandbox, site: Site) -> None:
    for name in ("never", "neither"):
        sandbox.create(a_workload(name, [a_pod_set(500)]))
    sandbox.tick(30)
    run_for(site, 1)
    shown = site.command("plan").stdout
    assert "1000 not counted, of a workload that lent nodes do not help: dev/ne" in shown, shown
    sandbox.requests.clear()
    site.run()
    assert not [item for item in sandbox.requests.writes() if "cohorts" in item.path]
    sandbox.create(a_workload("small", [a_pod_set(30)]))
    run_for(site, 4)
    assert len(site.lent()) == 2, site.command("plan").stdout


def lend_half(sandbox: Sandbox, site: Site) -> set[str]:
    """Lends four of six nodes for a Workload, one in each run, and then makes the rest busy."""
    site.change(max_conversions_per_run="1")
    sandbox.create(a_workload("workshop", [a_pod_set(96)]))
    sandbox.tick(30)
    run_for(site, 4)
    machines = {f"a{number:03}" for number in range(1, 13)}
    half = machines & {node["metadata"]["name"] for node in sandbox.objects("nodes")}
    site.change(exclude_nodes=",".join(sorted(machines - half)))
    return half


def test_half_of_a_workload_is_kept_while_the_rest_is_busy_for_a_moment(
    sandbox: Sandbox, site: Site
) -> None:
    """The idle time of the first nodes is over before the rest is busy."""
    half = lend_half(sandbox, site)
    run_for(site, 1)
    assert site.registry.last_run.queues["a8"].code == Reason.INCOMPLETE.name
    site.change(exclude_nodes="")
    run_for(site, 3)
    assert len(site.lent()) == 6 and half < {*site.lent()}
    assert {node.phase for node in site.registry.nodes.values()} == {Phase.SERVING}
    assert not site.registry.breakers


def test_half_of_a_workload_is_returned_and_lent_again_with_the_rest(
    sandbox: Sandbox, site: Site
) -> None:
    """No pod could use the nodes, so that they count as one unused node together."""
    for returned in range(1, 3):
        lend_half(sandbox, site)
        run_for(site, 8)
        assert site.lent() == []
        assert site.registry.breakers["a8"].unused == returned
        site.change(exclude_nodes="")
        sandbox.delete("workloads", "workshop", "dev")
    sandbox.create(a_workload("workshop", [a_pod_set(96)]))
    run_for(site, 7)
    admit(sandbox, "workshop", 96)
    run_for(site, 2)
    assert len(site.lent()) == 6 and all(site.pods().values())
    assert not site.registry.breakers


def test_second_chance_of_a_queue_completes_a_workload(sandbox: Sandbox, site: Site) -> None:
    """Kueue did not admit the first Workload, so its nodes were returned unused."""
    sandbox.create(a_workload("first", [a_pod_set(48)]))
    sandbox.tick(30)
    run_for(site, 14)
    assert site.lent() == []
    sandbox.create(a_workload("second", [a_pod_set(32, cpu="5")]))
    run_for(site, 2)
    assert site.registry.last_run.queues["a8"].code == Reason.BREAKER.name
    sandbox.create(a_workload("third", [a_pod_set(21, cpu="5")]))
    run_for(site, 2)
    assert len(site.lent()) == 2


MADE_BY_POD = {"apiVersion": "v1", "kind": "Pod", "name": "course-5d8f9c6b7-x2x4z", "uid": "1"}
MADE_BY_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "analysis", "uid": "2"}
EXPLAINED: dict[str, tuple[str, tuple[str, ...]]] = {
    # name -> what is printed
    "a Workload with too few nodes": (
        "dev/workshop",
        ("workload dev/workshop waits in ClusterQueue a8 with 75 pods",
         "it gets no node, since Kueue admits it as a whole: it needs 5 of type a; 3 can be lent",
         TOO_MUCH, "queue a8: wait")),
    "a Workload beyond the caps": (
        "dev/never", ("lent nodes do not help it: it requests more cpu",)),
    "a Job": ("dev/analysis", ("workload dev/job-analysis-1 waits", "fits the free quota")),
    "a Deployment": ("dev/course", ("workload dev/pod-course waits in ClusterQueue a8",)),
    "a pod": ("dev/course-5d8f9c6b7-x2x4z", ("workload dev/pod-course waits",)),
    "an admitted Workload": (
        "dev/own", ("has quota for 15 pods in ClusterQueue a8, flavor permanent",)),
    "a missing LocalQueue": ("dev/lost", ("no ClusterQueue belongs to its LocalQueue gone",)),
    "an inactive Workload": ("workload/dev/off", ("its spec.active is false",)),
}  # fmt: skip


def test_workload_is_explained_by_its_name_or_its_owner(sandbox: Sandbox, site: Site) -> None:
    site.change(exclude_nodes="a[004-012]")
    usage = {"cpu": "60", "memory": "240G"}
    for item in (
        a_workload("own", [a_pod_set(15)], status=admitted("a8", "permanent", 15, usage)),
        a_workload("workshop", [a_pod_set(75)], status=pending(TOO_MUCH)),
        a_workload("never", [a_pod_set(500)]),
        a_workload("job-analysis-1", [a_pod_set(1)], ownerReferences=[MADE_BY_JOB]),
        a_workload("pod-course", [a_pod_set(1)], ownerReferences=[MADE_BY_POD]),
        a_workload("lost", [a_pod_set(1)], spec={"queueName": "gone"}),
        a_workload("off", [a_pod_set(1)], spec={"active": False}),
    ):
        sandbox.create(item)
    sandbox.tick(30)
    run_for(site, 2)
    for name, (asked, texts) in EXPLAINED.items():
        answer = site.command("explain", asked)
        assert answer.returncode == 0, (name, answer.stderr)
        assert all(text in answer.stdout for text in texts), (name, answer.stdout)
    assert site.command("explain", "dev/nothing").returncode == 2
    sandbox.fault("status", path="workloads", code=403)
    refused = site.command("explain", "dev/workshop")
    assert refused.returncode and "Traceback" not in refused.stderr, refused.stderr
