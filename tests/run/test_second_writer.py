"""Tests of runs and converters while another client writes the same Nodes, over HTTP."""

from __future__ import annotations

from pathlib import Path

from dnm.converters.kube_side import KubeSide
from dnm.converters.settings import Settings
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from tests.second_writer import second_writer
from tests.site import QUEUE, Site, set_up_workshop


def test_run_marks_fences_and_returns_nodes_despite_a_second_writer(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    set_up_workshop(sandbox, 4)
    site = Site(sandbox, tmp_path / "site")
    sandbox.add_pods(2, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=600)
    seen: set[Phase] = set()
    with second_writer(sandbox):
        for _ in range(30):
            ran = site.run()
            assert ran.outcome is not None and not ran.outcome.errors
            seen |= {entry.phase for entry in ran.outcome.registry.nodes.values()}
            sandbox.tick(60)
    assert {Phase.SERVING, Phase.RELEASING, Phase.RETURNING} <= seen
    assert site.lent() == [] and not sandbox.violations


def test_unversioned_changes_are_repeated_after_conflicts(sandbox: Sandbox) -> None:
    sandbox.add_node("a000", labels={"slurm": "yes"})
    kube = KubeSide(Settings(kubeconfig_path=sandbox.kubeconfig))
    with second_writer(sandbox):
        kube.set_cordon("a000", True)
        kube.node_sets.remove_label("a000", "slurm", "yes")
    node = kube.read_node("a000")
    assert node is not None and node.is_cordoned and "slurm" not in node.labels
