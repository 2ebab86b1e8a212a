"""A controller that acts like slurm-operator, on a real API server.

Kubernetes is real: Nodes, pods, taints, labels, NodeSets by a CRD with the scale subresource. Slurm
is a model in memory, as in tests/converters. No slurmd runs: the controller acts for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from tests.converters.nodeset_world import LABEL, Machine
from tests.real.http_api import ApiError, Json
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig

GROUP = "slinky.slurm.net"
SETS = f"/apis/{GROUP}/v1beta1/namespaces/slurm/nodesets"
PODS = "/api/v1/namespaces/slurm/pods"
FENCE = {"key": "dynamic-node-manager/batch", "effect": "NoSchedule"}
COST = "nodeset.slinky.slurm.net/pod-deletion-cost"
CORDON = "nodeset.slinky.slurm.net/pod-cordon"
BINDINGS = """
kubectl apply -f etc/rbac-slinky.yaml
kubectl create rolebinding dynamic-node-manager-nodeset-scale --namespace slurm \
  --clusterrole dynamic-node-manager-nodeset-scale --serviceaccount yunikorn:dynamic-node-manager
kubectl create clusterrolebinding dynamic-node-manager-autoscalers \
  --clusterrole dynamic-node-manager-autoscalers --serviceaccount yunikorn:dynamic-node-manager
"""
NO_BINDINGS = """
kubectl delete clusterrolebinding dynamic-node-manager-autoscalers
kubectl delete rolebinding -n slurm dynamic-node-manager-nodeset-scale
kubectl delete -f etc/rbac-slinky.yaml
"""
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD: Json = {
    "metadata": {"name": f"nodesets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "NodeSet", "plural": "nodesets", "singular": "nodeset"},
        "versions": [{
            "name": "v1beta1", "served": True, "storage": True,
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                },
            },
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {**ANY, "properties": {
                        "replicas": {"type": "integer", "format": "int32"},
                        "scalingMode": {
                            "type": "string", "enum": ["DaemonSet", "StatefulSet"],
                            "default": "StatefulSet",
                        },
                    }},
                    "status": {**ANY, "properties": {"replicas": {"type": "integer"}}},
                },
            }},
        }],
    },
}  # fmt: skip


@contextmanager
def roles(rig: Rig) -> Iterator[None]:
    """Adds the roles for Slinky in etc/ to dnm's account. Slinky's namespace must exist."""
    rig.shell(f"cd {REPOSITORY}\n" + BINDINGS)
    try:
        yield
    finally:
        rig.shell(f"cd {REPOSITORY}\n" + NO_BINDINGS)


class PodMachine(Machine):
    """A machine. `is_in_slurm` is true once its slurmd has registered."""

    is_in_slurm = False


class SlurmState:
    """The model of Slurm for the clients in tests/converters, with one change at a time."""

    def __init__(self, names: list[str]) -> None:
        self.machines = {name: PodMachine(name) for name in names}
        self.reservations: dict[str, tuple[str, bool]] = {}
        self.made: dict[str, int] = {}
        self.calls = 0
        self.lock = threading.RLock()
        self.lost: list[str] = []

    def call(self, name: str, act: Callable[[], Any]) -> Any:
        with self.lock:
            return act()

    def is_reserved(self, name: str) -> bool:
        return any(node == name for node, _ in self.reservations.values())

    def is_seen_reserved(self, machine: Machine) -> bool:
        return self.is_reserved(machine.name)


class Controller:
    """A thread that calls `step` until the block ends. If another client changed an object, the
    next call handles it."""

    def __init__(self, rig: Rig, pause: float = 0.1) -> None:
        self.api = rig.api
        self.pause = pause  # seconds between two passes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure: BaseException | None = None

    def step(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        while not self._stop.wait(self.pause):
            try:
                self.step()
            except ApiError as error:
                if error.code not in (404, 409, 422):
                    self.failure = error
                    return
            except BaseException as error:
                self.failure = error
                return

    def node(self, name: str) -> Json:
        results: Json = self.api.get(f"/api/v1/nodes/{name}")
        return results


class Operator(Controller):
    """The controller that acts like slurm-operator, for one NodeSet `b` in its configured mode."""

    def __init__(self, rig: Rig, state: SlurmState) -> None:
        super().__init__(rig)
        self.state = state

    def step(self) -> None:
        with self.state.lock:
            self._pass()

    def _pass(self) -> None:
        node_set = self.api.get(f"{SETS}/b")
        nodes = {name: self.node(name) for name in self.state.machines}
        pods = self.api.get(PODS)["items"]
        for pod in pods:
            self._register(pod)
        if node_set["spec"]["scalingMode"] == "DaemonSet":
            self._daemons(node_set, nodes, pods)
        else:
            self._replicas(node_set, nodes, pods)
        status = {
            "observedGeneration": node_set["metadata"]["generation"],
            "replicas": len(pods), "updatedReplicas": len(pods),
        }  # fmt: skip
        if node_set.get("status") != status:
            self.api.patch(f"{SETS}/b/status", {"status": status})

    def _daemons(self, node_set: Json, nodes: dict[str, Json], pods: list[Json]) -> None:
        on = {pod["spec"]["nodeName"]: pod for pod in pods}
        for name, node in nodes.items():
            if name in on and not self._is_chosen(node):
                self._condemn(on[name])
            elif name in on:
                self._keep(on[name])
            elif self._takes_pod(node):
                self._create(node_set, name, f"b-{time.monotonic_ns() % 10**9}")

    def _replicas(self, node_set: Json, nodes: dict[str, Json], pods: list[Json]) -> None:
        excess = len(pods) - node_set["spec"].get("replicas", 1)

        def rank(pod: Json) -> tuple[bool, int, str]:
            cost = pod["metadata"].get("annotations", {}).get(COST, "0")
            return is_ready(pod), int(cost), f"{999 - int(pod['metadata']['name'][2:]):03}"

        for place, pod in enumerate(sorted(pods, key=rank)):
            self._condemn(pod) if place < excess else self._keep(pod)
        taken = {pod["spec"]["nodeName"] for pod in pods}
        free = [n for n, node in nodes.items() if n not in taken and self._takes_pod(node)]
        names = {pod["metadata"]["name"] for pod in pods}
        ordinals = (f"b-{n}" for n in range(99) if f"b-{n}" not in names)
        for _, name, pod_name in zip(range(-excess), free, ordinals, strict=False):
            self._create(node_set, name, pod_name)

    def _is_chosen(self, node: Json) -> bool:
        return bool(node["metadata"]["labels"].get(LABEL[0]) == LABEL[1])

    def _takes_pod(self, node: Json) -> bool:
        is_tolerated = all(t["key"] == FENCE["key"] for t in node["spec"].get("taints", ()))
        return self._is_chosen(node) and is_tolerated and not node["spec"].get("unschedulable")

    def _create(self, node_set: Json, node: str, name: str) -> None:
        owner = {"apiVersion": f"{GROUP}/v1beta1", "kind": "NodeSet", "name": "b",
                 "uid": node_set["metadata"]["uid"], "controller": True}  # fmt: skip
        mode = node_set["spec"]["scalingMode"]
        labels = {"app.kubernetes.io/name": "slurmd", "app.kubernetes.io/component": "worker",
                  "nodeset.slinky.slurm.net/scaling-mode": mode,
                  # The real one writes it before a pod of a StatefulSet has a Node.
                  "nodeset.slinky.slurm.net/pod-hostname": node if mode == "DaemonSet" else name,
                  }  # fmt: skip
        container = {"name": "slurmd", "image": "slurmd"}
        tolerations = [{"key": FENCE["key"], "operator": "Exists"}]
        metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
        spec = {"nodeName": node, "containers": [container], "tolerations": tolerations,
                "hostNetwork": True, "schedulerName": "default-scheduler"}  # fmt: skip
        self.api.post(PODS, {"metadata": metadata, "spec": spec})
        machine = self.state.machines[node]
        machine.is_in_slurm = False  # until its slurmd registers

    def _register(self, pod: Json) -> None:
        """Registers the slurmd of a pod, and copies Slurm's state to the pod's conditions."""
        if not is_ready(pod):
            return
        machine = self.state.machines[pod["spec"]["nodeName"]]
        if not machine.is_in_slurm:
            machine.is_in_slurm, machine.base, machine.flags, machine.reason = (
                True,
                "IDLE",
                set(),
                "",
            )
            info = {"namespace": "slurm", "podName": pod["metadata"]["name"], "node": machine.name}
            machine.comment = json.dumps(info)
        states = {
            "Allocated" if machine.jobs else "Idle",
            *(flag.capitalize() for flag in machine.flags),
        }
        wanted = sorted(f"SlurmNodeState{state}" for state in states)
        facts = pod["status"]["conditions"]
        if wanted != [c["type"] for c in facts if c["type"].startswith("Slurm")]:
            kept = [c for c in facts if not c["type"].startswith("Slurm")]
            conditions = [*kept, *({"type": state, "status": "True"} for state in wanted)]
            path = f"{PODS}/{pod['metadata']['name']}/status"
            self.api.patch(path, {"status": {"conditions": conditions}})

    def _condemn(self, pod: Json) -> None:
        machine = self.state.machines[pod["spec"]["nodeName"]]
        path = f"{PODS}/{pod['metadata']['name']}"
        if "DRAIN" not in machine.flags or machine.jobs:
            machine.flags.add("DRAIN")
            machine.reason = "slurm-operator: Pod is pending termination for scale-in"
            self.api.patch(path, {"metadata": {"annotations": {CORDON: "true"}}})
            return
        self.api.delete(path, {"gracePeriodSeconds": 0})
        self.state.lost += machine.jobs
        machine.jobs.clear()
        machine.base, machine.flags = "DOWN", {"NOT_RESPONDING"}
        machine.reason = "slurm-operator: Pod is terminating"

    def _keep(self, pod: Json) -> None:
        machine = self.state.machines[pod["spec"]["nodeName"]]
        if machine.reason.startswith("slurm-operator:") and machine.is_in_slurm:
            machine.flags.discard("DRAIN")
            machine.reason = ""
        if pod["metadata"].get("annotations", {}).get(CORDON):
            path = f"{PODS}/{pod['metadata']['name']}"
            self.api.patch(path, {"metadata": {"annotations": {CORDON: None}}})


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    is_up = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return is_up and pod["status"].get("phase") == "Running"
