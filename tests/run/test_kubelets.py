"""Tests of lends of a node type with kubelet settings: correct ones, ones with which no kubelet
would start, and a kubelet that reports other values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from dnm.model.plan import StartConversion
from dnm.model.reason import Reason
from dnm.plan.rules.kubelets import KUBELET_SETTINGS
from tests.site import QUEUE, Site

MI = 2**20
# Two NUMA nodes of 128Gi: pods get 262144Mi less 8600Mi.
TYPE = """
[node_type:g]
cpu = 64
memory = 253544Mi
memory_manager_policy = Static
topology_manager_policy = single-numa-node
kube_reserved = memory=8500Mi
system_reserved = memory=0
eviction_hard_memory_available = 100Mi
reserved_memory = 0: 4300Mi, 1: {second}
numa_memory = 0: 128Gi, 1: 128Gi
"""
QUEUES = """\
partitions:
  - name: default
    queues:
      - name: anvil
        queues:
          - name: services
            queues:
              - name: dev
                submitacl: '*'
                resources:
                  max: {memory: 16Gi, vcore: 8}
"""


def a_site(sandbox: Sandbox, directory: Path, second: str = "4300Mi", **settings: Any) -> Site:
    sandbox.set_queues(QUEUES)
    sandbox.add_namespace("dev")
    arguments = {"cpu": "64", "memory": "253544Mi", **settings.pop("machine", {})}
    sandbox.add_machine_type(
        "g", arguments["cpu"], arguments["memory"], capacity={"cpu": "64", "memory": "262144Mi"}
    )
    sandbox.add_machines(3, "g")
    settings = {"node_type": "g", "reversion_idle_seconds": 1, **settings}
    return Site(sandbox, directory / "site", sections=TYPE.format(second=second), **settings)


def test_type_with_valid_kubelet_settings_is_lent_and_returned(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = a_site(sandbox, tmp_path)
    sandbox.add_pods(2, "dev", queue=QUEUE, cpu="32", memory="120Gi", run_seconds=300)
    site.run_until_rest()
    (entry,) = site.registry.nodes.values()
    assert entry.phase is Phase.SERVING
    assert entry.counted == {"cpu": 64000, "memory": 253544 * MI, "pods": 110}
    assert all(node.startswith("g") for node in site.pods().values())
    assert not [note for note in site.plan().plan.notes if "kubelet" in note]
    for _ in range(20):
        sandbox.tick(60)
        site.run()
    assert site.lent() == []
    assert sandbox.queues_text() == QUEUES


def test_type_with_fatal_kubelet_settings_is_not_lent(sandbox: Sandbox, tmp_path: Path) -> None:
    site = a_site(sandbox, tmp_path, second="4400Mi")
    sandbox.add_pods(2, "dev", queue=QUEUE, cpu="32", memory="100Gi")
    for _ in range(3):
        result = site.run()
        sandbox.tick(60)
    assert result.outcome is not None
    assert result.outcome.actions == ()
    assert site.lent() == [] and site.registry.requests == ()
    assert all(machine["place"] == "batch" for machine in places(sandbox))
    (queue,) = result.plan.queues
    assert queue.reason is KUBELET_SETTINGS
    assert "[node_type:g] reserved_memory: adds up to 8700Mi, 100Mi more than" in queue.detail
    assert "= 8600Mi: the kubelet would not start; e.g. 0: 4200Mi there" in queue.detail
    message = site.command("check", "--wide").stdout
    assert "node type g: reserved_memory: adds up to 8700Mi" in message


def places(sandbox: Sandbox) -> list[dict[str, str]]:
    return [
        {"name": machine.name, "place": "batch" if machine.claims == 0 else "claimed"}
        for machine in sandbox.batch.machines.values()
    ]


def test_differing_kubelet_is_reported_and_its_real_size_counts(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = a_site(sandbox, tmp_path, machine={"memory": "262044Mi"})
    sandbox.add_pods(2, "dev", queue=QUEUE, cpu="32", memory="100Gi")
    site.run_until_rest()
    ((name, entry),) = site.registry.nodes.items()
    assert entry.phase is Phase.SERVING
    assert entry.counted["memory"] == 262044 * MI
    difference = (
        f"the kubelet of {name} differs from [node_type:g]: it reserves 100Mi of its memory, "
        "8500Mi less than the configured 8600Mi; check its files and flags"
    )
    plan = site.plan().plan
    (verdict,) = plan.nodes
    assert difference in verdict.detail
    assert [note for note in plan.notes if difference in note]
    assert difference in " ".join(site.command("status").stdout.split())
    assert difference in site.command("check", "--wide").stdout


def test_kubelet_that_does_not_start_fails_the_node_with_a_likely_cause(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = a_site(sandbox, tmp_path, join_timeout_seconds=300)
    sandbox.behave(direction="k8s", late_seconds=100_000)
    sandbox.add_pods(2, "dev", queue=QUEUE, cpu="32", memory="100Gi")
    for _ in range(8):
        site.run()
        sandbox.tick(60)
    (failed,) = [node for node in site.registry.nodes.values() if node.phase is Phase.FAILED]
    assert "its kubelet may refuse to start: memory_manager_state or cpu_manager_state" in (
        failed.error
    )


def guaranteed(*memories: str) -> dict[str, object]:
    """Returns the spec of a Guaranteed pod with a container for each amount of memory."""
    return {
        "containers": [
            {
                "name": f"c{number}",
                "image": "busybox",
                "resources": {"limits": {"cpu": "1", "memory": memory}},
            }
            for number, memory in enumerate(memories)
        ]
    }


ONE_NUMA_NODE = 128 * 1024 - 4300  # Mi: what pods get of the larger NUMA node


@pytest.mark.parametrize(
    ("scope", "memories", "helps"),
    [
        ("container", (f"{ONE_NUMA_NODE}Mi",), True),
        ("container", (f"{ONE_NUMA_NODE + 1}Mi",), False),
        ("container", ("80Gi", "80Gi"), True),
        ("pod", ("60Gi", "60Gi"), True),
        ("pod", ("80Gi", "80Gi"), False),
    ],
)
def test_pinned_pod_that_fits_no_numa_node_lends_no_node(
    sandbox: Sandbox, tmp_path: Path, scope: str, memories: tuple[str, ...], helps: bool
) -> None:
    site = a_site(sandbox, tmp_path)
    site.path.write_text(site.path.read_text() + f"topology_manager_scope = {scope}\n")
    sandbox.add_pods(1, "dev", queue=QUEUE, spec=guaranteed(*memories))
    result = site.run()
    assert bool(site.registry.requests or site.registry.nodes) == helps
    if not helps:
        (queue,) = result.plan.queues
        assert queue.reason is Reason.NOTHING_HELPS
        assert "of memory on one NUMA node, and the largest has 126772Mi" in queue.sentence


TOPOLOGY = {
    "apiVersion": "topology.node.k8s.io/v1alpha2",
    "kind": "NodeResourceTopology",
    "metadata": {"name": "g001"},
    "zones": [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "capacity": "32", "allocatable": "32", "available": "20"},
                {"name": "memory", "capacity": "128Gi", "allocatable": "124Gi", "available": free},
            ],
        }
        for number, free in enumerate(("40Gi", "50Gi"))
    ],
}


@pytest.mark.parametrize("asks", [False, True])
def test_free_capacity_of_numa_nodes_is_read_if_the_role_permits(
    sandbox: Sandbox, tmp_path: Path, asks: bool
) -> None:
    """A pod of 60 GiB does not fit on a NUMA node of the lent node, which has 50 GiB free."""
    site = a_site(sandbox, tmp_path)
    if not asks:
        refused = sandbox.fault("status", path="noderesourcetopologies", code=403)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="1", memory="90Gi")
    site.run_until_rest()
    assert site.lent() == ["g001"]
    sandbox.create(TOPOLOGY)
    site.run()
    assert not sandbox.requests.lists("noderesourcetopologies"), "and no pinned pod waits"
    sandbox.add_pods(1, "dev", queue=QUEUE, spec=guaranteed("60Gi"), name="pinned")
    plan = site.plan().plan
    assert not plan.errors
    assert len(sandbox.requests.lists("noderesourcetopologies")) if asks else refused.struck
    starts = [action for action in plan.actions if isinstance(action, StartConversion)]
    assert len(starts) == asks, [queue.sentence for queue in plan.queues]


def test_unreadable_numa_topology_is_reported_and_the_full_node_counts(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = a_site(sandbox, tmp_path)
    sandbox.fault("status", path="noderesourcetopologies", code=500)
    sandbox.add_pods(1, "dev", queue=QUEUE, spec=guaranteed("60Gi"))
    plan = site.plan().plan
    assert [error for error in plan.errors if "NodeResourceTopology" in error]
    assert [action for action in plan.actions if isinstance(action, StartConversion)]


@pytest.fixture
def sandbox(sandbox: Sandbox) -> Sandbox:
    import time

    sandbox.clock.set(time.time())  # the real command has the same clock
    return sandbox
