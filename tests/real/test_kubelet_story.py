"""Tests of a node type with kubelet settings on the real API server: valid settings, settings with
which no kubelet would start, and Nodes with other settings. Machines join as Node objects with the
capacity and allocatable that a kubelet with these settings reports (tests/real/test_kubelet.py
checks the numbers with the kubelet's own code)."""

from __future__ import annotations

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import DEV, PODS, add_pods, pod

# Two NUMA nodes of 135372Mi: without 8600Mi they are the 256Gi of the rig's machines.
SECTION = """
[node_type:a]
cpu = 128
memory = 262144Mi
memory_manager_policy = Static
topology_manager_policy = single-numa-node
kube_reserved = memory=8500Mi
system_reserved = memory=0
eviction_hard_memory_available = 100Mi
reserved_memory = 0: 4300Mi, 1: {second}
numa_memory = 0: 135372Mi, 1: 135372Mi
"""


def test_real_node_of_a_configured_type_is_counted_by_its_allocatable(
    rig: Rig, make_site: MakeSite
) -> None:
    site = make_site(sections=SECTION.format(second="4300Mi"))
    (site.directory / "memory").write_text("270744Mi")  # 262144Mi and 8600Mi
    add_pods(rig, 45)
    site.run_until(lambda: rig.running("dev") == 45, "every pod runs")
    lent = len(site.lent)
    assert lent
    assert rig.queue(DEV)["maxResource"]["memory"] == (400 + lent * 256) * 2**30
    assert "kubelet" not in site.dnm("plan").stdout
    assert "pods get about 256Gi memory" in site.dnm("check", "--wide", code=None).stdout
    rig.api.ask("DELETE", PODS)
    site.run_until(site.has_returned_nodes, "every node is returned")
    assert rig.queues_text() == QUEUES


def test_fatal_kubelet_settings_prevent_a_real_lend(rig: Rig, make_site: MakeSite) -> None:
    site = make_site(sections=SECTION.format(second="4301Mi"))
    add_pods(rig, 45)
    for _ in range(4):
        site.dnm("run")
    assert not site.lent
    assert not [call for call in site.calls if "--set" in call]
    queue = site.queue(DEV)
    assert queue["code"] == "KUBELET_SETTINGS"
    assert "adds up to 8601Mi, 1Mi more than" in queue["reason"]
    assert site.dnm("node-types", "check", code=1).stdout.endswith("1 failed\n")


def test_real_node_with_other_kubelet_settings_is_reported(rig: Rig, make_site: MakeSite) -> None:
    site = make_site(sections=SECTION.format(second="4300Mi"))
    (site.directory / "memory").write_text("262244Mi")
    add_pods(rig, 45)
    site.run_until(lambda: rig.running("dev") == 45, "every pod runs")
    difference = "it reserves 100Mi of its memory, 8500Mi less than the configured 8600Mi"
    for command in ("plan", "status", "check"):
        assert difference in " ".join(site.dnm(command, code=None).stdout.split()), command


def test_pinned_pod_larger_than_a_numa_node_lends_no_node(rig: Rig, make_site: MakeSite) -> None:
    """The real API server decides whether a pod is of the Guaranteed class."""
    site = make_site(sections=SECTION.format(second="4300Mi"))
    # Only lent nodes have the label.
    body = pod("pinned", DEV, "4", "131073Mi", nodeSelector={"dev": "true"})
    resources = body["spec"]["containers"][0]["resources"]
    resources["limits"] = dict(resources["requests"])
    rig.create(PODS, body)
    for _ in range(3):
        site.dnm("run")
    assert not [call for call in site.calls if "--set" in call]
    assert "of memory on one NUMA node, and the largest has 128Gi" in site.queue(DEV)["reason"]
