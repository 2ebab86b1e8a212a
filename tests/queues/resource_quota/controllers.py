"""A StatefulSet in a namespace with a ResourceQuota in the sandbox. A test plays what the API
server's quota admission and kube-controller-manager do."""

from __future__ import annotations

from typing import Any

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from tests.builders import a_config

CPU, MEMORY = 4, 16  # of a pod, in cores and Gi
QUOTA, OWNER = "course", "workshop"


class Controllers:
    """The controllers: they create pods while the quota permits. With `is_asleep`, the workload
    controller waits for its next try, and only the quota's status is updated."""

    def __init__(self, sandbox: Sandbox, replicas: int, pods_of_quota: int) -> None:
        self.sandbox, self.is_asleep, self._number = sandbox, False, 0
        self.added: dict[str, Any] = {}  # fields that an admission policy adds to new pods
        self.hard = {
            "requests.cpu": str(CPU * pods_of_quota),
            "requests.memory": f"{MEMORY * pods_of_quota}Gi",
        }
        quota = {"apiVersion": "v1", "kind": "ResourceQuota",
                 "metadata": {"name": QUOTA, "namespace": "dev"}}  # fmt: skip
        # By a request, so that the API server records who has written the limits, and when.
        client = KubeClient.connect(a_config(kubeconfig_path=sandbox.kubeconfig))
        body = {**quota, "spec": {"hard": dict(self.hard)}}
        client.requests.session.write("POST", "/api/v1/namespaces/dev/resourcequotas", body)
        sandbox.create(stateful_set(replicas))
        self.sync()

    def apply(self) -> None:
        """Applies the manifest of the quota again, as a client-side `kubectl apply`."""
        client = KubeClient.connect(a_config(kubeconfig_path=self.sandbox.kubeconfig))
        patch = {"spec": {"hard": dict(self.hard)}}
        client.typed_objects.patch_object("ResourceQuota", "dev", QUOTA, patch)

    @property
    def quota(self) -> Any:
        return self.sandbox.get("resourcequotas", QUOTA, "dev")

    @property
    def owner(self) -> Any:
        return self.sandbox.get("statefulsets", OWNER, "dev")

    def pods(self) -> list[Any]:
        return [pod for pod in self.sandbox.objects("pods", "dev")
                if pod["status"].get("phase") not in ("Succeeded", "Failed")]  # fmt: skip

    def sync(self) -> None:
        wanted, there = self.owner["spec"]["replicas"], len(self.pods())
        admitted = int(self.quota["spec"]["hard"]["requests.cpu"]) // CPU
        create = 0 if self.is_asleep else max(min(wanted, admitted) - there, 0)
        for _ in range(create):
            self._number += 1
            self.sandbox.add_pods(1, "dev", cpu=str(CPU), memory=f"{MEMORY}Gi",
                                  name=f"{OWNER}-{self._number}", spec=self.added)  # fmt: skip
        there += create

        def of_owner(item: Any) -> None:
            item["status"] = {"replicas": there}

        def of_quota(item: Any) -> None:
            used = {"requests.cpu": str(CPU * there), "requests.memory": f"{MEMORY * there}Gi"}
            item["status"] = {"hard": dict(item["spec"]["hard"]), "used": used}

        self.sandbox.edit("statefulsets", OWNER, of_owner, "dev")
        self.sandbox.edit("resourcequotas", QUOTA, of_quota, "dev")
        for pod in self.pods():
            if not pod["spec"].get("nodeName"):
                self.sandbox.edit("pods", pod["metadata"]["name"], report_unschedulable, "dev")

    def scale(self, replicas: int) -> None:
        def change(item: Any) -> None:
            item["spec"]["replicas"] = replicas

        self.sandbox.edit("statefulsets", OWNER, change, "dev")
        names = [pod["metadata"]["name"] for pod in self.pods()]
        for name in names[replicas:]:
            self.sandbox.delete("pods", name, "dev")


def report_unschedulable(pod: Any) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["status"]["conditions"] = [condition]


def stateful_set(replicas: int) -> dict[str, Any]:
    requests = {"cpu": str(CPU), "memory": f"{MEMORY}Gi"}
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    template = {"metadata": {"labels": {"app": OWNER}}, "spec": {"containers": [container]}}
    selector = {"matchLabels": {"app": OWNER}}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": OWNER, "namespace": "dev"}, "spec": spec}  # fmt: skip
