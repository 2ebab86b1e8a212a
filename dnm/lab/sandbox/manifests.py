"""Manifests of nodes, pods and workloads, as sites write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dnm.lab.sandbox.store import Object

YUNIKORN = "yunikorn"
QUEUE = "yunikorn.apache.org/queue"
APPLICATION = "yunikorn.apache.org/app-id"
RUN_SECONDS = "sandbox/run-seconds"
"""A pod with this annotation ends by itself after so many seconds of running."""


def node_manifest(
    name: str,
    allocatable: Mapping[str, str],
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
    capacity: Mapping[str, str] | None = None,
) -> Object:
    """Returns a Node. `allocatable` has Kubernetes' names and quantities; `pods` is 110 by default.
    `capacity` has the amounts that differ from `allocatable`."""
    amounts = {"pods": "110", **allocatable}
    total = {**amounts, **(capacity or {})}
    own_labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})}
    spec: Object = {"taints": [dict(taint) for taint in taints]} if taints else {}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": own_labels},
        "spec": spec,
        "status": {
            "capacity": total, "allocatable": amounts, "conditions": ready_conditions(ready),
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {"kubeletVersion": "v1.30.0", "containerRuntimeVersion": "sandbox://1",
                         "operatingSystem": "linux", "architecture": "amd64", "osImage": "sandbox",
                         "kernelVersion": "0", "machineID": name, "systemUUID": name,
                         "bootID": name, "kubeProxyVersion": ""},
        },
    }  # fmt: skip


def ready_conditions(ready: bool) -> list[Object]:
    reason = "KubeletReady" if ready else "KubeletNotReady"
    message = "kubelet is ready" if ready else "container runtime is not ready"
    return [{"type": "Ready", "status": "True" if ready else "False", "reason": reason,
             "message": message}]  # fmt: skip


def set_ready(node: Object, ready: bool) -> None:
    """Sets the Ready condition of a Node as a kubelet does, and leaves its other conditions."""
    status = node["status"]
    conditions = [item for item in status.get("conditions") or () if item["type"] != "Ready"]
    status["conditions"] = [*ready_conditions(ready), *conditions]


def is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def pod_manifest(
    name: str,
    namespace: str,
    requests: Mapping[str, str],
    *,
    queue: str = "",
    spec: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """Returns a pod of YuniKorn in `queue`, or of the default scheduler. `spec` adds fields."""
    own_labels = dict(labels or {})
    own_spec: Object = {"restartPolicy": "Never"}
    if queue:
        own_labels = {QUEUE: queue, APPLICATION: f"{namespace}-app", **own_labels}
        own_spec["schedulerName"] = YUNIKORN
    container = {"name": "main", "image": "busybox", "command": ["sleep", "infinity"],
                 "resources": {"requests": dict(requests)}}  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": own_labels,
                     "annotations": dict(annotations or {})},
        "spec": {**own_spec, "containers": [container], **(spec or {})},
    }  # fmt: skip


def deployment_manifest(name: str, namespace: str, replicas: int, pod: Object) -> Object:
    """Returns a Deployment; its template is the manifest `pod`."""
    labels = {"app": name, **pod["metadata"]["labels"]}
    spec = {**pod["spec"], "restartPolicy": "Always"}
    template = {"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]},
                "spec": spec}  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                 "template": template},
    }  # fmt: skip


def config_map_manifest(name: str, namespace: str, data: Mapping[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace}, "data": dict(data)}  # fmt: skip


def kubeconfig(url: str) -> Object:
    """Returns a kubeconfig as a value that can be written as JSON, which is valid YAML."""
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": {"server": url}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
        "users": [{"name": "sandbox", "user": {"token": "sandbox"}}],
    }  # fmt: skip
