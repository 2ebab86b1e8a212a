"""Tests of how many nodes the first run requests for the same six workloads in each queue system.

The queue's limit is used up in each case. If a queue system forces another number, the row of the
workload has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from dnm.config.values import QUEUE_SYSTEMS
from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from tests.builders import a_config
from tests.queue_kit import ONE_LIMIT
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
)
from tests.queues.resource_quota.controllers import report_unschedulable, stateful_set
from tests.server_side_apply import with_apply
from tests.site import Site

TOLERATING = {"tolerations": [TOLERATION]}
FULL = {"cpu": "80", "memory": "320G"}  # used up by 20 pods of 4 cores and 16 GB
QUEUE = "root.dev"
LIMITED = ONE_LIMIT.replace("x\n", "dev\n").replace("80}}", "80, memory: 320G}}")


class Pods(NamedTuple):
    """Equal pods of one controller. Each node of the sandbox has 128 cores and 256 GB."""

    number: int
    cpu: str
    memory: str


class Workload(NamedTuple):
    """A workload, the number of nodes that it needs, and queue system -> another number."""

    controllers: tuple[Pods, ...]
    nodes: int
    differs: dict[str, int] = {}


WORKLOADS = {
    "workshop of 75": Workload((Pods(75, "4", "16G"),), 5),
    "a single small pod": Workload((Pods(1, "4", "16G"),), 1),
    "three pods that fill a node": Workload((Pods(3, "120", "200G"),), 3),
    "large and small pods": Workload((Pods(8, "32", "64G"), Pods(16, "4", "16G")), 3),
    "a pod that fits no node": Workload((Pods(1, "500", "1G"),), 0),
    # Kueue admits a Workload as a whole, so six nodes are of no use to 200 pods.
    "more than the cap of six": Workload((Pods(200, "4", "16G"),), 6, {"kueue": 0}),
}


def add_running(sandbox: Sandbox, queue: str = "") -> None:
    names = sandbox.add_pods(20, "dev", queue=queue, cpu="4", memory="16G", name="earlier")
    for number, name in enumerate(names):
        sandbox.bind(name, f"k{number // 10}", "dev")


def add_to_yunikorn(sandbox: Sandbox, workload: Workload) -> None:
    sandbox.set_queues(LIMITED)
    add_running(sandbox, QUEUE)
    for number, pods in enumerate(workload.controllers):
        sandbox.add_pods(pods.number, "dev", queue=QUEUE, cpu=pods.cpu, memory=pods.memory,
                         name=f"job-{number}", spec=TOLERATING)  # fmt: skip


def add_unscheduled(sandbox: Sandbox, workload: Workload) -> None:
    add_running(sandbox)
    for number, pods in enumerate(workload.controllers):
        names = sandbox.add_pods(pods.number, "dev", cpu=pods.cpu, memory=pods.memory,
                                 name=f"job-{number}", spec=TOLERATING)  # fmt: skip
        for name in names:
            sandbox.edit("pods", name, report_unschedulable, "dev")


def add_refused(sandbox: Sandbox, workload: Workload) -> None:
    """Adds StatefulSets of which the ResourceQuota refuses every pod."""
    add_running(sandbox)
    client = KubeClient.connect(a_config(kubeconfig_path=sandbox.kubeconfig))
    hard = {f"requests.{name}": text for name, text in FULL.items()}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": hard},
             "metadata": {"name": "course", "namespace": "dev"}}  # fmt: skip
    client.requests.session.write("POST", "/api/v1/namespaces/dev/resourcequotas", quota)
    sandbox.edit(
        "resourcequotas", "course",
        lambda item: item.update(status={"hard": dict(hard), "used": dict(hard)}), "dev",
    )  # fmt: skip
    for number, pods in enumerate(workload.controllers):
        owner = stateful_set(pods.number)
        owner["metadata"]["name"] = f"job-{number}"
        template = owner["spec"]["template"]["spec"]
        template.update(TOLERATING)
        template["containers"][0]["resources"]["requests"] = {
            "cpu": pods.cpu, "memory": pods.memory,
        }  # fmt: skip
        owner["status"] = {"replicas": 0}
        sandbox.create(owner)


def add_suspended(sandbox: Sandbox, workload: Workload) -> None:
    """Adds Workloads of Kueue that have no quota, so no pod of them exists."""
    with_apply(sandbox)
    add_running(sandbox)
    sandbox.create(a_flavor("permanent"))
    sandbox.create(a_flavor())
    nothing = dict.fromkeys(FULL, "0")
    sandbox.create(a_cluster_queue("a8", {"permanent": FULL, "lent": nothing}))
    sandbox.create(a_local_queue("a8"))
    status = admitted("a8", "permanent", 20, FULL)
    sandbox.create(a_workload("earlier", [a_pod_set(20)], status=status))
    for number, pods in enumerate(workload.controllers):
        pod_set = a_pod_set(pods.number, pods.cpu, pods.memory)
        sandbox.create(a_workload(f"job-{number}", [pod_set]))


ADD: dict[str, Callable[[Sandbox, Workload], None]] = {
    "yunikorn": add_to_yunikorn,
    "none": add_unscheduled,
    "resource_quota": add_refused,
    "kueue": add_suspended,
}


def test_table_plays_every_queue_system() -> None:
    assert set(ADD) == set(QUEUE_SYSTEMS)


@pytest.mark.parametrize("queue_system", ADD)
@pytest.mark.parametrize("name", WORKLOADS)
def test_first_run_requests_the_nodes_of_the_workload(
    sandbox: Sandbox, tmp_path: Path, name: str, queue_system: str
) -> None:
    workload = WORKLOADS[name]
    sandbox.add_machine_type("a", labels={LABEL: "true"}, taints=[TAINT])
    for namespace in ("dnm", "dev"):
        sandbox.add_namespace(namespace)
    for number in (0, 1):
        sandbox.add_node(f"k{number}", cpu="40", memory="160G")
    sandbox.add_machines(12)
    ADD[queue_system](sandbox, workload)
    site = Site(
        sandbox, tmp_path / "site", sections=NODE_TYPE, queue_system=queue_system,
        max_converted_nodes=6, max_conversions_per_run=30,
    )  # fmt: skip
    queue = QUEUE if queue_system == "yunikorn" else "a8"
    site.write(site.directory / "queues.json", f'{{"dev": "{queue}"}}\n')
    if queue_system == "yunikorn":
        sandbox.tick(1)
    result = site.run()
    assert not result.plan.errors
    requested = sum(request.count for request in site.registry.requests)
    assert requested == workload.differs.get(queue_system, workload.nodes)
