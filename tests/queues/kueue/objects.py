"""Objects of Kueue 0.19.2 as a real API server printed them, reduced to the fields that matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

IN_QUEUE = ("dynamic-node-manager/lent-quota-in", "cluster-queue")
CONTROLLER = "dynamic-node-manager/lent-nodes"
API = "kueue.x-k8s.io/v1beta2"
LABEL = "example.org/lent"
TAINT = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
TOLERATION = {**TAINT, "operator": "Equal"}
NODE_TYPE = f"""
[node_type:a]
labels = {LABEL}=true
taints = {LABEL}=true:NoSchedule
"""
Quotas = Mapping[str, Mapping[str, str]]  # flavor -> resource -> quantity


def an_object(kind: str, name: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    status = more.pop("status", None)
    manifest = {"apiVersion": API, "kind": kind, "metadata": {"name": name, **more},
                "spec": dict(spec)}  # fmt: skip
    return {**manifest, "status": status} if status is not None else manifest


def a_group(quotas: Quotas, **limits: str) -> dict[str, Any]:
    """Returns a resource group; `limits` are borrowingLimit or lendingLimit of the last flavor."""
    flavors = [
        {"name": flavor, "resources": [
            {"name": name, "nominalQuota": text, **(limits if flavor == list(quotas)[-1] else {})}
            for name, text in amounts.items()
        ]}
        for flavor, amounts in quotas.items()
    ]  # fmt: skip
    covered = list(next(iter(quotas.values())))
    return {"coveredResources": covered, "flavors": flavors}


def a_cluster_queue(name: str, quotas: Quotas, **spec: Any) -> dict[str, Any]:
    """Returns an active ClusterQueue in the Cohort that dnm writes."""
    active = {"type": "Active", "status": "True", "reason": "Ready",
              "message": "Can admit new workloads"}  # fmt: skip
    fields = {"cohortName": f"dnm-{name}", "namespaceSelector": {},
              "queueingStrategy": "BestEffortFIFO",
              "resourceGroups": [a_group(quotas)]}  # fmt: skip
    fields = {key: value for key, value in {**fields, **spec}.items() if value is not None}
    return an_object("ClusterQueue", name, fields, status={"conditions": [active]})


def in_queue(queue: dict[str, Any]) -> dict[str, Any]:
    """Returns the ClusterQueue with the annotation by which it has its lent quota itself."""
    return {**queue, "metadata": {**queue["metadata"], "annotations": dict([IN_QUEUE])}}


def provided(queue: dict[str, Any]) -> dict[str, Any]:
    """Returns the ClusterQueue with the annotation that its lent quota is in a CapacityProvider."""
    return {**queue, "metadata": {**queue["metadata"],
                                  "annotations": {IN_QUEUE[0]: "capacity-provider"}}}  # fmt: skip


def a_provider(queue: str, **spec: Any) -> dict[str, Any]:
    """Returns the CapacityProvider of a ClusterQueue, as an administrator creates it."""
    fields = {"controllerName": CONTROLLER, "orchestratedFlavors": [{"name": "lent"}], **spec}
    return {"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "CapacityProvider",
            "metadata": {"name": f"dnm-{queue}"}, "spec": fields}  # fmt: skip


def lent_texts(queue: Mapping[str, Any]) -> dict[str, str]:
    """Returns the quota of lent nodes in a ClusterQueue."""
    (rows,) = [flavor["resources"] for group in queue["spec"]["resourceGroups"]
               for flavor in group["flavors"] if flavor["name"] == "lent"]  # fmt: skip
    return {row["name"]: row["nominalQuota"] for row in rows}


def a_flavor(name: str = "lent", **spec: Any) -> dict[str, Any]:
    fields = {"nodeLabels": {LABEL: "true"}, "nodeTaints": [TAINT], "tolerations": [TOLERATION]}
    return an_object("ResourceFlavor", name, {**fields, **spec} if name == "lent" else spec)


def a_pod_set(count: int, cpu: str = "4", memory: str = "16G", **more: Any) -> dict[str, Any]:
    spec = {"restartPolicy": "Never", **more.pop("spec", {})}
    container = {"name": "c", "image": "registry.example/x:1",
                 "resources": {"requests": {"cpu": cpu, "memory": memory}}}  # fmt: skip
    template = {"metadata": {}, "spec": {"containers": [container], **spec}}
    return {"name": "main", "count": count, "template": template, **more}


def a_workload(
    name: str, pod_sets: Sequence[Mapping[str, Any]], namespace: str = "dev", **more: Any
) -> dict[str, Any]:
    """Returns a Workload, by default without any condition, as most waiting ones are."""
    spec = {"active": True, "priority": more.pop("priority", 0), "queueName": "q",
            "podSets": list(pod_sets), **more.pop("spec", {})}  # fmt: skip
    return an_object("Workload", name, spec, namespace=namespace, **more)


def pending(message: str) -> dict[str, Any]:
    """Returns the status of a Workload that Kueue has tried to admit."""
    return {"conditions": [
        {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message},
        {"type": "PodsReady", "status": "False", "reason": "WaitForStart"},
    ]}  # fmt: skip


def admitted(queue: str, flavor: str, count: int, usage: Mapping[str, str]) -> dict[str, Any]:
    """Returns the status of an admitted Workload with one pod set."""
    assignment = {"name": "main", "count": count, "resourceUsage": dict(usage),
                  "flavors": dict.fromkeys(usage, flavor)}  # fmt: skip
    return {
        "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"},
                       {"type": "Admitted", "status": "True", "reason": "Admitted"}],
    }  # fmt: skip


def a_local_queue(cluster_queue: str, namespace: str = "dev", **spec: Any) -> dict[str, Any]:
    fields = {"clusterQueue": cluster_queue, **spec}
    return an_object("LocalQueue", "q", fields, namespace=namespace)
