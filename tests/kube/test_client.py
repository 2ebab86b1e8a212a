"""Tests of every operation of dnm's Kubernetes client on the embedded cluster, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dnm.host.faults import inject_faults
from dnm.kube.client import KubeClient
from dnm.kube.questions import can_i, read_server_time, read_version
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.cluster import ConfigMap, KubeEvent
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.node import Mark
from dnm.model.node_type import Taint
from dnm.model.pod import Claim, NodeSelectorTerm, Pod, PodShape, Requirement
from dnm.model.value import Unreadable
from tests.builders import a_config
from tests.scripted_server import ScriptedServer, an_access, answer

MARKS = {
    "dynamic-node-manager/instance": "prod",
    "dynamic-node-manager/node-type": "a",
    "dynamic-node-manager/namespace": "dev",
    "dynamic-node-manager/queue": "root.dev",
}


@pytest.fixture
def kube(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeClient]:
    monkeypatch.setattr("dnm.kube.session._FIRST_PAUSE", 0.01)
    config = a_config(kubeconfig_path=sandbox.kubeconfig, request_timeout=timedelta(seconds=300))
    client = KubeClient.connect(config)
    yield client
    client.close()


def make_config_map(sandbox: Sandbox, **more: Any) -> None:
    metadata = {"name": "m", "namespace": "yunikorn", "labels": {"kept": "yes"}}
    annotations = {"kept": "1", "changed": "2", "removed": "3"}
    sandbox.add_namespace("yunikorn")
    sandbox.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "annotations": annotations, "finalizers": ["site/kept"]},
            "data": {"kept": "1", "changed": "2", "removed": "3"},
            "binaryData": {"zip": "H4sIAAAA"},
            **more,
        }
    )


# --- lists -----------------------------------------------------------------------------------


def test_unfinished_pods_of_the_cluster_are_read_with_a_single_list(
    sandbox: Sandbox, kube: KubeClient
) -> None:
    sandbox.add_pods(3, "dev", queue="root.dev")
    sandbox.add_pods(2, "other")
    sandbox.finish_pods(["pod-0"], "dev")
    sandbox.finish_pods(["pod-1"], "dev", phase="Failed")
    sandbox.requests.clear()
    pod_list = kube.read_pods(("dev",))
    assert not isinstance(pod_list, Unreadable)
    names = sorted((pod.namespace, pod.name) for pod in pod_list.pods)
    assert names == [("dev", "pod-2"), ("other", "pod-0"), ("other", "pod-1")]
    assert pod_list.cluster_wide and not pod_list.unreadable
    assert [entry.path for entry in sandbox.requests.all()] == ["/api/v1/pods"]


def test_pods_are_listed_by_namespace_without_cluster_permission(
    sandbox: Sandbox, kube: KubeClient
) -> None:
    for namespace in ("dev", "secret", "test"):
        sandbox.add_pods(2, namespace)
    sandbox.access.restrict({("list", "pods", "dev"), ("list", "pods", "test")})
    sandbox.requests.clear()
    pod_list = kube.read_pods(("dev", "secret", "test"))
    assert not isinstance(pod_list, Unreadable)
    assert sorted({pod.namespace for pod in pod_list.pods}) == ["dev", "test"]
    assert not pod_list.cluster_wide
    assert list(pod_list.unreadable) == ["secret"]
    assert "permission to list pods" in pod_list.unreadable["secret"]
    each = [f"/api/v1/namespaces/{namespace}/pods" for namespace in ("dev", "secret", "test")]
    paths = [entry.path for entry in sandbox.requests.all()]
    assert paths[0] == "/api/v1/pods" and sorted(paths[1:]) == each


def test_failed_list_is_not_empty(sandbox: Sandbox, kube: KubeClient) -> None:
    sandbox.fault("status", path="/api/v1/(pods|nodes)", code=500)
    pods, nodes = kube.read_pods(("dev",)), kube.read_nodes()
    assert isinstance(pods, Unreadable) and "500" in pods.error and pods.subject == "pods"
    assert isinstance(nodes, Unreadable) and "500" in nodes.error and nodes.subject == "nodes"


# --- nodes -----------------------------------------------------------------------------------


def test_nodes_are_read_with_labels_taints_and_marks(sandbox: Sandbox, kube: KubeClient) -> None:
    taint = {"key": "dedicated", "value": "dev", "effect": "NoSchedule"}
    more = {"nvidia.com/gpu": "4", "pods": "110"}
    sandbox.add_node(
        "k1", cpu="127500m", memory="250Gi", more=more, labels={"dev": "true"}, taints=[taint]
    )
    node = kube.read_node("k1")
    assert node is not None and kube.read_node("nobody") is None
    wanted = {"cpu": 127_500, "memory": 250 * 2**30, "nvidia.com/gpu": 4}
    assert node.allocatable.items() >= wanted.items() and node.labels["dev"] == "true"
    assert node.taints == (Taint(key="dedicated", value="dev", effect="NoSchedule"),)
    assert node.is_ready and not node.is_cordoned and not node.is_deleting
    assert node.resource_version and node.mark is None
    assert kube.read_nodes() == (node,)
    for name in ("cordoned", "lost", "half-marked"):
        sandbox.add_node(name)
    sandbox.cordon("cordoned")
    sandbox.set_ready("lost", False)
    kube.patch_node("k1", annotations={**MARKS, "dynamic-node-manager/fenced": "true"})
    kube.patch_node("half-marked", annotations={"dynamic-node-manager/queue": "root.x"})
    nodes = kube.read_nodes()
    assert not isinstance(nodes, Unreadable)
    assert [node.name for node in nodes if node.is_cordoned] == ["cordoned"]
    assert [node.name for node in nodes if not node.is_ready] == ["lost"]
    assert {node.name: node.mark for node in nodes if node.mark} == {
        "k1": Mark(instance="prod", node_type="a", namespace="dev", queue="root.dev", fenced=True),
        "half-marked": Mark(instance="", node_type="", namespace="", queue="root.x"),
    }


def test_node_is_fenced_unfenced_and_deleted_once(sandbox: Sandbox, kube: KubeClient) -> None:
    sandbox.add_node("k1", labels={"kept": "yes"})
    before = kube.read_node("k1")
    kube.patch_node("k1", cordon=True, annotations=MARKS)
    fenced = kube.read_node("k1")
    assert before and fenced is not None and fenced.is_cordoned and fenced.mark is not None
    with pytest.raises(KubeConflict, match="can't patch node k1"):
        kube.patch_node("k1", resource_version=before.resource_version, cordon=False)
    assert kube.read_node("k1") == fenced
    kube.patch_node("k1", cordon=False, annotations=dict.fromkeys(MARKS))
    freed = kube.read_node("k1")
    assert freed is not None and not freed.is_cordoned and freed.mark is None
    assert freed.labels["kept"] == "yes"
    assert [kube.delete_node("k1"), kube.delete_node("k1")] == [True, False]
    with pytest.raises(KubeError, match=r"can't patch node k1: .*404"):
        kube.patch_node("k1", cordon=True)
    assert kube.read_nodes() == ()


def test_pods_on_a_node_are_listed_in_every_namespace(sandbox: Sandbox, kube: KubeClient) -> None:
    sandbox.add_node("k1")
    sandbox.add_pods(2, "dev")
    sandbox.add_pods(1, "other")
    sandbox.bind("pod-0", "k1", "dev")
    sandbox.bind("pod-0", "k1", "other")
    sandbox.bind("pod-1", "k1", "dev", phase="Succeeded")
    pods = kube.read_pods_on("k1")
    assert [(pod.namespace, pod.name, pod.node) for pod in pods] == [
        ("dev", "pod-0", "k1"),
        ("other", "pod-0", "k1"),
    ]
    sandbox.fault("status", path="pods", code=403)
    with pytest.raises(KubeError, match="can't list the pods on node k1"):
        kube.read_pods_on("k1")


# --- the ConfigMap ---------------------------------------------------------------------------


def changed(config_map: ConfigMap) -> ConfigMap:
    return msgspec.structs.replace(
        config_map,
        data={"kept": "1", "changed": "new", "added": "4"},
        annotations={"kept": "1", "changed": "new", "added": "4"},
    )


def test_written_config_map_keeps_fields_unknown_to_dnm(sandbox: Sandbox, kube: KubeClient) -> None:
    assert kube.read_config_map("yunikorn", "m") is None
    make_config_map(sandbox)
    before = sandbox.get("configmaps", "m", "yunikorn")
    read = kube.read_config_map("yunikorn", "m")
    assert read is not None
    assert read.binary_data == {"zip": "H4sIAAAA"} and not read.immutable
    sandbox.requests.clear()
    written = kube.write_config_map(changed(read))
    assert [entry.method for entry in sandbox.requests.all()] == ["PUT"]
    after = sandbox.get("configmaps", "m", "yunikorn")
    assert before is not None and after is not None
    assert written.resource_version == after["metadata"]["resourceVersion"]
    assert written.data == after["data"] == {"kept": "1", "changed": "new", "added": "4"}
    assert written.annotations == after["metadata"]["annotations"]
    for document in (before, after):
        del document["data"], document["metadata"]["annotations"]
        del document["metadata"]["resourceVersion"]
        document["metadata"].pop("managedFields", None)
    assert after == before
    kube.write_config_map(msgspec.structs.replace(written, data={}, binary_data={}, annotations={}))
    now = kube.read_config_map("yunikorn", "m")
    assert now is not None and not (now.data or now.binary_data or now.annotations)


@pytest.mark.parametrize("remembers", [True, False], ids=["remembered", "read again"])
def test_config_map_changed_since_its_read_is_not_written(
    sandbox: Sandbox, kube: KubeClient, remembers: bool
) -> None:
    make_config_map(sandbox)
    read = kube.read_config_map("yunikorn", "m")
    assert read is not None
    if not remembers:
        kube._originals.clear()
    assert kube.write_config_map(changed(read)).data["changed"] == "new"
    sandbox.edit("configmaps", "m", lambda item: item["data"].update(other="1"), "yunikorn")
    if not remembers:
        kube._originals.clear()
    with pytest.raises(KubeConflict, match="can't write ConfigMap yunikorn/m"):
        kube.write_config_map(read)
    now = sandbox.get("configmaps", "m", "yunikorn")
    assert now is not None and now["data"]["other"] == "1" and now["data"]["changed"] == "new"


def test_refused_write_changes_nothing(sandbox: Sandbox, kube: KubeClient) -> None:
    make_config_map(sandbox, immutable=True)
    read = kube.read_config_map("yunikorn", "m")
    assert read is not None and read.immutable
    with pytest.raises(KubeError, match="can't write ConfigMap yunikorn/m: "):
        kube.write_config_map(changed(read))


# --- volume claims ---------------------------------------------------------------------------


def make_claim(sandbox: Sandbox, name: str, volume: str, phase: str) -> None:
    sandbox.add_namespace("dev")
    sandbox.create({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "dev"},
        "spec": {"volumeName": volume} if volume else {}, "status": {"phase": phase},
    })  # fmt: skip


def make_volume(sandbox: Sandbox, name: str, zone: str) -> None:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    spec = {"nodeAffinity": affinity} if zone else {}
    metadata = {"name": name}
    sandbox.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
    )


def pods_with(*claims: str, node: str = "") -> tuple[Pod, ...]:
    shape = PodShape(request={})
    return tuple(
        Pod(namespace="dev", name=f"p-{claim}", shape=shape, claims=(claim,), node=node)
        for claim in claims
    )


def test_volume_claims_are_read_with_the_affinity_of_their_volumes(
    sandbox: Sandbox, kube: KubeClient
) -> None:
    make_claim(sandbox, "bound", "v1", "Bound")
    make_claim(sandbox, "anywhere", "v2", "Bound")
    make_claim(sandbox, "waiting", "", "Pending")
    make_claim(sandbox, "nobodys", "v1", "Bound")
    make_volume(sandbox, "v1", "east")
    make_volume(sandbox, "v2", "")
    sandbox.requests.clear()
    claims = kube.read_claims(pods_with("bound", "anywhere", "waiting", "missing"))
    assert not isinstance(claims, Unreadable)
    east = NodeSelectorTerm(expressions=(Requirement(key="zone", operator="In", values=("east",)),))
    assert sorted(claims, key=lambda claim: claim.name) == [
        Claim(namespace="dev", name="anywhere", phase="Bound"),
        Claim(namespace="dev", name="bound", phase="Bound", node_affinity=(east,)),
        Claim(namespace="dev", name="waiting", phase="Pending"),
    ]
    assert len(sandbox.requests.all()) == 2
    # dnm reads none if no pending pod names one.
    assert kube.read_claims(()) == kube.read_claims(pods_with("bound", node="k1")) == ()
    assert len(sandbox.requests.all()) == 2


def test_unreadable_claims_are_not_treated_as_missing(sandbox: Sandbox, kube: KubeClient) -> None:
    make_claim(sandbox, "bound", "v1", "Bound")
    sandbox.access.restrict({("list", "persistentvolumeclaims", "dev")})
    claims = kube.read_claims(pods_with("bound"))
    assert isinstance(claims, Unreadable)
    assert "permission to list persistentvolumes" in claims.error


# --- evictions -------------------------------------------------------------------------------


def add_bound_pod(sandbox: Sandbox, kube: KubeClient) -> Pod:
    sandbox.add_node("k1")
    sandbox.add_pods(1, "dev", labels={"app": "x"})
    sandbox.bind("pod-0", "k1", "dev")
    return kube.read_pods_on("k1")[0]


@pytest.mark.parametrize(
    ("owner", "stays", "is_work"),
    [
        pytest.param("apps/v1 ReplicaSet", False, True, id="evicted"),
        pytest.param("apps/v1 DaemonSet", True, False, id="a-daemon"),
        pytest.param("slinky.slurm.net/v1beta1 NodeSet", True, True, id="a-slurmd"),
        pytest.param("tenant.example/v1 NodeSet", False, True, id="a-tenants-own-kind-of-name"),
        pytest.param("tenant.example/v1 DaemonSet", False, True, id="a-tenants-own-daemon"),
        pytest.param("v1 DaemonSet", False, True, id="of-no-group"),
    ],
)
def test_owner_of_a_pod_decides_if_it_is_evicted(
    sandbox: Sandbox, kube: KubeClient, owner: str, stays: bool, is_work: bool
) -> None:
    """A pod of slurmd keeps a node from being reset. A tenant's pod must not look like one."""
    version, kind = owner.split()
    reference = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    sandbox.add_node("k1")
    sandbox.add_namespace("dev")
    sandbox.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "dev", "ownerReferences": [reference]},
            "spec": {"nodeName": "k1", "containers": [{"name": "c", "image": "i"}]},
        }
    )
    (pod,) = kube.read_pods_to_evict("k1")
    assert (pod.stays, pod.is_work) == (stays, is_work)


def test_eviction_of_a_deleted_pod_is_no_error(sandbox: Sandbox, kube: KubeClient) -> None:
    pod = add_bound_pod(sandbox, kube)
    assert kube.evict(pod) == ""
    sandbox.delete("pods", "pod-0", "dev")
    assert kube.evict(pod) == ""
    sandbox.fault("status", path="eviction", code=409, message="uid does not match")
    assert kube.evict(pod) == "", "another has the name by now"


def test_eviction_names_the_uid_of_the_pod() -> None:
    config = a_config()
    with ScriptedServer([answer({"kind": "Status"})]) as server:
        access = an_access(server.url)
        pod = msgspec.structs.replace(pods_with("x")[0], uid="u1")
        assert KubeClient(access, config).evict(pod) == ""
        (asked,) = server.asked
    body = msgspec.json.decode(asked.body)
    assert asked.path == "/api/v1/namespaces/dev/pods/p-x/eviction"
    assert body["deleteOptions"] == {"preconditions": {"uid": "u1"}}


@pytest.mark.parametrize(
    ("budgets", "why"),
    [
        ("a", "the disruption budget a does not allow one more"),
        # The server reports it with 500.
        ("ab", "it has more than one PodDisruptionBudget: remove one of them"),
    ],
)
def test_disruption_budget_that_refuses_is_named(
    sandbox: Sandbox, kube: KubeClient, budgets: str, why: str
) -> None:
    pod = add_bound_pod(sandbox, kube)
    for name in budgets:
        sandbox.create(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "dev"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
            }
        )
    assert why in kube.evict(pod)
    assert len(kube.read_pods_on("k1")) == 1


# --- permissions, time, version --------------------------------------------------------------


def test_permissions_are_checked_by_access_review(sandbox: Sandbox, kube: KubeClient) -> None:
    sandbox.access.restrict({("list", "pods", "dev"), ("create", "selfsubjectaccessreviews", "*")})
    assert can_i(kube.requests, "list", "pods", "dev")
    assert not can_i(kube.requests, "list", "pods", "")
    assert not can_i(kube.requests, "delete", "nodes", "")
    assert not can_i(kube.requests, "create", "pods", "dev", subresource="eviction")


def test_time_and_version_of_the_server_are_read(sandbox: Sandbox, kube: KubeClient) -> None:
    sandbox.clock.skew_seconds = 3600
    reported = read_server_time(kube.requests)
    assert reported.tzinfo is UTC and reported - datetime.now(UTC) > timedelta(minutes=50)
    assert read_version(kube.requests).startswith("v1.")
    assert kube.server.startswith("http://127.0.0.1:")


# --- fault points ----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_injected_fault_is_an_error_of_kubernetes(
    sandbox: Sandbox, kube: KubeClient, when: str
) -> None:
    def strike(point: str, moment: str) -> None:
        if (point, moment) in {("kube.patch_node", when), ("kube.load_access", when)}:
            raise OSError(5, "injected")

    sandbox.add_node("k1")
    with inject_faults(strike):
        with pytest.raises(KubeError, match=r"can't patch node k1: .*injected"):
            kube.patch_node("k1", cordon=True)
        with pytest.raises(KubeError, match=r"can't use the kubeconfig .*: .*injected"):
            KubeClient.connect(a_config(kubeconfig_path=sandbox.kubeconfig))
    node = kube.read_node("k1")
    assert node is not None and node.is_cordoned == (when == "after")


# --- events ----------------------------------------------------------------------------------


def an_event(**changes: Any) -> KubeEvent:
    values: dict[str, Any] = {
        "kind": "Node", "namespace": "", "name": "a001", "uid": "u1", "is_warning": False,
        "reason": "NodeLent", "action": "Lend", "note": "lent for root.dev",
        "time": datetime(2026, 3, 2, 12, 0, 0, 5, UTC),
    }  # fmt: skip
    return KubeEvent(**{**values, **changes})


def test_event_is_created_in_the_namespace_that_kubectl_reads(
    sandbox: Sandbox, kube: KubeClient
) -> None:
    kube.create_event(an_event())
    (results,) = sandbox.objects("events", "default")
    node = {"apiVersion": "v1", "kind": "Node", "name": "a001", "uid": "u1"}
    assert results["involvedObject"] == node
    assert results["eventTime"] == "2026-03-02T12:00:00.000005Z" and results["type"] == "Normal"
    assert (results["message"], results["reportingInstance"]) == ("lent for root.dev", "prod")
    kube.create_event(an_event(reason="NodeServing"))  # of the same moment
    assert len(sandbox.objects("events", "default")) == 2
    sandbox.add_namespace("dev")
    kube.create_event(an_event(kind="Pod", namespace="dev", name="p" * 240, is_warning=True))
    (results,) = sandbox.objects("events", "dev")
    assert results["involvedObject"]["namespace"] == "dev" and results["type"] == "Warning"
    assert len(results["metadata"]["name"]) <= 253


@pytest.mark.parametrize("status", [429, 403, 500])
def test_event_creation_is_not_retried(sandbox: Sandbox, kube: KubeClient, status: int) -> None:
    """The fault is injected once, so that a second attempt would succeed."""
    sandbox.fault("status", path="/events", code=status, times=1)
    with pytest.raises(KubeError, match="create an Event on Node a001"):
        kube.create_event(an_event())
    assert not sandbox.objects("events", "default")
