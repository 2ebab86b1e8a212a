"""Pods with the variety of real clusters: five thousand applications at 150,000 pods, each with its
own requests, environment, owner, volumes, constraints and way to name its queue.

A pod has 3 to 14 kB, most 5 to 12. A third is managedFields, which repeat every field of the spec,
as the API server writes them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.bench.objects import HEX, TAIL, instant, managed, uid, word

Object = dict[str, Any]
PODS_AN_APPLICATION = 30
_OWNERS = ("ReplicaSet", "ReplicaSet", "Job", "StatefulSet")
_WORDS = (
    "CACHE", "DATABASE", "ENDPOINT", "FEATURE", "GATEWAY", "INDEX", "LEVEL", "LIMIT", "MODEL",
    "PATH", "PORT", "QUEUE", "REGION", "SECRET", "STREAM", "TIMEOUT", "TOKEN", "URL", "WORKERS",
)  # fmt: skip
_READY = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_OWN_IP = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}


@dataclass(frozen=True)
class Place:
    """The fields in which the pods of one application differ. A pod without a node waits."""

    number: int
    node: str
    phase: str


class Application:
    """The common part of one application's pods."""

    def __init__(self, seed: str, number: int, namespace: str, is_daemon: bool = False) -> None:
        chance = random.Random(f"{seed}-{number}-{is_daemon}")
        self.name = f"{word(chance, TAIL, 6)}-{number:05d}"
        self.namespace = namespace
        self.owner = "DaemonSet" if is_daemon else chance.choice(_OWNERS)
        self._chance = chance
        self._identity = number % 5
        self._is_bare = chance.random() < 0.3
        self._hash = word(chance, TAIL, 10)
        self._owner_uid = uid(chance)
        self._containers = self._make_containers()
        self._rest = self._make_rest()
        self._labels, self._annotations = self._name_queue()
        self._fields = _owned_spec(self._labels, self._annotations, self._containers, self._rest)

    # --- once an application ------------------------------------------------------------------

    def _make_containers(self) -> list[Object]:
        count = self._chance.choice((1, 1, 1, 1, 1, 1, 2, 3))
        return [self._container(f"part-{position}") for position in range(count)]

    def _container(self, name: str) -> Object:
        chance = self._chance
        requests = {
            "cpu": f"{chance.randrange(50, 4000, 10)}m",
            "memory": f"{chance.randrange(64, 16384, 8)}Mi",
        }
        if chance.random() < 0.1:
            requests["ephemeral-storage"] = f"{chance.randrange(1, 50)}Gi"
        container: Object = {
            "name": name,
            "image": f"registry.example.org/{self.namespace}/{self.name}/{name}:{number_(chance)}",
            "args": [
                f"--{word(chance, TAIL, 8)}={word(chance, TAIL, 12)}"
                for _ in range(chance.randrange(4))
            ],
            "env": self._environment(),
            "ports": [{"containerPort": chance.randrange(1024, 9999), "protocol": "TCP"}],
            "resources": {"limits": {"memory": requests["memory"]}, "requests": requests},
            "volumeMounts": [],
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
        if chance.random() < 0.3:
            probe = {"path": "/healthz", "port": 8080, "scheme": "HTTP"}
            container["readinessProbe"] = {
                "httpGet": probe, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3,
            }  # fmt: skip
        return container

    def _environment(self) -> list[Object]:
        chance = self._chance
        many = chance.choice((0, 0, 0, 1, 2, 6, 12))
        names = sorted({f"{chance.choice(_WORDS)}_{word(chance, TAIL, 4).upper()}"
                        for _ in range(many)})  # fmt: skip
        plain = [{"name": name, "value": word(chance, TAIL, chance.randint(4, 40))}
                 for name in names]  # fmt: skip
        return [*plain, {"name": "OWN_ADDRESS", "valueFrom": _OWN_IP}]

    def _make_rest(self) -> Object:
        """Returns the pod's spec without its containers and its node."""
        chance = self._chance
        rest: Object = {
            "volumes": self._volumes(),
            "restartPolicy": "OnFailure" if self.owner == "Job" else "Always",
            "terminationGracePeriodSeconds": chance.choice((30, 30, 60)),
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": self.name,
            "serviceAccount": self.name,
            "securityContext": {"runAsUser": chance.randrange(1000, 60000), "runAsNonRoot": True},
            "schedulerName": "default-scheduler" if self.owner == "DaemonSet" else "yunikorn",
            "tolerations": [*_TOLERATIONS, *self._tolerations()],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        if chance.random() < 0.3:
            rest["affinity"] = self._affinity()
        if chance.random() < 0.15:
            rest["nodeSelector"] = {"kubernetes.io/os": "linux"}
        if chance.random() < 0.1:
            first = self._container("prepare")
            first.pop("readinessProbe", None)  # only of a sidecar
            rest["initContainers"] = [first]
        return rest

    def _volumes(self) -> list[Object]:
        chance = self._chance
        made: list[Object] = [
            {"name": "settings", "configMap": {"name": f"{self.name}-cm", "defaultMode": 420}},
            {"name": "keys", "secret": {"secretName": f"{self.name}-keys", "defaultMode": 420}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "data", "nfs": {"server": "nfs.example.org", "path": f"/{self.name}"}},
        ]
        return made[: chance.randrange(len(made) + 1)]

    def _tolerations(self) -> list[Object]:
        if self._chance.random() < 0.7:
            return []
        return [{"key": "example.org/dedicated", "operator": "Equal", "effect": "NoSchedule",
                 "value": self.namespace}]  # fmt: skip

    def _affinity(self) -> Object:
        """Returns an affinity: prefers nodes without such pods, requires certain rows of racks."""
        rows = sorted(f"row-{row}" for row in self._chance.sample(range(8), 5))
        term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": rows}
        like = {"matchLabels": {"app.kubernetes.io/name": self.name}}
        away = {"labelSelector": like, "topologyKey": "kubernetes.io/hostname"}
        return {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [term]}]
                }
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": away}
                ]
            },
        }

    def _name_queue(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Returns labels and annotations that name the queue, in one of five possible ways."""
        queue = f"root.site.{self.namespace}"
        labels = {"app.kubernetes.io/name": self.name, "app.kubernetes.io/part-of": self._hash}
        annotations = {"yunikorn.apache.org/user.info": '{"user":"nobody","groups":["users"]}'}
        if self.owner == "DaemonSet":
            return {"k8s-app": self.name, "controller-revision-hash": self._hash}, {}
        match self._identity:
            case 0 | 1:
                labels |= {"applicationId": self.name, "queue": queue}
            case 2:
                labels |= {"yunikorn.apache.org/app-id": self.name,
                           "yunikorn.apache.org/queue": queue}  # fmt: skip
            case 3:
                annotations |= {"yunikorn.apache.org/app-id": self.name,
                                "yunikorn.apache.org/queue": queue}  # fmt: skip
            case _:
                labels |= {"spark-app-selector": f"spark-{self._hash}", "queue": queue,
                           "spark-role": "executor"}  # fmt: skip
        if self.owner == "ReplicaSet":
            labels["pod-template-hash"] = self._hash
        return labels, annotations

    # --- once a pod ---------------------------------------------------------------------------

    def document(self, chance: random.Random, place: Place) -> Object:
        """Returns the JSON of one pod as the API server prints it within a list."""
        token = f"kube-api-access-{word(chance, TAIL, 5)}"
        own = uid(chance)
        created = instant(chance)
        return {
            "metadata": self._metadata(chance, place, (own, created)),
            "spec": self._spec(token, place.node),
            "status": self._status(chance, place, created),
        }

    def _metadata(self, chance: random.Random, place: Place, own: tuple[str, str]) -> Object:
        base = f"{self.name}-{self._hash}-"
        api = "batch/v1" if self.owner == "Job" else "apps/v1"
        owner = {
            "apiVersion": api, "kind": self.owner, "name": base[:-1], "uid": self._owner_uid,
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        address = _address(place.number)
        notes = {"cni.example.org/podIP": f"{address}/32", "cni.example.org/id": own[0]}
        fields = [managed("kube-controller-manager", own[1], self._fields, "")]
        if place.node:
            fields.append(managed("kubelet", own[1], _owned_status(address), "status"))
        return {
            "name": base + word(chance, TAIL, 5),
            "generateName": base,
            "namespace": self.namespace,
            "uid": own[0],
            "resourceVersion": str(chance.randrange(10**8, 10**9)),
            "creationTimestamp": own[1],
            "labels": self._labels,
            "annotations": {**self._annotations, **(notes if place.node else {})},
            "ownerReferences": [owner],
            "managedFields": fields,
        }

    def _spec(self, token: str, node: str) -> Object:
        volumes = list(self._rest["volumes"])
        mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
        if not self._is_bare:
            volumes.append({"name": token, "projected": _PROJECTED})
            mounts.append({"name": token, "readOnly": True, "mountPath": _TOKEN_PATH})
        containers = [{**container, "volumeMounts": mounts} for container in self._containers]
        spec = {**self._rest, "containers": containers, "volumes": volumes}
        return {**spec, "nodeName": node} if node else spec

    def _status(self, chance: random.Random, place: Place, created: str) -> Object:
        if not place.node:
            waits = _condition("PodScheduled", "False", created)
            return {"phase": "Pending", "conditions": [waits], "qosClass": "Burstable"}
        address, host = _address(place.number), f"10.1.{place.number % 200}.{place.number % 250}"
        status: Object = {
            "phase": place.phase,
            "conditions": [_condition(kind, "True", created) for kind in _READY],
            "hostIP": host,
            "hostIPs": [{"ip": host}],
            "startTime": created,
            "qosClass": "Burstable",
        }
        if place.phase != "Pending":
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
            status["containerStatuses"] = [
                _container_status(chance, container, place.phase, created)
                for container in self._containers
            ]
            for item in status["containerStatuses"] if self._is_bare else ():
                del item["allocatedResources"], item["resources"]  # as before Kubernetes 1.33
        return status


def number_(chance: random.Random) -> str:
    """Returns a random version number, which serves as the tag of an image."""
    return f"{chance.randrange(9)}.{chance.randrange(30)}.{chance.randrange(10)}"


def _address(number: int) -> str:
    return f"10.{64 + number // 62500 % 64}.{number // 250 % 250}.{number % 250}"


def _condition(kind: str, value: str, at: str) -> Object:
    return {"type": kind, "observedGeneration": 1, "status": value, "lastProbeTime": None,
            "lastTransitionTime": at}  # fmt: skip


def _container_status(chance: random.Random, container: Object, phase: str, at: str) -> Object:
    state: Object = {"running": {"startedAt": at}}
    if phase == "Succeeded":
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
        state = {"terminated": {**ended, "containerID": f"containerd://{word(chance, HEX, 64)}"}}
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": phase == "Running",
        "restartCount": chance.choice((0, 0, 0, 1, 4)),
        "image": container["image"],
        "imageID": f"registry.example.org/x@sha256:{word(chance, HEX, 64)}",
        "containerID": f"containerd://{word(chance, HEX, 64)}",
        "started": phase == "Running",
        "allocatedResources": container["resources"]["requests"],
        "resources": container["resources"],
    }


def _owned_spec(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    containers: list[Object],
    rest: Object,
) -> Object:
    """Returns the fields that a pod's creator set, in the form of managedFields (fieldsV1)."""
    metadata = {"labels": labels, "annotations": annotations, "ownerReferences": []}
    spec = {**rest, "containers": containers}
    for settings in ("tolerations", "priority", "preemptionPolicy", "serviceAccountName"):
        spec.pop(settings)  # set by admission, which owns nothing
    return {"f:metadata": _owned(metadata), "f:spec": _owned(spec)}


def _owned_status(address: str) -> Object:
    conditions = [{"type": kind, **dict.fromkeys(("lastProbeTime", "lastTransitionTime",
                   "observedGeneration", "status"))} for kind in _READY]  # fmt: skip
    keys = dict.fromkeys(("containerStatuses", "hostIP", "hostIPs", "phase", "podIP", "startTime"))
    fields = _owned({"conditions": conditions, "podIPs": [{"ip": address}], **keys})
    return {"f:status": fields}


def _owned(value: Any) -> Object:
    if isinstance(value, Mapping):
        return {".": {}, **{f"f:{key}": _owned(inner) for key, inner in value.items()}}
    items = value if isinstance(value, list) else []
    owned: Object = {}
    for item in items:
        key = next((key for key in ("name", "type", "ip", "containerPort")
                    if isinstance(item, Mapping) and key in item), None)  # fmt: skip
        if key is not None:
            owned[f'k:{{"{key}":"{item[key]}"}}'] = _owned(item)
    return owned


_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_NAMESPACE_FIELD = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
_PROJECTED: Object = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": _NAMESPACE_FIELD}]}},
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
