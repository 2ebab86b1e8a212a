"""Nodes with all fields of a real API server, also those that dnm does not read, and helpers for
their pods."""

from __future__ import annotations

import random

HEX = "0123456789abcdef"
TAIL = "bcdfghjklmnpqrstvwxz2456789"  # of names that Kubernetes generates


def word(generator: random.Random, letters: str, length: int) -> str:
    return "".join(generator.choices(letters, k=length))


def uid(generator: random.Random) -> str:
    text = f"{generator.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def instant(generator: random.Random) -> str:
    day, second = generator.randint(1, 28), generator.randrange(86400)
    return f"2026-05-{day:02d}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"


def managed(manager: str, at: str, fields: dict[str, object], sub: str) -> dict[str, object]:
    entry: dict[str, object] = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": at,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if sub:
        entry["subresource"] = sub
    return entry


def _fields(*names: str) -> dict[str, object]:
    return {f"f:{name}": {} for name in names}


_MANAGED_STATUS: dict[str, object] = {
    "f:status": {
        "f:conditions": {
            f'k:{{"type":"{kind}"}}': {
                ".": {},
                **_fields("lastProbeTime", "lastTransitionTime", "status", "type"),
            }
            for kind in ("ContainersReady", "Initialized", "Ready")
        },
        **_fields("containerStatuses", "hostIP", "hostIPs", "phase", "podIP", "startTime"),
    }
}


def node_document(generator: random.Random, number: int, images: list[str]) -> dict[str, object]:
    name = f"node-{number:05d}"
    size = {
        "cpu": "128",
        "ephemeral-storage": "901248000Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "263921236Ki",
        "pods": "250",
    }
    created = instant(generator)
    return {
        "metadata": {
            "name": name,
            "uid": uid(generator),
            "resourceVersion": str(generator.randrange(10**9)),
            "creationTimestamp": created,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "standard",
                "topology.kubernetes.io/zone": f"row-{number % 8}",
            },
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": [managed("kubelet", created, _MANAGED_STATUS, "status")],
        },
        "spec": {"podCIDR": "10.42.0.0/24", "podCIDRs": ["10.42.0.0/24"]},
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "lastHeartbeatTime": created,
                    "lastTransitionTime": created,
                    "reason": f"Kubelet{kind}",
                    "message": f"kubelet reports {kind}",
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "addresses": [
                {"type": "InternalIP", "address": "10.1.2.3"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": word(generator, HEX, 32),
                "systemUUID": uid(generator),
                "bootID": uid(generator),
                "kubeProxyVersion": "",
                "kernelVersion": "6.1.0-18-amd64",
                "osImage": "Debian GNU/Linux 12 (bookworm)",
                "containerRuntimeVersion": "containerd://1.7.13",
                "kubeletVersion": "v1.33.1",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [
                {
                    "names": [
                        f"registry.example.org/library/image-{pick}@sha256:{images[pick]}",
                        f"registry.example.org/library/image-{pick}:1.0",
                    ],
                    "sizeBytes": 10_000_000 + pick,
                }
                for pick in generator.sample(range(len(images)), 25)
            ],
        },
    }
