"""The objects in a real cluster, for an administrator's client, and their reset after a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.real.http_api import Api, ApiError, Json
from tests.real.programs import Patience, RigError

REST = "http://127.0.0.1:9080"  # YuniKorn's port is fixed
QUEUES = (Path(__file__).parent / "queues.yaml").read_text()
NAMESPACES = ("yunikorn", "dev", "notebook")
SERVERS_OWN = ("default", "yunikorn")
# The registry of the instance `prod` in Kubernetes, and its Lease.
SECRET = "/api/v1/namespaces/dnm/secrets/dnm-prod"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/dnm/leases/dnm-prod"
CPU, MEMORY = 64, "256Gi"


class Cluster:
    """A cluster. `api` is the client of its administrator, `rest` that of YuniKorn's REST API."""

    def __init__(self) -> None:
        self.rest = Api(REST)
        self.api: Api = Api("")

    def wait_for(self, is_so: Callable[[], Any], condition: str, seconds: float = 60.0) -> None:
        """Waits until `is_so`. Raises RigError after so many seconds in which nothing changed."""
        patience = self.patience(seconds)
        while not is_so():
            if patience.is_over():
                raise RigError(f"not true after {seconds:.0f} s without progress: {condition}")
            time.sleep(0.1)

    def patience(self, seconds: float) -> Patience:
        return Patience(seconds, self.progress)

    def progress(self) -> object:
        """Returns pods, nodes and queue document: while these change, a test makes progress."""
        pods = self.api.get("/api/v1/pods")["items"]
        versions = [pod["metadata"]["resourceVersion"] for pod in pods]
        maps = self.api.get(self.config_map.rpartition("/")[0])["items"]
        documents = [document["metadata"]["resourceVersion"] for document in maps]
        return versions, sorted(self.ready_nodes()), documents

    def make_namespaces(self) -> None:
        for name in NAMESPACES:
            self.create("/api/v1/namespaces", {"metadata": {"name": name}})

    def create(self, path: str, body: Json) -> Any:
        """Creates the object and returns it; an existing one stays unchanged."""
        try:
            return self.api.post(path, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        return self.api.get(f"{path}/{body['metadata']['name']}")

    def add_node(self, name: str, cpu: int = CPU, memory: str = MEMORY, **labels: str) -> None:
        """Adds a Node as a kubelet registers it; kwok makes it Ready and renews its Lease."""
        amounts = {"cpu": str(cpu), "memory": memory, "pods": "250"}
        self.create(
            "/api/v1/nodes",
            {
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
                    | {key.replace("__", "/"): value for key, value in labels.items()},
                },
                "status": {"allocatable": amounts, "capacity": amounts},
            },
        )

    def ready_nodes(self) -> set[str]:
        return {
            node["metadata"]["name"]
            for node in self.api.get("/api/v1/nodes")["items"]
            for condition in node["status"].get("conditions", ())
            if condition["type"] == "Ready" and condition["status"] == "True"
        }

    def nodes(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.api.get("/api/v1/nodes")["items"]}

    def pods(self, namespace: str) -> list[Json]:
        return list(self.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"])

    def running(self, namespace: str) -> int:
        return sum(1 for pod in self.pods(namespace) if pod["status"].get("phase") == "Running")

    # --- YuniKorn --------------------------------------------------------------------------

    config_map = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"

    def restore_queues(self) -> None:
        """Restores YuniKorn's original ConfigMap, unless it is unchanged."""
        result, wanted = self.api.get(self.config_map), self.queues_map(QUEUES)
        is_same = result["data"] == wanted["data"] and not result.get("immutable")
        if not is_same or result["metadata"].get("annotations"):
            self.write_queues(QUEUES)

    def queues_map(self, text: str) -> Json:
        return {
            "metadata": {"name": "yunikorn-configs", "labels": {"app": "yunikorn"}},
            "data": {"service.schedulingInterval": "1s", "queues.yaml": text},
        }

    def write_queues(self, text: str) -> None:
        """Replaces YuniKorn's ConfigMap and its annotations, even if it is immutable."""
        body = self.queues_map(text)
        try:
            self.api.put(self.config_map, body)
        except ApiError as error:
            if error.code not in (404, 422):
                raise
            self.api.delete(self.config_map)
            self.api.post(self.config_map.rpartition("/")[0], body)

    def queues_text(self) -> str:
        return str(self.api.get(self.config_map)["data"]["queues.yaml"])

    def queue(self, path: str) -> Json:
        """Returns the scheduler's state of a queue; {} if it has no such queue."""
        rows: list[Json] = [self.rest.get("/ws/v1/partition/default/queues")]
        while rows:
            queue = rows.pop()
            if queue["queuename"] == path:
                return queue
            rows += queue.get("children") or []
        return {}

    # --- between two tests ---------------------------------------------------------------------

    def remove_guards(self) -> None:
        """Removes what a test left that could prevent deletions: webhooks, policies and flow
        schemas; also its registry."""
        for path in (
            "v1/validatingwebhookconfigurations",
            "v1/validatingadmissionpolicybindings",
            "v1/validatingadmissionpolicies",
            "v1beta1/mutatingadmissionpolicybindings",
            "v1beta1/mutatingadmissionpolicies",
        ):
            self.api.ask("DELETE", f"/apis/admissionregistration.k8s.io/{path}")
        flows = "/apis/flowcontrol.apiserver.k8s.io/v1"
        self.api.delete(f"{flows}/flowschemas/rig")
        self.api.delete(f"{flows}/prioritylevelconfigurations/rig")
        self.api.delete(SECRET)
        self.api.delete(LEASE)

    def namespaces(self) -> list[str]:
        """Returns all namespaces except those of Kubernetes and the servers."""
        result = self.api.get("/api/v1/namespaces")["items"]
        names = [namespace["metadata"]["name"] for namespace in result]
        return [name for name in names if name not in SERVERS_OWN and not name.startswith("kube-")]

    def remove_work(self) -> None:
        for namespace in self.namespaces():
            for kind in (
                f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
                f"/apis/apps/v1/namespaces/{namespace}/deployments",
                f"/apis/apps/v1/namespaces/{namespace}/replicasets",
                f"/apis/apps/v1/namespaces/{namespace}/statefulsets",
                f"/apis/apps/v1/namespaces/{namespace}/daemonsets",
                f"/apis/batch/v1/namespaces/{namespace}/jobs",
            ):
                self.api.ask("DELETE", kind + "?propagationPolicy=Background")
            self.remove_pods(namespace)
        for pod in self.api.get("/api/v1/pods")["items"]:
            metadata = pod["metadata"]
            raise RigError(f"pod {metadata['namespace']}/{metadata['name']} belongs to no test")

    def remove_pods(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"
        patience = self.patience(30)
        while pods := self.pods(namespace):
            for pod in pods:
                if pod["metadata"].get("finalizers"):
                    name = pod["metadata"]["name"]
                    with suppress(ApiError):  # its controller may have removed the pod
                        self.api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})
            self.api.ask("DELETE", path, {"gracePeriodSeconds": 0, "kind": "DeleteOptions",
                                          "apiVersion": "v1"})  # fmt: skip
            if patience.is_over():
                raise RigError(f"namespace {namespace} still has {len(pods)} pods")

    def restore_node(self, name: str) -> None:
        """Uncordons the node and restores its size, without taints and annotations of a test."""
        self.add_node(name)
        amounts = {"cpu": str(CPU), "memory": MEMORY, "pods": "250"}
        self.api.patch(
            f"/api/v1/nodes/{name}",
            {"spec": {"unschedulable": None, "taints": None}, "metadata": {"annotations": None}},
        )
        self.api.patch(
            f"/api/v1/nodes/{name}/status", {"status": {"allocatable": amounts}}, "strategic"
        )

    def has_ledger(self) -> bool:
        annotations = self.api.get(self.config_map)["metadata"].get("annotations", {})
        return "dynamic-node-manager/ledger" in annotations

    def is_empty(self) -> bool:
        root = self.queue("root")
        capacity = root.get("maxResource", {})
        return (
            not any((root.get("allocatedResource") or {}).values())
            and not any((root.get("pendingResource") or {}).values())
            and capacity.get("vcore") == 2 * CPU * 1000
        )
