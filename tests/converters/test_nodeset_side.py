"""Tests of nodeset-convert's requests over HTTP, with objects as slurm-operator writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dnm.converters.kube_side import KubeSide
from dnm.converters.nodeset import FENCE, LOWEST_COST
from dnm.converters.nodeset_side import (
    Autoscaler,
    read_pod_page,
    read_scaler_page,
    read_set_page,
)
from dnm.converters.settings import Settings
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.http_values import Fault
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.node_type import Taint
from dnm.model.pod import Toleration

LENT = Taint(key="lent", effect="NoSchedule", value="dev")


def a_pod(**changes: Any) -> dict[str, Any]:
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "SlurmNodeStateIdle", "status": "True", "message": ""},
        {"type": "SlurmNodeStateDrain", "status": "True", "message": "dnm:prod"},
        {"type": "SlurmNodeStateMixed", "status": "False"},
    ]
    return {
        "metadata": {
            "namespace": "slurm", "name": "b-x7f2k", "uid": "u1",
            "labels": {"app.kubernetes.io/name": "slurmd", "app.kubernetes.io/component": "worker",
                       "nodeset.slinky.slurm.net/pod-hostname": "a000"},
            "ownerReferences": [{"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet",
                                 "name": "b", "uid": "s1", "controller": True}],
            **changes.pop("metadata", {}),
        },
        "spec": {"nodeName": "a000", "containers": []},
        "status": {"phase": "Running", "conditions": conditions},
        **changes,
    }  # fmt: skip


def pods(*found: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "PodList", "items": list(found)}).encode()


def test_slurmd_pod_is_parsed() -> None:
    (pod,) = read_pod_page(pods(a_pod()))
    assert (pod.key, pod.uid, pod.node, pod.hostname, pod.node_set) == (
        "slurm/b-x7f2k", "u1", "a000", "a000", "b",
    )  # fmt: skip
    assert (pod.is_ready, pod.is_terminating, set(pod.states)) == (True, False, {"Idle", "Drain"})


@pytest.mark.parametrize(
    ("changes", "ready", "going"),
    [
        ({"status": {"phase": "Pending"}}, False, False),
        ({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}},
         False, False),
        ({"metadata": {"deletionTimestamp": "2026-11-20T12:00:00Z"}}, True, True),
    ],
)  # fmt: skip
def test_starting_or_ending_pod_is_recognised(
    changes: dict[str, Any], ready: bool, going: bool
) -> None:
    (pod,) = read_pod_page(pods(a_pod(**changes)))
    assert (pod.is_ready, pod.is_terminating) == (ready, going)


@pytest.mark.parametrize(
    ("mode", "spec", "hostname"),
    [
        pytest.param("StatefulSet", {"nodeName": "a007", "hostNetwork": True}, "a007",
                     id="its Node's"),
        pytest.param("StatefulSet", {"nodeName": "a007"}, "b-0", id="its own"),
        pytest.param("DaemonSet", {"nodeName": "a007.example.org", "hostNetwork": True}, "b-0",
                     id="by the label"),
    ],
)  # fmt: skip
def test_slurm_name_of_a_pod(mode: str, spec: dict[str, Any], hostname: str) -> None:
    labels = {"nodeset.slinky.slurm.net/scaling-mode": mode,
              "nodeset.slinky.slurm.net/pod-hostname": "b-0"}  # fmt: skip
    (pod,) = read_pod_page(pods(a_pod(metadata={"labels": labels}, spec=spec)))
    assert pod.hostname == hostname


def test_finished_pod_is_ignored() -> None:
    assert read_pod_page(pods(a_pod(status={"phase": "Failed"}))) == []


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="unowned"),
        pytest.param([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "b",
                       "controller": True}], id="a-replica-set-s"),
        pytest.param([{"apiVersion": "apps/v1", "kind": "NodeSet", "name": "b",
                       "controller": True}], id="of-another-group"),
        pytest.param([{"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "b"}],
                     id="not-made-by-it"),
    ],
)  # fmt: skip
def test_pod_with_only_the_labels_is_ignored(owners: list[dict[str, Any]]) -> None:
    assert read_pod_page(pods(a_pod(metadata={"ownerReferences": owners}))) == []


def a_set(status: dict[str, Any], **metadata: Any) -> bytes:
    spec = {
        "scalingMode": "DaemonSet",
        "template": {
            "spec": {
                "nodeSelector": {"slurm": "yes"},
                "tolerations": [{"key": FENCE.key, "operator": "Exists"}],
            }
        },
    }
    item = {"metadata": {"namespace": "slurm", "name": "b", "generation": 3, **metadata},
            "spec": spec, "status": status}  # fmt: skip
    return json.dumps({"kind": "NodeSetList", "metadata": {}, "items": [item]}).encode()


@pytest.mark.parametrize(
    ("status", "is_settled"),
    [
        ({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2}, True),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2}, False),
        ({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 1}, False),
        ({}, False),
    ],
)
def test_node_set_status_is_parsed(status: dict[str, Any], is_settled: bool) -> None:
    (set_page,) = read_set_page(a_set(status))
    assert set_page.is_settled is is_settled
    assert (set_page.is_daemon_set, set_page.is_deleting, set_page.selector) == (
        True,
        False,
        {"slurm": "yes"},
    )
    assert set_page.tolerations == (Toleration(key=FENCE.key, operator="Exists"),)


@pytest.fixture
def kube(sandbox: Sandbox) -> KubeSide:
    sandbox.add_node("a000")
    node = sandbox.store.get("nodes", "", "a000")
    assert node is not None
    node["metadata"]["labels"]["example.org/slurm"] = "yes"
    node["spec"]["taints"] = [{"key": FENCE.key, "effect": "NoSchedule"}]
    return KubeSide(Settings(kubeconfig_path=sandbox.kubeconfig))


def test_label_is_removed_only_if_unchanged(kube: KubeSide) -> None:
    with pytest.raises(KubeError):
        kube.node_sets.remove_label("a000", "example.org/slurm", "no")
    kube.node_sets.remove_label("a000", "example.org/slurm", "yes")
    node = kube.read_node("a000")
    assert node is not None and "example.org/slurm" not in node.labels
    with pytest.raises(KubeError):
        kube.node_sets.remove_label("a000", "example.org/slurm", "yes")


def test_node_is_changed_in_one_request(kube: KubeSide) -> None:
    node = kube.read_node("a000")
    assert node is not None and node.is_with_batch
    kube.set_cordon("a000", True)
    with pytest.raises(KubeConflict):
        kube.change(node, {"dev": "true"}, (LENT,))
    node = kube.read_node("a000")
    assert node is not None and node.is_cordoned
    kube.change(node, {"dev": "true"}, (LENT,))
    lent = kube.read_node("a000")
    assert lent is not None and lent.labels["dev"] == "true" and lent.taints == (LENT,)
    assert lent.is_cordoned and not lent.is_with_batch
    kube.change(lent, {"dev": None}, (), is_uncordoned=True, annotations={"x": None})
    back = kube.read_node("a000")
    assert back is not None and "dev" not in back.labels
    assert (back.taints, back.is_cordoned) == ((), False)


def test_unchanged_taint_keeps_its_time(kube: KubeSide, sandbox: Sandbox) -> None:
    stored = sandbox.store.get("nodes", "", "a000")
    assert stored is not None
    stored["spec"]["taints"][0]["timeAdded"] = "2026-11-20T12:00:00Z"
    node = kube.read_node("a000")
    assert node is not None
    kube.change(node, {"dev": "true"}, node.taints)
    after = sandbox.store.get("nodes", "", "a000")
    assert after is not None and "dev" in after["metadata"]["labels"]
    assert after["spec"]["taints"][0]["timeAdded"] == "2026-11-20T12:00:00Z"


def test_only_slurmd_pods_of_the_node_are_listed(kube: KubeSide, sandbox: Sandbox) -> None:
    sandbox.add_namespace("slurm")
    for name, node, labels in (
        ("b-1", "a000", a_pod()["metadata"]["labels"]),
        ("b-2", "a001", a_pod()["metadata"]["labels"]),
        ("other", "a000", {"app": "x"}),
    ):
        pod = a_pod(metadata={"name": name, "labels": labels, "uid": name})
        pod["spec"]["nodeName"] = node
        if name == "other":
            del pod["metadata"]["ownerReferences"]
        with sandbox.lock:
            sandbox.store.create("pods", pod)
    assert [pod.name for pod in kube.node_sets.read_pods("a000")] == ["b-1"]
    assert [pod.name for pod in kube.node_sets.read_pods()] == ["b-1", "b-2"]
    on_node = {pod.name: pod.stays for pod in kube.read_pods_to_evict("a000")}
    assert on_node == {"b-1": True, "other": False}, "pods of a NodeSet are never evicted"


def test_node_sets_of_all_namespaces_are_listed(kube: KubeSide, sandbox: Sandbox) -> None:
    with pytest.raises(KubeError):
        kube.node_sets.read_sets()
    body = json.loads(a_set({}))
    body["metadata"] = {"resourceVersion": "7"}
    sandbox.faults.add(Fault(kind="garbage", path="/nodesets$", body=json.dumps(body)))
    assert [node_set.name for node_set in kube.node_sets.read_sets()] == ["b"]


def managed(manager: str, operation: str = "Update", subresource: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    results = {"manager": manager, "operation": operation, "fieldsV1": fields}
    return {**results, "subresource": subresource} if subresource else results


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        pytest.param(managed("kubectl-client-side-apply"), (), id="a-manifest"),
        pytest.param(managed("kubectl", subresource="scale"), (), id="a-person"),
        pytest.param(managed("dynamic-node-manager", subresource="scale"), (), id="dnm"),
        pytest.param(managed("kube-controller-manager", subresource="scale"), (), id="an-HPA"),
        pytest.param(managed("keda", subresource="scale"), ("keda",), id="another-scaler"),
        pytest.param(managed("flux", "Apply"), ("flux",), id="server-side-apply"),
        pytest.param(managed("kubectl", "Apply"), ("kubectl",), id="a-person-s-apply"),
        pytest.param(
            {**managed("flux", "Apply"), "fieldsV1": {"f:spec": {"f:slurmd": {}}}}, (),
            id="of-another-field",
        ),
        pytest.param({"manager": "old"}, (), id="without-fields"),
    ],
)  # fmt: skip
def test_recognises_other_managers_of_replicas(
    entry: dict[str, Any], named: tuple[str, ...]
) -> None:
    (set_page,) = read_set_page(a_set({}, managedFields=[entry], resourceVersion="9"))
    assert (set_page.scalers, set_page.replicas, set_page.resource_version) == (named, 1, "9")


def an_autoscaler(kind: str = "NodeSet", group: str = "slinky.slurm.net", **more: Any) -> Any:
    target = {"kind": kind, "name": "b", "apiVersion": f"{group}/v1beta1"}
    metadata = {"namespace": "slurm", "name": "h", "labels": more.pop("labels", None)}
    return {"metadata": metadata, "spec": {"scaleTargetRef": target}, **more}


def scaling(status: str, reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "ScalingActive", "status": status, "reason": reason}]}


@pytest.mark.parametrize(
    ("scaler", "shown", "is_idle"),
    [
        pytest.param(an_autoscaler(), "HorizontalPodAutoscaler h", False, id="one"),
        pytest.param(an_autoscaler(status=scaling("True", "ValidMetricFound")),
                     "HorizontalPodAutoscaler h", False, id="one that scales"),
        pytest.param(an_autoscaler(status=scaling("False", "ScalingDisabled")),
                     "HorizontalPodAutoscaler h (ScalingDisabled)", True, id="one that may"),
        pytest.param(an_autoscaler(labels={"scaledobject.keda.sh/name": "jobs"}),
                     "KEDA's ScaledObject jobs", False, id="KEDA's"),
        pytest.param(an_autoscaler(kind="Deployment"), None, False, id="of another kind"),
        pytest.param(an_autoscaler(group="example.org"), None, False, id="of another group"),
    ],
)  # fmt: skip
def test_autoscaler_of_a_node_set_is_recognized(
    scaler: Any, shown: str | None, is_idle: bool
) -> None:
    expected = [Autoscaler(namespace="slurm", node_set="b", shown=shown or "", is_idle=is_idle)]
    page = json.dumps({"items": [scaler]}).encode()
    assert read_scaler_page(page) == (expected if shown else [])


def test_deletion_cost_and_cordon_of_a_pod_are_parsed() -> None:
    prefix = "nodeset.slinky.slurm.net/pod"
    results = {}
    for cost in ("-2147483648", "x", ""):
        annotations = {f"{prefix}-deletion-cost": cost, f"{prefix}-cordon": "true"}
        body = a_pod()
        body["metadata"]["annotations"] = annotations
        (pod,) = read_pod_page(pods(body))
        assert pod.is_condemned
        results[cost] = pod.cost
    assert results == {"-2147483648": -(2**31), "x": 0, "": 0}


def test_deletion_cost_is_written_and_removed(kube: KubeSide, sandbox: Sandbox) -> None:
    sandbox.add_namespace("slurm")
    with sandbox.lock:
        sandbox.store.create("pods", a_pod())
    (pod,) = kube.node_sets.read_pods("a000")
    for cost in (LOWEST_COST, None):
        kube.node_sets.set_cost(pod, cost)
        (after,) = kube.node_sets.read_pods("a000")
        assert after.cost == (cost or 0)
    assert kube.node_sets.read_chosen("example.org/slurm", "yes") == ["a000"]
    kube.set_cordon("a000", True)
    assert kube.node_sets.read_chosen("example.org/slurm", "yes") == []


def test_scaled_node_set_is_read_with_its_autoscalers(kube: KubeSide, sandbox: Sandbox) -> None:
    body = json.loads(a_set({}))
    body["metadata"] = {"resourceVersion": "7"}
    del body["items"][0]["spec"]["scalingMode"]
    sandbox.faults.add(Fault(kind="garbage", path="/nodesets$", body=json.dumps(body)))
    target = {"kind": "NodeSet", "name": "b"}
    scaler = {"metadata": {"namespace": "slurm", "name": "h"}, "spec": {"scaleTargetRef": target}}
    listed: dict[str, Any] = {
        "kind": "HorizontalPodAutoscalerList",
        "metadata": {"resourceVersion": "7"},
    }
    listed["items"] = [scaler]
    with pytest.raises(KubeError):
        kube.node_sets.read_sets()
    path = "/horizontalpodautoscalers$"
    sandbox.faults.add(Fault(kind="garbage", path=path, body=json.dumps(listed)))
    (sets,) = kube.node_sets.read_sets()
    assert (sets.scalers, sets.idle_scalers) == (("HorizontalPodAutoscaler h",), ())
    assert not sets.is_daemon_set
