"""The real slurm-operator on a real API server, with a real Slurm of Debian's forky beside it.

The tests replace only what one machine lacks: a scheduler and kubelets for the operator's pods.
They bind a pod to a fitting node, start a slurmd for it, read its readiness, and run its unchanged
preStop at its end. Slurm is the site's own (`external`), with a bare-metal node beside the nodes of
pods. Its slurmrestd listens where the operator expects it in its developer mode."""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dnm.model.errors import SlurmError
from tests.real.build import files_of, program
from tests.real.checkouts import SLURM_OPERATOR
from tests.real.http_api import Api, ApiError, Json
from tests.real.rig import Rig
from tests.real.slinky import Controller
from tests.real.slurm_roots import programs_of
from tests.real_slurm import SlurmLab, _free_ports
from tests.slurmrestd import allow_tokens, slurmrestd

SUITE = "forky"
REST_PORT = "6820"  # the operator's own
HEALTH = "http://127.0.0.1:8081"
NAMESPACE = "slurm"
GROUP = "/apis/slinky.slurm.net/v1beta1/namespaces/slurm"
PODS = "/api/v1/namespaces/slurm/pods"
WORKERS = "app.kubernetes.io/name=slurmd"
# As in the operator's own slurm.conf, as far as it matters.
CONFIGURATION = """\
SlurmUser=slurm
MaxNodeCount=64
ReturnToService=0
NodeSet=b Feature=b
PartitionName=b Nodes=b MaxTime=INFINITE State=UP
"""


class PodSlurm(SlurmLab):
    """A site's Slurm, which slurmds in pods may join. It runs as `slurm`, because the operator's
    tokens are for that user."""

    def __init__(self, directory: Path, nodes: tuple[str, ...]) -> None:
        super().__init__(directory, nodes, CONFIGURATION, programs_of(SUITE))
        self.patience = 5
        self._ports: dict[str, int] = {}
        allow_tokens(self)

    def _write_files(self) -> None:
        super()._write_files()
        for name in ("state", "log", "run", "jwt.key"):
            shutil.chown(self.directory / name, "slurm", "slurm")

    def start_pod(self, name: str, arguments: str) -> int:
        """Starts slurmd as a pod would; returns its port. All slurmds have one address, so each has
        its own port and reads slurm.conf from a file."""
        (self.directory / "spool" / name).mkdir(parents=True, exist_ok=True)
        settings = shlex.split(arguments)
        conf = settings[settings.index("--conf") + 1]
        # Since 1.3; a Node without the annotation gives the variable no value, and slurmd no key.
        conf = " ".join(name for name in conf.split() if name != "Topology=$SLINKY_TOPOLOGY")
        port = self._ports.setdefault(name, _free_ports(1)[0])
        self._spawn("slurmd", "-N", name, "-Z", "--conf", f"{conf} Port={port}")
        return port


class Controls(Controller):
    """Acts as scheduler and kubelets for the operator's pods. `order` lists its actions."""

    def __init__(self, rig: Rig, slurm: PodSlurm) -> None:
        super().__init__(rig, 0.2)
        self.slurm = slurm
        self.ports: dict[str, int] = {}  # uid of a pod -> port of its slurmd
        self.readiness: dict[str, bool] = {}
        self.order: list[str] = []
        self._bin = slurm.directory / "pod-bin"

    def step(self) -> None:
        pods = self.api.get(f"{PODS}?labelSelector={WORKERS}")["items"]
        taken = {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if not pod["spec"].get("nodeName"):
                self._bind(pod, taken)
            elif "deletionTimestamp" in pod["metadata"]:
                self._finish(pod)
            elif uid not in self.ports:
                self._begin(pod)
            else:
                self._probe(pod)

    # --- the scheduler ---------------------------------------------------------------------------

    def _bind(self, pod: Json, taken: set[str]) -> None:
        if "deletionTimestamp" in pod["metadata"]:  # schedulers and kubelets ignore it
            return self._remove(pod)
        for node in self.api.get("/api/v1/nodes")["items"]:
            name = node["metadata"]["name"]
            if name in taken or not is_fit(pod, node):
                continue
            target = {"apiVersion": "v1", "kind": "Node", "name": name}
            binding = {"apiVersion": "v1", "kind": "Binding", "target": target,
                       "metadata": {"name": pod["metadata"]["name"]}}  # fmt: skip
            taken.add(name)
            self.api.post(f"{_path(pod)}/binding", binding)
            return

    # --- a kubelet -------------------------------------------------------------------------------

    def _begin(self, pod: Json) -> None:
        name = slurm_name(pod)
        self.ports[pod["metadata"]["uid"]] = self.slurm.start_pod(
            name, " ".join(_container(pod)["args"])
        )
        self.order.append(f"slurmd of {name} started for {pod['metadata']['name']}")
        self._set_ready(pod, False)

    def _probe(self, pod: Json) -> None:
        is_ready = Api(f"http://127.0.0.1:{self.ports[pod['metadata']['uid']]}").answers("/readyz")
        if self.readiness.get(pod["metadata"]["uid"]) != is_ready:
            self._set_ready(pod, is_ready)

    def _set_ready(self, pod: Json, is_ready: bool) -> None:
        self.readiness[pod["metadata"]["uid"]] = is_ready
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        conditions = [
            {"type": kind, "status": str(is_ready), "lastTransitionTime": now}
            for kind in ("Ready", "ContainersReady")
        ]
        conditions += [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized")
        ]
        container = {"name": "slurmd", "image": "slurmd", "imageID": "", "restartCount": 0,
                     "ready": is_ready, "started": True,
                     "state": {"running": {"startedAt": now}}}  # fmt: skip
        status = {"phase": "Running", "conditions": conditions, "startTime": now,
                  "containerStatuses": [container]}  # fmt: skip
        self.api.patch(f"{_path(pod)}/status", {"status": status}, "strategic")

    def _finish(self, pod: Json) -> None:
        uid, name = pod["metadata"]["uid"], slurm_name(pod)
        if uid in self.ports:
            command = _container(pod)["lifecycle"]["preStop"]["exec"]["command"]
            done = subprocess.run(
                command, env=self._inside(name), capture_output=True, text=True, timeout=60
            )
            self.order.append(f"preStop of {name}: {done.returncode} {done.stderr.strip()}")
            self.slurm.stop_slurmd(name)
            del self.ports[uid]
        self._remove(pod)

    def _remove(self, pod: Json) -> None:
        self.api.delete(
            _path(pod),
            {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
             "preconditions": {"uid": pod["metadata"]["uid"]}},
        )  # fmt: skip

    def _inside(self, name: str) -> dict[str, str]:
        """Returns the environment of a command in a pod, with its hostname and Slurm's commands."""
        place = self._bin / name
        if not place.exists():
            place.mkdir(parents=True)
            (place / "hostname").write_text(f"#!/bin/sh\necho {name}\n")
            (place / "hostname").chmod(0o755)
        return {**self.slurm.environ, "PATH": f"{place}:{self.slurm.environ['PATH']}"}


def operator() -> Path:
    """Returns the built operator of a checkout if one is named, else of Go's module proxy."""
    named = SLURM_OPERATOR.directory
    return program("slurm-operator") if named is None else SLURM_OPERATOR.program


def kinds() -> Path:
    named = SLURM_OPERATOR.directory
    return files_of("slurm-operator") if named is None else named / "config/crd/bases"


def slurm_name(pod: Json) -> str:
    """Returns the Slurm node name of a pod: its hostname, or with hostNetwork its Node's name."""
    spec = pod["spec"]
    return str(spec["nodeName"] if spec.get("hostNetwork") else spec["hostname"])


def _container(pod: Json) -> Json:
    return next(
        dict(container) for container in pod["spec"]["containers"] if container["name"] == "slurmd"
    )


def _path(pod: Json) -> str:
    return f"{PODS}/{pod['metadata']['name']}"


def is_fit(pod: Json, node: Json) -> bool:
    """Returns whether a scheduler would bind the pod to the Node, as far as this test needs."""
    metadata, spec = node["metadata"], pod["spec"]
    if node["spec"].get("unschedulable"):
        return False
    selector = spec.get("nodeSelector", {})
    if any(metadata["labels"].get(key) != value for key, value in selector.items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in terms.get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            if metadata["name"] not in field["values"]:
                return False
    return all(
        any(item.get("key") in (taint["key"], None) for item in spec.get("tolerations", ()))
        for taint in node["spec"].get("taints", ())
    )


class Slinky:
    """A real cluster with slurm-operator, a real Slurm, and a NodeSet `b`."""

    def __init__(self, rig: Rig, slurm: PodSlurm, controls: Controls) -> None:
        self.rig = rig
        self.slurm = slurm
        self.controls = controls

    def make_node_set(self, mode: str, replicas: int, label: tuple[str, str], taint: str) -> None:
        template = {
            "nodeSelector": dict([label]),
            "tolerations": [{"key": taint, "operator": "Exists"}],
            "hostNetwork": True,
        }
        spec = {
            "controllerRef": {"name": "site", "namespace": NAMESPACE}, "replicas": replicas,
            "scalingMode": mode, "slurmd": {"image": "none"},
            "logfile": {"image": "none"}, "template": {"spec": template},
        }  # fmt: skip
        self.rig.api.post(f"{GROUP}/nodesets", _object("NodeSet", "b", spec))

    def node_set(self) -> Json:
        return dict(self.rig.api.get(f"{GROUP}/nodesets/b"))

    def pods(self) -> list[Json]:
        return list(self.rig.api.get(f"{PODS}?labelSelector={WORKERS}")["items"])

    def states(self) -> dict[str, set[str]]:
        """Returns Slurm node -> its states, by the conditions that the operator sets on the pod."""
        return {
            slurm_name(pod): {
                item["type"].removeprefix("SlurmNodeState")
                for item in pod["status"].get("conditions", ())
                if item["type"].startswith("SlurmNodeState") and item["status"] == "True"
            }
            for pod in self.pods()
            if pod["spec"].get("nodeName")
        }


def _object(kind: str, name: str, spec: Json) -> Json:
    version = "slinky.slurm.net/v1beta1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


@contextmanager
def slinky(rig: Rig, directory: Path, nodes: tuple[str, ...]) -> Iterator[Slinky]:
    """Yields a cluster with the running operator. `nodes` are Slurm's nodes on bare metal."""
    slurm = PodSlurm(directory, nodes)
    controls = Controls(rig, slurm)
    _leave_pods_to_controls(rig)
    try:
        slurm.start()
        rig.note_versions({"Slurm": slurm.release})
        with slurmrestd(slurm, REST_PORT):
            _describe_slurm(rig, slurm)
            _start_operator(rig)
            with controls:
                try:
                    yield Slinky(rig, slurm, controls)
                finally:
                    _remove_node_set(rig)
                    rig.servers["slurm-operator"].stop()
            rig.remove_pods(NAMESPACE)
    finally:
        slurm.stop()
        rig.servers.pop("slurm-operator", None)
        rig.servers["kwok"].stop()
        rig.add("kwok", rig.kwok_command(), lambda: True)
        rig.servers["kwok"].start()


def _leave_pods_to_controls(rig: Rig) -> None:
    """Restarts kwok so that it ignores the operator's pods, which `Controls` handles."""
    rig.servers["kwok"].stop()
    command = [*rig.kwok_command(), f"--disregard-status-with-label-selector={WORKERS}"]
    rig.add("kwok", command, lambda: True)
    rig.servers["kwok"].start()


def _describe_slurm(rig: Rig, slurm: PodSlurm) -> None:
    """Creates the operator's CRDs, the object for the site's Slurm, and slurmrestd's address."""
    rig.shell(f"kubectl apply --server-side --filename {kinds()}")
    rig.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    rig.wait_for(lambda: rig.api.answers(f"{GROUP}/nodesets"), "NodeSets are served")
    keys = {"slurm.key": os.urandom(32), "jwt.key": (slurm.directory / "jwt.key").read_bytes()}
    data = {name: base64.b64encode(key).decode() for name, key in keys.items()}
    secret = {"metadata": {"name": "site"}, "data": data}
    with suppress(ApiError):
        rig.api.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/site")
    rig.api.post(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    port = int(slurm.run("scontrol", "show", "config").partition("SlurmctldPort")[2].split()[1])
    spec: dict[str, Any] = {
        "clusterName": "lab", "external": True,
        "externalConfig": {"host": "127.0.0.1", "port": port},
        "slurmKeyRef": {"name": "site", "key": "slurm.key"},
        "jwtKeyRef": {"name": "site", "key": "jwt.key"},
    }  # fmt: skip
    for kind, path, body in (
        ("Controller", "controllers", spec),
        ("RestApi", "restapis", {"controllerRef": {"name": "site", "namespace": NAMESPACE},
                                 "replicas": 0, "slurmrestd": {"image": "none"}}),
    ):  # fmt: skip
        rig.api.delete(f"{GROUP}/{path}/site")
        rig.api.post(f"{GROUP}/{path}", _object(kind, "site", body))


def _start_operator(rig: Rig) -> None:
    """Starts the operator with DEBUG, so that it uses localhost, as no Service name resolves."""
    rig.add(
        "slurm-operator",
        [str(operator()), "--metrics-addr", "0", "--health-addr",
         HEALTH.removeprefix("http://"), "--zap-log-level", "2"],
        lambda: Api(HEALTH).answers("/readyz"),
        KUBECONFIG=rig.kubeconfig(), DEBUG="1",
    )  # fmt: skip
    rig.servers["slurm-operator"].start()
    rig.note_versions({"slurm-operator": operator().name.removeprefix("slurm-operator-")})


def _remove_node_set(rig: Rig) -> None:
    with suppress(ApiError, SlurmError):
        rig.api.delete(f"{GROUP}/nodesets/b", {"propagationPolicy": "Background"})
