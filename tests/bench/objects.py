"""Pods and nodes with all that a real API server says of them, and that nobody asked for."""

from __future__ import annotations

import random
from dataclasses import dataclass

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


@dataclass(frozen=True)
class MadePod:
    """What differs between pods."""

    name: str
    namespace: str
    application: str
    uid: str
    created: str
    node: str
    phase: str
    shape: tuple[str, str]
    owner: str
    volume: str
    image: str
    environment: int

    def document(self) -> dict[str, object]:
        return {"metadata": self._metadata(), "spec": self._spec(), "status": self._status()}

    @property
    def _is_daemon(self) -> bool:
        return self.owner == "DaemonSet"

    def _metadata(self) -> dict[str, object]:
        hash_ = self.image[:10]
        labels = {
            "app.kubernetes.io/name": self.application,
            "app.kubernetes.io/part-of": "workload",
            "applicationId": self.application,
            "pod-template-hash": hash_,
            "queue": f"root.site.{self.namespace}",
        }
        if self._is_daemon:
            labels = {"k8s-app": self.application, "controller-revision-hash": hash_}
        owner = {
            "apiVersion": "batch/v1" if self.owner == "Job" else "apps/v1",
            "kind": self.owner,
            "name": f"{self.application}-{hash_}",
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {
            "name": self.name,
            "generateName": f"{self.application}-{hash_}-",
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": str(int(self.uid[:8], 16)),
            "creationTimestamp": self.created,
            "labels": labels,
            "annotations": {
                "cni.example.org/podIP": "10.42.17.23/32",
                "yunikorn.apache.org/user.info": '{"user":"nobody","groups":["users"]}',
            },
            "ownerReferences": [owner],
            "managedFields": [
                _managed("kube-controller-manager", self.created, _MANAGED_SPEC, ""),
                _managed("kubelet", self.created, _MANAGED_STATUS, "status"),
            ],
        }

    @property
    def _resources(self) -> dict[str, object]:
        cpu, memory = self.shape
        return {"limits": {"memory": memory}, "requests": {"cpu": cpu, "memory": memory}}

    def _spec(self) -> dict[str, object]:
        spec: dict[str, object] = {
            "volumes": [{"name": self.volume, "projected": _PROJECTED}],
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example.org/{self.namespace}/{self.application}:1.4.2",
                    "args": ["serve", f"--name={self.application}"],
                    "env": [
                        {"name": f"SETTING_{number}", "value": self.image[number : number + 20]}
                        for number in range(self.environment)
                    ],
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "resources": self._resources,
                    "volumeMounts": [
                        {
                            "name": self.volume,
                            "readOnly": True,
                            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        }
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler" if self._is_daemon else "yunikorn",
            "tolerations": _TOLERATIONS,
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        if self.node:
            spec["nodeName"] = self.node
        return spec

    def _status(self) -> dict[str, object]:
        if not self.node:
            return {
                "phase": "Pending",
                "conditions": [self._condition("PodScheduled", "False")],
                "qosClass": "Burstable",
            }
        kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        status: dict[str, object] = {
            "phase": self.phase,
            "conditions": [self._condition(kind, "True") for kind in (*kinds, "PodScheduled")],
            "hostIP": "10.1.2.3",
            "hostIPs": [{"ip": "10.1.2.3"}],
            "startTime": self.created,
            "qosClass": "Burstable",
        }
        if self.phase != "Pending":
            status["podIP"] = "10.42.17.23"
            status["podIPs"] = [{"ip": "10.42.17.23"}]
            status["containerStatuses"] = [self._container_status()]
        return status

    def _condition(self, kind: str, value: str) -> dict[str, object]:
        return {
            "type": kind,
            "status": value,
            "observedGeneration": 1,
            "lastProbeTime": None,
            "lastTransitionTime": self.created,
        }

    def _container_status(self) -> dict[str, object]:
        cpu, memory = self.shape
        state: dict[str, object] = {"running": {"startedAt": self.created}}
        if self.phase == "Succeeded":
            state = {
                "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": self.created}
            }
        return {
            "name": "main",
            "state": state,
            "lastState": {},
            "ready": self.phase == "Running",
            "restartCount": 0,
            "image": f"registry.example.org/{self.namespace}/{self.application}:1.4.2",
            "imageID": f"registry.example.org/{self.namespace}@sha256:{self.image}",
            "containerID": f"containerd://{self.image}",
            "started": self.phase == "Running",
            "allocatedResources": {"cpu": cpu, "memory": memory},
            "resources": self._resources,
        }


def _managed(manager: str, at: str, fields: dict[str, object], sub: str) -> dict[str, object]:
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


_MANAGED_SPEC: dict[str, object] = {
    "f:metadata": {
        "f:generateName": {},
        "f:labels": {".": {}, **_fields("applicationId", "queue")},
        "f:ownerReferences": {".": {}, 'k:{"uid":"owner"}': {}},
    },
    "f:spec": {
        "f:containers": {
            'k:{"name":"main"}': {
                ".": {},
                **_fields("image", "imagePullPolicy", "name", "terminationMessagePath"),
                "f:resources": {".": {}, "f:requests": {".": {}, **_fields("cpu", "memory")}},
            }
        },
        **_fields("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName"),
        **_fields("securityContext", "terminationGracePeriodSeconds"),
    },
}
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
_PROJECTED: dict[str, object] = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ],
    "defaultMode": 420,
}
_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for taint in ("not-ready", "unreachable")
]


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
            "managedFields": [_managed("kubelet", created, _MANAGED_STATUS, "status")],
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
