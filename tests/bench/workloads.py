"""The objects of Kueue that the static server lists: a ClusterQueue and a LocalQueue for each
namespace, and Workloads of thirty pods, admitted or waiting."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from tests.bench.cluster import NAMESPACES
from tests.bench.pods import Application, Place
from tests.queues.kueue.objects import (
    a_cluster_queue,
    a_flavor,
    a_local_queue,
    a_pod_set,
    a_workload,
    admitted,
    pending,
)

WORKLOADS = 2_000
WAITING = "waiting"  # the end of a variant's name in which half of the Workloads wait
_PODS = 30
_QUOTA = {"cpu": "24k", "memory": "96T"}  # what all Workloads use once they are admitted
_NO_FIT = "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor permanent"


def list_objects(variant: str, plural: str) -> bytes:
    """Returns the list of a kind as Kueue 0.19 serves it. `variant`: the cluster's name."""
    kind, items = {
        "resourceflavors": ("ResourceFlavorList", [a_flavor(), a_flavor("permanent")]),
        "clusterqueues": ("ClusterQueueList", [_cluster_queue(name) for name in NAMESPACES]),
        "localqueues": ("LocalQueueList", [a_local_queue(name, name) for name in NAMESPACES]),
        "cohorts": ("CohortList", []),
        "workloads": ("WorkloadList", _workloads(variant) if plural == "workloads" else []),
    }[plural]
    document = {"kind": kind, "apiVersion": "kueue.x-k8s.io/v1beta2",
                "metadata": {"resourceVersion": "1"}, "items": items}  # fmt: skip
    return msgspec.json.encode(document)


def _cluster_queue(name: str) -> dict[str, Any]:
    nothing = dict.fromkeys(_QUOTA, "0")
    return a_cluster_queue(name, {"permanent": _QUOTA, "lent": nothing})


def _workloads(variant: str) -> list[dict[str, Any]]:
    """Returns the Workloads. The waiting ones differ, and each requests more than dnm may lend."""
    usage = {"cpu": str(4 * _PODS), "memory": f"{16 * _PODS}G"}
    items = []
    for number in range(WORKLOADS):
        name, namespace = f"job-{number:05d}", NAMESPACES[number % len(NAMESPACES)]
        created = {"creationTimestamp": f"2026-05-01T{number // 3600:02d}:{number // 60 % 60:02d}:"
                                        f"{number % 60:02d}Z", "uid": name}  # fmt: skip
        template = _template(number, namespace)
        if variant.endswith(WAITING) and number % 2:
            pods = a_pod_set(50_000 + number, template=template)
            items.append(a_workload(name, [pods], namespace, status=pending(_NO_FIT), **created))
        else:
            status = admitted(namespace, "permanent", _PODS, usage)
            pods = a_pod_set(_PODS, template=template)
            items.append(a_workload(name, [pods], namespace, status=status, **created))
    return items


def _template(number: int, namespace: str) -> dict[str, Any]:
    """Returns a pod template like those of the cluster's pods, with the same requests in each."""
    chance = random.Random(number)
    document = Application("workloads", number, namespace).document(
        chance, Place(number, "", "Pending")
    )
    spec = document["spec"]
    for containers in (spec["containers"], spec.get("initContainers", [])):
        for container in containers:
            container["resources"] = {}
    spec["containers"][0]["resources"] = {"requests": {"cpu": "4", "memory": "16G"}}
    metadata = {key: document["metadata"].get(key, {}) for key in ("labels", "annotations")}
    return {"metadata": metadata, "spec": spec}
