"""Tests with pods of many kinds without a queue system: kube-scheduler's and dnm's results.

Pods of the namespace `guest` fill the permanent nodes, and one of them waits. A lent node has 128
cores."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.http_api import Json
from tests.real.kills import Kind, killed_run
from tests.real.pod_groups import LABEL, ROLE, make_pod_groups
from tests.real.rig import KUBE_SCHEDULER, Rig
from tests.real.site import CONTROLLERS, DEV, NOTEBOOK, PODS, Site, plain_pod, pod, with_nodes
from tests.real.unmanaged import GUEST, KEY, SECTION, create, places, taint_nodes, toleration

JOBS = "/apis/batch/v1/namespaces/dev/jobs"
PRIORITY = "/apis/scheduling.k8s.io/v1/priorityclasses"


def template(cpu: str, **spec: Any) -> Json:
    labels = {"app": "app"}
    return {"metadata": {"labels": labels}, "spec": plain_pod("app", cpu, "1Gi", **spec)["spec"]}


def conversions(site: Site) -> list[str]:
    return [call for call in site.calls if "--set k8s" in call]


def end(rig: Rig, site: Site) -> None:
    rig.remove_pods("dev")
    site.run_until(site.has_returned_nodes, "every node is returned")
    assert rig.nodes() == {"k1", "k2"} and places(rig, GUEST) == {"k1", "k2", None}


def test_job_runs_on_lent_nodes_to_its_end(busy_rig: Rig, make_unmanaged_site: MakeSite) -> None:
    """The Job has ten pods of 32 cores. Four fit on a node, and each runs only for a moment."""
    rig, site = busy_rig, make_unmanaged_site()
    spec = {"parallelism": 10, "completions": 10, "template": template("32", restartPolicy="Never")}
    rig.api.post(JOBS, {"metadata": {"name": "job"}, "spec": spec})

    def is_complete() -> bool:
        return bool(rig.api.get(f"{JOBS}/job")["status"].get("succeeded") == 10)

    site.run_until(is_complete, "the Job is complete")
    assert conversions(site) == ["--set k8s --node-type a --num-nodes 3 --namespace dev"]
    site.run_until(site.has_returned_nodes, "every node is returned")
    assert places(rig, GUEST) == {"k1", "k2", None}


def test_stateful_set_gets_a_node_for_each_pod(
    busy_rig: Rig, make_unmanaged_site: MakeSite
) -> None:
    """Each pod needs most of a node, and the next one is created when it is Ready."""
    rig, site = busy_rig, make_unmanaged_site()
    labels = {"matchLabels": {"app": "app"}}
    spec = {"replicas": 3, "serviceName": "app", "selector": labels, "template": template("100")}
    path = f"{CONTROLLERS}/statefulsets"
    rig.api.post(path, {"metadata": {"name": "set"}, "spec": spec})
    site.run_until(lambda: rig.running("dev") == 3 and len(site.lent) == 3, "all its pods run")
    assert places(rig, "dev") == set(site.lent) and len(conversions(site)) == 3
    rig.api.patch(f"{path}/set", {"spec": {"replicas": 1}})
    site.run_until(lambda: len(site.lent) == 1, "two nodes are returned")
    rig.api.delete(f"{path}/set")
    end(rig, site)


def test_pod_that_fits_no_node_is_named_and_lends_none(
    busy_rig: Rig, make_unmanaged_site: MakeSite
) -> None:
    rig, site = busy_rig, make_unmanaged_site()
    create(rig, "dev", "wide", "200")
    create(rig, "dev", "elsewhere", nodeSelector={"zone": "moon"})
    site.run_until(lambda: "dev/elsewhere" in site.dnm("plan").stdout, "both are named")
    for name, reason in (
        ("wide", "requests 200 cpu, an empty node of type a has 128 cpu"),
        ("elsewhere", "selects zone=moon, unlike node type a"),
    ):
        text = site.dnm("explain", f"dev/{name}").stdout
        assert f"no new node would help it: {reason}" in text, text
    for _ in range(3):
        site.dnm("run")
    assert not conversions(site)


def test_pod_of_another_namespace_lends_no_node(
    busy_rig: Rig, make_unmanaged_site: MakeSite
) -> None:
    rig, site = busy_rig, make_unmanaged_site()
    for _ in range(3):
        site.dnm("run")
    assert not conversions(site)
    create(rig, "dev", "small")
    site.run_until(lambda: rig.running("dev") == 1 and site.lent, "the pod of dev runs")
    (node,) = site.lent
    for _ in range(3):
        site.dnm("run")
        time.sleep(1)
    assert places(rig, GUEST) == {"k1", "k2", None} and site.lent == [node]
    end(rig, site)


def test_kube_scheduler_killed_keeps_idle_nodes_and_lends_no_more(
    busy_rig: Rig, make_unmanaged_site: MakeSite
) -> None:
    rig, site = busy_rig, make_unmanaged_site()
    create(rig, "dev", "first", "100")
    site.run_until(lambda: rig.running("dev") == 1 and site.lent, "it runs")
    (node,) = site.lent
    rig.servers["kube-scheduler"].stop(signal.SIGKILL)
    rig.remove_pods("dev")
    for number in range(3):
        create(rig, "dev", f"later-{number}", "100")
    began, lines = time.monotonic(), []
    while time.monotonic() < began + 8:  # four times reversion_idle_seconds
        lines.append(site.dnm("run").stderr)
        assert site.lent == [node] and len(conversions(site)) == 1
    assert not any(lines), lines
    assert "pods of its queue wait for their scheduler" in site.dnm("explain", node).stdout
    assert "not reported as unschedulable" in site.dnm("explain", "dev/later-0").stdout
    rig.servers["kube-scheduler"].start()
    site.run_until(lambda: rig.running("dev") == 3 and len(site.lent) == 3, "all run")
    assert node in site.lent
    end(rig, site)


def test_pod_with_a_nominated_node_is_no_demand(
    busy_rig: Rig, make_unmanaged_site: MakeSite
) -> None:
    """The pod preempts others, which end after their grace period, and will get their node."""
    rig, site = busy_rig, make_unmanaged_site()
    rig.create(PRIORITY, {"metadata": {"name": "urgent"}, "value": 1000})
    for number in range(4):
        create(rig, "dev", f"low-{number}", "32")
    site.run_until(lambda: rig.running("dev") == 4 and site.lent, "they run")
    rig.servers["kwok"].send(signal.SIGSTOP)
    try:
        create(rig, "dev", "urgent", "32", priorityClassName="urgent")

        def nominated() -> Any:
            pod = rig.api.get("/api/v1/namespaces/dev/pods/urgent")
            return pod["status"].get("nominatedNodeName")

        rig.wait_for(nominated, "a node is nominated")
        for _ in range(4):
            site.dnm("run")
        reason = "waiting for a node from which the scheduler evicts other pods"
        assert reason in site.dnm("explain", "dev/urgent").stdout
        assert len(conversions(site)) == 1
    finally:
        rig.servers["kwok"].send(signal.SIGCONT)
    rig.wait_for(lambda: rig.running("dev") == 4, "it runs")
    site.dnm("run")
    assert len(conversions(site)) == 1 and len(site.lent) == 1
    end(rig, site)


def test_kube_scheduler_starts_pods_of_an_incomplete_group(
    busy_rig: Rig, make_unmanaged_site: MakeSite
) -> None:
    """dnm lends nodes for the four pods of the PodGroup. kube-scheduler starts the two that exist;
    the other nodes are returned."""
    rig, site = busy_rig, make_unmanaged_site()
    make_pod_groups(rig)
    rig.shell(
        f"kubectl create clusterrolebinding {ROLE} --clusterrole {ROLE} "
        "--serviceaccount dnm:dynamic-node-manager"
    )
    try:
        for number in range(2):
            create(rig, "dev", f"p{number}", "100", labels={LABEL: "four"})
        site.run_until(lambda: rig.running("dev") == 2 and len(site.lent) == 4, "four are lent")
        site.run_until(lambda: len(site.lent) == 2, "two nodes are returned")
    finally:
        rig.shell(f"kubectl delete clusterrolebinding {ROLE}")
    assert places(rig, "dev") == set(site.lent)
    assert conversions(site) == ["--set k8s --node-type a --num-nodes 4 --namespace dev"]
    end(rig, site)


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_at_any_write_is_repaired_without_a_queue_system(
    busy_rig: Rig,
    make_unmanaged_site: MakeSite,
    kubeconfig_without_yunikorn: Path,
    tmp_path: Path,
    when: str,
) -> None:
    """`before`: the API server never gets the write. `after`: dnm never gets the answer. The last
    write of a run is an Event."""
    rig, site = busy_rig, make_unmanaged_site()

    def run_until(is_so: Callable[[], bool], condition: str) -> set[Kind]:
        kinds: set[Kind] = set()

        def is_there() -> bool:
            if not is_at_its_end():
                killed_run(site, kubeconfig_without_yunikorn, tmp_path, when, kinds)
            assert len(rig.nodes()) <= 3
            return is_at_its_end()

        def is_at_its_end() -> bool:
            return is_so() and ("POST", "events") in kinds

        rig.wait_for(is_there, condition, 180)
        return kinds

    create(rig, "dev", "wide", "100")
    lend = run_until(lambda: rig.running("dev") == 1 and len(site.lent) == 1, "the pod runs")
    (node,) = site.lent
    rig.remove_pods("dev")
    return_node = run_until(site.has_returned_nodes, "the node is returned")
    both = {("PATCH", node), ("PATCH", "dnm-prod"), ("POST", "events")}  # mark and fence, Lease
    assert lend == both | {("POST", "leases")} and return_node == both
    assert len(conversions(site)) == 1 and places(rig, GUEST) == {"k1", "k2", None}


def test_yunikorn_and_kube_scheduler_serve_a_namespace_each(rig: Rig, make_site: MakeSite) -> None:
    """`dev` has a queue of YuniKorn, `notebook` has none. Each gets a node that only it can use."""
    site = make_site(
        sections=f"{SECTION}[namespace:notebook]\nqueue_system = none\n",
        queue_map={"dev": DEV, "notebook": NOTEBOOK},
    )
    taint_nodes(site)
    rig.start_kube_scheduler()
    try:
        for number in range(12):
            rig.api.post(PODS, pod(f"p{number}", DEV, "16", "8Gi", tolerations=[toleration("dev")]))
        only_lent = {"tolerations": [toleration("notebook")], "nodeSelector": {KEY: "notebook"}}
        for number in range(2):
            create(rig, "notebook", f"n{number}", "60", **only_lent)

        def all_run() -> bool:
            counts = (rig.running("dev"), rig.running("notebook"), len(site.lent))
            return counts == (12, 2, 2)

        site.run_until(all_run, "all pods run")
        assert rig.queue(DEV)["maxResource"] == with_nodes(1)
        (node,) = places(rig, "notebook")
        assert node in site.lent and node not in places(rig, "dev")
        for namespace in ("dev", "notebook"):
            rig.remove_pods(namespace)
        site.run_until(site.has_returned_nodes, "every node is returned")
        assert rig.queues_text() == QUEUES and not rig.has_ledger()
    finally:
        rig.servers.pop(KUBE_SCHEDULER).stop()
