"""Objects of a JupyterHub, as the chart of zero-to-jupyterhub 4.4.0 makes them with the values of
docs/resource-quota.md, and pods as of KubeSpawner 7.0.0, without home directories."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from tests.real.build import program
from tests.real.http_api import Api, ApiError, Json
from tests.real.namespaces import REPOSITORY
from tests.real.rig import KUBE_SCHEDULER, Rig
from tests.real.unmanaged import pods_of

PAGE = (REPOSITORY / "docs" / "resource-quota.md").read_text()
PEOPLE = 75
NAMESPACE, RELEASE = "dev", "hub"
USER_SCHEDULER = f"{RELEASE}-user-scheduler"
PURPOSE = "hub.jupyter.org/node-purpose"
# `scheduling.podPriority` of the chart, if it is enabled.
PRIORITIES = {f"{RELEASE}-default-priority": 0, f"{RELEASE}-user-placeholder-priority": -10}
USER_PRIORITY, PLACEHOLDER_PRIORITY = PRIORITIES
# `scheduling.userScheduler` of the chart: pods go to the fullest node.
_SCORES = {"NodeAffinity": 14631, "InterPodAffinity": 1331, "NodeResourcesFit": 121,
           "ImageLocality": 11}  # fmt: skip
_OFF = [{"name": "NodeResourcesBalancedAllocation"}, *({"name": name} for name in _SCORES)]
_ON = [{"name": name, "weight": weight} for name, weight in _SCORES.items()]
_FULLEST = {"type": "MostAllocated",
            "resources": [{"name": name, "weight": 1} for name in ("cpu", "memory")]}  # fmt: skip
_PROFILE = {
    "schedulerName": USER_SCHEDULER,
    "plugins": {"score": {"disabled": _OFF, "enabled": _ON}},
    "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": _FULLEST}}],
}


def blocks(language: str) -> list[str]:
    """Returns the code blocks of docs/resource-quota.md in a language, without indent."""
    texts = re.findall(rf"^   ```{language}\n(.*?)^   ```$", PAGE, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", str(text), flags=re.MULTILINE) for text in texts]


def values() -> Any:
    """Returns the values for the chart that docs/resource-quota.md shows."""
    (text,) = blocks("yaml")
    return yaml.safe_load(text)


def start_user_scheduler(rig: Rig) -> None:
    """Starts the kube-scheduler that the chart adds for users' pods, with its own profile."""
    own, keys, port = rig.kubeconfig("scheduler"), rig.keys, 10269
    path = rig.directory / "user-scheduler.yaml"
    path.write_text(json.dumps({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False}, "clientConnection": {"kubeconfig": own},
        "profiles": [_PROFILE],
    }))  # fmt: skip
    command = [
        str(program(KUBE_SCHEDULER)), "--config", str(path), "--authentication-kubeconfig", own,
        "--authorization-kubeconfig", own, "--bind-address", "127.0.0.1",
        "--secure-port", str(port), "--tls-cert-file", f"{keys}/apiserver.crt",
        "--tls-private-key-file", f"{keys}/apiserver.key",
    ]  # fmt: skip
    at = Api(f"https://127.0.0.1:{port}", keys)
    rig.add(USER_SCHEDULER, command, lambda: at.answers("/readyz"))
    rig.servers[USER_SCHEDULER].start()


def add_priorities(rig: Rig) -> None:
    for name, value in PRIORITIES.items():
        rig.create("/apis/scheduling.k8s.io/v1/priorityclasses",
                   {"metadata": {"name": name}, "value": value})  # fmt: skip


def _controller(name: str, spec: Json, **more: Any) -> Json:
    labels = {"app": "jupyterhub", "release": RELEASE, "component": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    spec = {"selector": {"matchLabels": labels}, "template": template, **more}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _affinity(purpose: str, kind: str) -> Json:
    term = {"matchExpressions": [{"key": PURPOSE, "operator": "In", "values": [purpose]}]}
    if kind == "require":
        required = {"nodeSelectorTerms": [term]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    preferred = [{"weight": 100, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _dedicated(purpose: str) -> list[Json]:
    return [{"key": key, "operator": "Equal", "value": purpose, "effect": "NoSchedule"}
            for key in ("hub.jupyter.org/dedicated", "hub.jupyter.org_dedicated")]  # fmt: skip


def install_hub(rig: Rig) -> None:
    """Installs hub, proxy and the DaemonSet of the image puller, which request nothing."""
    kind = values()["scheduling"]["corePods"]["nodeAffinity"]["matchNodePurpose"]
    core = {"containers": [{"name": "main", "image": "none"}], "tolerations": _dedicated("core"),
            "affinity": _affinity("core", kind)}  # fmt: skip
    apps = f"/apis/apps/v1/namespaces/{NAMESPACE}"
    for name in ("hub", "proxy"):
        rig.api.post(f"{apps}/deployments", _controller(name, core, replicas=1))
    pause = {"containers": [{"name": "pause", "image": "none"}], "tolerations": _dedicated("user")}
    rig.api.post(f"{apps}/daemonsets", _controller("continuous-image-puller", pause))


def _of_user(requests: Json, priority: str) -> Json:
    spec = {
        "schedulerName": USER_SCHEDULER, "tolerations": _dedicated("user"),
        "affinity": _affinity("user", "prefer"), "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
    }  # fmt: skip
    return {**spec, **({"priorityClassName": priority} if priority else {})}


def add_placeholders(rig: Rig, count: int, priority: str = "") -> str:
    """Creates the StatefulSet of user placeholders (preemptible pods). Returns its path."""
    own = values()["singleuser"]
    requests = {"cpu": str(own["cpu"]["guarantee"]), "memory": own["memory"]["guarantee"]}
    spec = {**_of_user(requests, priority), "terminationGracePeriodSeconds": 0}
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
    more = {"replicas": count, "podManagementPolicy": "Parallel", "serviceName": "user-placeholder"}
    rig.api.post(path, _controller("user-placeholder", spec, **more))
    return f"{path}/user-placeholder"


def spawn(rig: Rig, number: int, priority: str = "") -> str:
    """Creates a user's pod once, as KubeSpawner does, which takes a G for 2**30 bytes. Returns the
    API server's message if it refuses the pod, else an empty string."""
    own = values()["singleuser"]
    memory = int(own["memory"]["guarantee"].removesuffix("G")) * 2**30
    spec = _of_user({"cpu": str(own["cpu"]["guarantee"]), "memory": str(memory)}, priority)
    labels = {"app": "jupyterhub", "component": "singleuser-server",
              "hub.jupyter.org/username": f"user{number}"}  # fmt: skip
    metadata = {"name": f"jupyter-user{number}", "labels": labels}
    try:
        rig.api.post(pods_of(NAMESPACE), {"metadata": metadata, "spec": spec})
    except ApiError as error:
        assert error.code == 403, error
        return error.text
    return ""


def pods_with(rig: Rig, component: str) -> list[Json]:
    """Returns the pods with this component label of the chart."""
    return [pod for pod in rig.pods(NAMESPACE)
            if pod["metadata"]["labels"].get("component") == component]  # fmt: skip


def running(rig: Rig, component: str = "singleuser-server") -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in pods_with(rig, component))


def end_servers(rig: Rig) -> None:
    """Deletes the pods of all users, as jupyterhub-idle-culler does with idle ones."""
    selector = "labelSelector=component%3Dsingleuser-server"
    rig.api.ask("DELETE", f"{pods_of(NAMESPACE)}?{selector}")
