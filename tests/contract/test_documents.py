"""The promises of the other documents from which dnm was made: one test for each promise. No change
of dnm may remove one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm.converters import to_batch, to_k8s
from dnm.lab.sandbox.cluster import Sandbox
from tests.converters.bridge_world import LABEL, LONG_LABEL
from tests.converters.test_bridge import assert_lent, program
from tests.site import QUEUE, Site, set_up_workshop

KUBELET = """
[node_type:a]
kube_reserved = memory=1.5Gi
system_reserved = memory=512Mi
eviction_hard_memory_available = 100Mi
memory_manager_policy = Static
reserved_memory = 0: {reserved}
numa_memory = 0: 128Gi
"""


@pytest.mark.parametrize("label", [LABEL, LONG_LABEL])
def test_both_names_of_the_slurm_bridge_label_are_supported(tmp_path: Path, label: str) -> None:
    made = program(tmp_path)
    del made.machine.labels[LABEL]
    made.machine.labels[label] = "true"
    made.lend()
    assert_lent(made.world)
    made.bring_back()
    assert made.machine.labels[label] == "true"


def test_every_partition_of_the_annotation_must_exist(tmp_path: Path) -> None:
    made = program(tmp_path)
    made.lend()
    made.world.partitions.remove("c")
    node_result = made.bring_back()
    assert node_result.result == "failed" and "Slurm has no partition c" in node_result.error
    assert_lent(made.world)


def test_conversion_stages_follow_the_procedure_of_the_centre() -> None:
    """Lend: drain, prepare, join. Return: drain, power cycle, delete the Node, boot, resume. A
    kubelet could register again if the Node were deleted before the power cycle."""
    lending = [stage.name for stage in to_k8s.STAGES]
    assert lending.index("claim") < lending.index("prepare") < lending.index("join")
    back = [stage.name for stage in to_batch.STAGES]
    order = ["drain", "reset", "delete", "boot", "health", "return"]
    assert [name for name in back if name in order] == order


def test_workshop_of_a_hundred_participants_is_served(sandbox: Sandbox, tmp_path: Path) -> None:
    """75 participants have pods of 4 cores and 16 GB, and 25 have 4 cores and 32 GB."""
    set_up_workshop(sandbox, 12)
    site = Site(sandbox, tmp_path / "site", max_conversions_per_run=12)
    for count, memory, name in ((75, "16G", "small"), (25, "32G", "large")):
        sandbox.add_pods(count, "dev", queue=QUEUE, cpu="4", memory=memory, name=name)
    site.run_until_rest()
    sandbox.tick(60)
    site.run_until_rest()
    nodes = list(site.pods().values())
    assert len(nodes) == 100 and all(nodes)
    assert 8 <= len(site.lent()) <= 9 and sandbox.violations == []


def kubelet_site(directory: Path, sandbox: Sandbox, reserved: str, more: str = "") -> Site:
    return Site(sandbox, directory / "site", sections=KUBELET.format(reserved=reserved) + more)


def test_kubelet_memory_sum_is_checked_before_a_node_boots(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """A kubelet requires sum(reservedMemory) == kubeReserved + systemReserved + evictionHard."""
    set_up_workshop(sandbox, 1)
    right = kubelet_site(tmp_path / "right", sandbox, "2148Mi")
    done = right.command("node-types", "check")
    assert done.returncode == 0, done.stdout
    wrong = kubelet_site(tmp_path / "wrong", sandbox, "2148M")
    done = wrong.command("node-types", "check")
    assert done.returncode == 1 and "reserved_memory: adds up to" in done.stdout
    sandbox.add_pods(25, "dev", queue=QUEUE, cpu="4", memory="4G")
    wrong.run()
    assert wrong.lent() == [] and not wrong.registry.requests


def test_static_memory_manager_without_single_numa_node_is_a_warning(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = kubelet_site(tmp_path, sandbox, "2148Mi")
    words = "Static without topology_manager_policy = single-numa-node"
    assert words in " ".join(site.command("node-types", "check").stdout.split())
    aligned = kubelet_site(
        tmp_path / "aligned", sandbox, "2148Mi", "topology_manager_policy = single-numa-node\n"
    )
    assert words not in " ".join(aligned.command("node-types", "check").stdout.split())


def test_preview_has_exactly_the_configured_settings(sandbox: Sandbox, tmp_path: Path) -> None:
    shown = kubelet_site(tmp_path, sandbox, "2148Mi").command("node-types", "render", "a").stdout
    for part in ('memoryManagerPolicy: "Static"', "1.5Gi", "512Mi", "100Mi", "2148Mi"):
        assert part in shown, shown
    for part in ("cpuManagerPolicy", "topologyManagerPolicy", "maxPods"):
        assert part not in shown
    plain = Site(sandbox, tmp_path / "plain", sections="[node_type:a]\ncpu = 128\n")
    assert plain.command("node-types", "render", "a").stdout == ""
