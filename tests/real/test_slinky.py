"""Tests of nodeset-convert on the real API server, with dnm's own account: the scale subresource,
preconditions, permissions and taints are those of Kubernetes. They take 12 s."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dnm.converters.conversion import Sides, StopRequest
from dnm.converters.journal import JournalStore, NodeResult
from dnm.converters.kube_side import KubeSide
from dnm.converters.pool import Candidate, ConversionPool, program_of
from dnm.converters.settings import Machines, Settings
from tests.converters.nodeset_world import LABEL, SlurmSide
from tests.real.account import KUBECONFIG
from tests.real.cluster import CPU, MEMORY
from tests.real.http_api import Json
from tests.real.rig import Rig
from tests.real.second_writer import SecondWriter
from tests.real.slinky import CRD, FENCE, SETS, Operator, SlurmState, roles

NAMES = ["a001", "a002"]
SCALER = "/apis/autoscaling/v2/namespaces/slurm/horizontalpodautoscalers"


class Converter:
    """A converter for the real API server and a Slurm in memory."""

    def __init__(self, directory: Path, state: SlurmState) -> None:
        self.state: Any = state  # a World, as far as SlurmSide reads it
        self.settings = Settings(
            machines=Machines.PODS, nodeset_label=LABEL, state_dir=directory, hooks_dir=directory,
            kubeconfig_path=KUBECONFIG, poll_seconds=timedelta(seconds=0.1),
            verify_seconds=timedelta(0), drain_timeout_seconds=timedelta(seconds=30),
            boot_timeout_seconds=timedelta(seconds=30),
        )  # fmt: skip
        self.messages: list[str] = []

    def _pool(self) -> ConversionPool:
        slurm = SlurmSide(self.state)
        sides = Sides(slurm=lambda _: slurm, kube=KubeSide)  # type: ignore[arg-type, return-value]
        return ConversionPool(
            self.settings, program_of(self.settings.machines),
            JournalStore(self.settings.state_dir), StopRequest(), self.messages.append,
            lambda result: None, sides=sides,
        )  # fmt: skip

    def lend(self, node: str) -> NodeResult:
        return self._pool().lend([Candidate(node=node)], 1, "a", "dev")[0]

    def bring_back(self, node: str) -> NodeResult:
        return self._pool().bring_back([node])[0]


@pytest.fixture
def slinky(rig: Rig) -> Iterator[Rig]:
    """Adds the CRD, the namespace, and the roles of etc/."""
    rig.create("/api/v1/namespaces", {"metadata": {"name": "slurm"}})
    rig.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    rig.wait_for(lambda: rig.api.answers(SETS), "NodeSets are served")
    with roles(rig):
        try:
            yield rig
        finally:
            rig.api.delete(f"{SETS}/b")
            rig.api.delete(f"{SCALER}/busy")
            rig.remove_pods("slurm")


def node_of(rig: Rig, name: str) -> Json:
    results: Json = rig.api.get(f"/api/v1/nodes/{name}")
    return results


def assert_open(rig: Rig, name: str) -> None:
    node = node_of(rig, name)
    assert node["metadata"]["labels"]["dev"] == "true" and not node["spec"].get("taints")
    assert not node["spec"].get("unschedulable")


@pytest.mark.parametrize("mode", ["DaemonSet", "StatefulSet"])
def test_machine_with_its_slurmd_in_a_pod_is_lent_and_returned(
    slinky: Rig, tmp_path: Path, mode: str
) -> None:
    state = SlurmState(NAMES)
    made = Converter(tmp_path, state)
    template = {
        "nodeSelector": dict([LABEL]),
        "tolerations": [{"key": FENCE["key"], "operator": "Exists"}],
    }
    spec = {"scalingMode": mode, "replicas": 2, "template": {"spec": template}}
    for name in NAMES:
        slinky.add_node(name, CPU, MEMORY, **{LABEL[0]: LABEL[1]})
        slinky.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [FENCE]}})
    slinky.wait_for(lambda: slinky.ready_nodes() >= set(NAMES), "both are Ready")
    slinky.api.post(SETS, {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet",
                           "metadata": {"name": "b"}, "spec": spec})  # fmt: skip
    with Operator(slinky, state), SecondWriter(slinky, NAMES) as writer:
        machines = list(state.machines.values())
        slinky.wait_for(
            lambda: "Idle" in str(slinky.pods("slurm")) and all(m.is_in_slurm for m in machines),
            "slurmd is up on both",
        )
        state.machines["a002"].jobs["7"] = 1
        if mode == "StatefulSet":
            target = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "b"}
            body = {"metadata": {"name": "busy"}, "spec": {"scaleTargetRef": target,
                    "minReplicas": 2, "maxReplicas": 2}}  # fmt: skip
            slinky.api.post(SCALER, body)
            node_result = made.lend("a001")
            assert "set by HorizontalPodAutoscaler busy too" in node_result.error, node_result
            slinky.api.delete(f"{SCALER}/busy")
        node_result = made.lend("a001")
        assert node_result.result == "ok", (node_result, made.messages)
        assert_open(slinky, "a001")
        assert [pod["spec"]["nodeName"] for pod in slinky.pods("slurm")] == ["a002"]
        if mode == "StatefulSet":
            assert slinky.api.get(f"{SETS}/b")["spec"]["replicas"] == 1
        node_result = made.bring_back("a001")
        assert node_result.result == "ok", (node_result, made.messages)
        node = node_of(slinky, "a001")
        assert node["spec"]["taints"] == [FENCE] and "dev" not in node["metadata"]["labels"]
        assert {pod["spec"]["nodeName"] for pod in slinky.pods("slurm")} == set(NAMES)
        assert slinky.api.get(f"{SETS}/b")["spec"]["replicas"] == 2
        assert writer.writes > 20
    assert state.machines["a002"].jobs and not state.lost and not state.reservations
