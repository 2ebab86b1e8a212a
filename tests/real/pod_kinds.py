"""Pods of every kind for which YuniKorn has a special rule of counting, with later changes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.real.http_api import Json
from tests.real.rig import Rig
from tests.real.site import pod

GIB = 2**30
Act = Callable[[Rig, str], None]


def nothing(rig: Rig, namespace: str) -> None:
    pass


@dataclass(frozen=True)
class Kind:
    """A kind of pods. `pods` makes their manifests for a queue, `act` changes them once bound.

    `bound` is the number of pods that get a node; the test waits for so many."""

    name: str
    pods: Callable[[str], list[Json]]
    act: Act = nothing
    bound: int = 1


def container(name: str, cpu: str, memory: str, **more: Any) -> Json:
    return {
        "name": name,
        "image": "none",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
        **more,
    }


def single(
    name: str, cpu: str = "2", memory: str = "3Gi", **spec: Any
) -> Callable[[str], list[Json]]:
    return lambda queue: [pod(name, queue, cpu, memory, **spec)]


def sidecar(cpu: str, memory: str) -> Json:
    return container("side", cpu, memory, restartPolicy="Always")


def set_status(name: str, status: Json) -> Act:
    def act(rig: Rig, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        rig.api.patch(path, {"status": status})

    return act


def resized(name: str, cpu: str, allocated: str, **more: Any) -> Act:
    """Returns a change: a container requests `cpu`, and the kubelet still reports `allocated`."""

    def act(rig: Rig, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        has = {"cpu": allocated, "memory": "3Gi"}
        statuses = rig.api.get(path)["status"]["containerStatuses"]
        statuses[0].update(allocatedResources=has, resources={"requests": has})
        set_status(name, {"containerStatuses": statuses})(rig, namespace)
        wanted = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "3Gi"}}}
        rig.api.patch(f"{path}/resize", {"spec": {"containers": [wanted]}}, "strategic")
        if more:
            set_status(name, more)(rig, namespace)

    return act


def deleted(name: str) -> Act:
    def act(rig: Rig, namespace: str) -> None:
        rig.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")

    return act


def gang(name: str, members: int, made: int, cpu: str) -> Callable[[str], list[Json]]:
    """Returns a gang with one task group, of which `made` members already have pods."""

    def make(queue: str) -> list[Json]:
        group = {
            "name": "workers", "minMember": members,
            "minResource": {"cpu": cpu, "memory": "1Gi"},
        }  # fmt: skip
        annotations = {
            "yunikorn.apache.org/task-group-name": "workers",
            "yunikorn.apache.org/task-groups": json.dumps([group]),
        }
        application = {"applicationId": f"{name}-{secrets.token_hex(4)}"}
        return [
            pod(f"{name}-{number}", queue, cpu, "1Gi", labels=application, annotations=annotations)
            for number in range(made)
        ]

    return make


def daemons(rig: Rig, namespace: str) -> None:
    """Creates a DaemonSet that YuniKorn schedules: one pod on each of the two nodes."""
    manifest = pod("daemon", f"root.sums.{namespace}", "1", "1Gi")
    labels = {**manifest["metadata"]["labels"], "app": "daemon"}
    rig.api.post(
        f"/apis/apps/v1/namespaces/{namespace}/daemonsets",
        {
            "metadata": {"name": "daemon"},
            "spec": {
                "selector": {"matchLabels": {"app": "daemon"}},
                "template": {"metadata": {"labels": labels}, "spec": manifest["spec"]},
            },
        },
    )
    rig.wait_for(lambda: rig.running(namespace) == 2, "the DaemonSet's pods run")


def mirror(rig: Rig, namespace: str) -> None:
    """Creates a static pod as its kubelet reports it: bound from the start, and not YuniKorn's."""
    manifest = pod("static", f"root.sums.{namespace}", "1", "1Gi", nodeName="k1")
    manifest["spec"]["schedulerName"] = "default-scheduler"
    manifest["metadata"]["annotations"] = {
        "kubernetes.io/config.mirror": "abc",
        "kubernetes.io/config.source": "file",
    }
    uid = rig.api.get("/api/v1/nodes/k1")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "k1", "uid": uid, "controller": True}
    manifest["metadata"]["ownerReferences"] = [owner]
    rig.api.post(f"/api/v1/namespaces/{namespace}/pods", manifest)


def make_runtime_class(rig: Rig) -> None:
    """Creates a RuntimeClass that adds a quarter of a core to each pod."""
    rig.create(
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "metadata": {"name": "sandboxed"},
            "handler": "sandboxed",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "512Mi"}},
        },
    )


KINDS = (
    Kind("plain", single("plain")),
    Kind("best-effort", single("best", containers=[{"name": "main", "image": "none"}])),
    Kind(
        "limits-only",
        single(
            "limits",
            containers=[
                {"name": "main", "image": "none",
                 "resources": {"limits": {"cpu": "1500m", "memory": "2G"}}}
            ],
        ),
    ),
    Kind(
        "init",
        single("init", initContainers=[container("a", "5", "1Gi"), container("b", "1", "6Gi")]),
    ),
    Kind("sidecar", single("sidecar", initContainers=[sidecar("4", "8Gi")])),
    Kind(
        "sidecar-and-init",
        single("both", initContainers=[sidecar("1", "2Gi"), container("a", "6", "1Gi")]),
    ),
    Kind(
        "init-and-sidecar",
        single("both", initContainers=[container("a", "6", "1Gi"), sidecar("5", "2Gi")]),
    ),
    Kind("overhead", single("overhead", runtimeClassName="sandboxed")),
    Kind("pod-level", single("level", resources={"requests": {"cpu": "7", "memory": "9Gi"}})),
    Kind("daemonset", lambda queue: [], daemons, 0),
    Kind("mirror", lambda queue: [], mirror, 0),
    Kind("gang", gang("gang", 3, 1, "2"), bound=3),
    Kind("gang-whole", gang("whole", 2, 4, "1"), bound=4),
    Kind("gang-waits", gang("wide", 3, 1, "70"), bound=0),
    Kind("waits", single("wide", "70", "3Gi"), bound=0),
    Kind("gated", single("gated", schedulingGates=[{"name": "example.org/later"}]), bound=0),
    Kind("resized-down", single("less"), resized("less", "1", "2")),
    Kind("resized-up", single("more"), resized("more", "4", "2")),
    Kind(
        "resize-infeasible",
        single("never"),
        resized(
            "never", "60", "2",
            conditions=[
                {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
            ],
        ),
    ),
    Kind("terminating", single("slow"), deleted("slow")),
    Kind("succeeded", single("done"), set_status("done", {"phase": "Succeeded"})),
    Kind("failed", single("bad"), set_status("bad", {"phase": "Failed"})),
)  # fmt: skip
