"""Tests of what bridge-convert reads over HTTP: Nodes with the annotations of slurm-bridge and of
dnm."""

from __future__ import annotations

import pytest

from dnm.converters.bridge import TAKEN, Taken, split_partitions, write_taken
from dnm.converters.kube_side import KubeSide
from dnm.converters.settings import Settings
from dnm.converters.slurm.rest_body import parse_partitions as partitions_of_rest
from dnm.converters.slurm.text import parse_partitions
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.node_type import Taint

LABEL = "scheduler.slinky.slurm.net/external-node"
PARTITIONS = f"{LABEL}-partitions"
RECORD = Taken(instance="prod", labels={LABEL: "yes"}, partitions="b,c")


@pytest.fixture
def kube(sandbox: Sandbox) -> KubeSide:
    sandbox.add_node("a000")
    sandbox.add_node("a001")
    node = sandbox.store.get("nodes", "", "a000")
    assert node is not None
    node["metadata"]["labels"][LABEL] = ""
    node["metadata"]["annotations"] = {PARTITIONS: "b,c", "other": "x"}
    node["spec"]["taints"] = [
        {"key": "slinky.slurm.net/managed-node", "value": "slurm-bridge", "effect": "NoExecute"}
    ]
    return KubeSide(Settings(kubeconfig_path=sandbox.kubeconfig))


def test_bridged_node_is_changed_and_restored(kube: KubeSide) -> None:
    at = kube.bridge.read_node("a000")
    assert at is not None and at.is_labelled and at.node.is_managed and at.node.is_with_batch
    assert (at.partitions, at.taken) == ("b,c", None)
    fence = Taint(key="dynamic-node-manager/batch", effect="NoSchedule")
    annotations = {TAKEN: write_taken(RECORD)}
    kube.change(at.node, {LABEL: None}, (fence,), annotations=annotations)
    taken = kube.bridge.read_node("a000")
    assert taken is not None and taken.taken == RECORD and not taken.is_labelled
    kube.change(taken.node, RECORD.labels, (), annotations={TAKEN: None, PARTITIONS: "b"})
    back = kube.bridge.read_node("a000")
    assert back is not None and back.is_labelled
    assert (back.taken, back.partitions) == (None, "b")
    assert kube.bridge.read_node("a999") is None


def test_node_list_includes_bridge_annotations(kube: KubeSide, sandbox: Sandbox) -> None:
    node = sandbox.store.get("nodes", "", "a001")
    assert node is not None
    node["metadata"]["annotations"] = {TAKEN: "not ours"}
    results = {node.node.name: node for node in kube.bridge.read_nodes()}
    assert (results["a000"].partitions, results["a000"].is_labelled) == ("b,c", True)
    assert (results["a001"].taken, results["a001"].partitions) == (None, None)


@pytest.mark.parametrize(
    ("text", "names"), [("b, c,", ("b", "c")), ("", ()), (None, ()), (" ", ()), ("b", ("b",))]
)
def test_splits_partitions_of_the_annotation(text: str | None, names: tuple[str, ...]) -> None:
    assert split_partitions(text) == names


def test_parses_partitions_of_slurm() -> None:
    printed = "PartitionName=b AllowGroups=ALL Nodes=(null)\nPartitionName=c Nodes=a[1-2]\n"
    assert parse_partitions(printed) == ("b", "c")
    assert parse_partitions("No partitions in the system\n") == ()
    body = b'{"partitions": [{"name": "b", "nodes": {}}, {"name": "c"}], "errors": []}'
    assert partitions_of_rest(body) == ("b", "c")
