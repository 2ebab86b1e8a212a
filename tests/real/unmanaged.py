"""A cluster without a queue system: kube-scheduler, etc/admission-policy.yaml, and node types with
a taint for their namespace."""

from __future__ import annotations

import json
from typing import Any

from tests.real.http_api import ApiError, Json
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import Site, plain_pod

KEY = "example.org/lent"
GUEST = "guest"  # a namespace that dnm does not monitor
EVERYTHING = {"operator": "Exists"}
NODE_TYPE = f"labels = {KEY}={{namespace}}\ntaints = {KEY}={{namespace}}:NoSchedule\n"
SECTION = f"[node_type:a]\nmemory = 256Gi\n{NODE_TYPE}"
UNMANAGED: dict[str, Any] = {
    "queue_system": "none", "namespace_queue_paths": None, "yunikorn_url": None,
    "instance_id": "prod",
}  # fmt: skip


def toleration(value: str) -> Json:
    return {"key": KEY, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def create(rig: Rig, namespace: str, name: str, cpu: str = "1", **spec: Any) -> Json:
    created: Json = rig.api.post(pods_of(namespace), plain_pod(name, cpu, "1Gi", **spec))
    return created


def refusal(rig: Rig, namespace: str, **spec: Any) -> str:
    """Returns the message with which the API server refuses a pod, or empty if it accepts it."""
    path = f"{pods_of(namespace)}?dryRun=All"
    try:
        rig.api.post(path, plain_pod("tried", "1", "1Gi", **spec))
    except ApiError as error:
        assert error.code == 403, error
        return error.text
    return ""


def apply_policies(rig: Rig) -> None:
    """Applies etc/admission-policy.yaml and waits until the API server has loaded all policies."""
    rig.shell(f"kubectl apply --server-side -f {REPOSITORY}/etc/admission-policy.yaml")
    path = f"{pods_of('dev')}?dryRun=All"

    def is_mutated() -> bool:
        tried = rig.api.post(path, plain_pod("tried", "1", "1Gi"))
        return toleration("dev") in tried["spec"]["tolerations"]

    rig.wait_for(is_mutated, "pods of dev get the toleration")
    rig.wait_for(lambda: refusal(rig, GUEST, tolerations=[EVERYTHING]), "other pods are refused")


def make_guest(rig: Rig) -> None:
    """Creates the namespace `guest`, and waits until pods can be created there."""
    rig.create("/api/v1/namespaces", {"metadata": {"name": GUEST}})
    account = f"/api/v1/namespaces/{GUEST}/serviceaccounts/default"
    rig.wait_for(lambda: rig.api.answers(account), "the namespace has its account")


def add_deployment(rig: Rig, name: str, replicas: int, manifest: Json) -> str:
    """Creates a Deployment in dev with pods of this size. Returns its path."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": manifest["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    path = "/apis/apps/v1/namespaces/dev/deployments"
    rig.api.post(path, {"metadata": {"name": name}, "spec": spec})
    return f"{path}/{name}"


def taint_nodes(site: Site) -> None:
    """Makes the site's converter register Nodes with the label and the taint of their type."""
    (site.directory / "dress").write_text(json.dumps({KEY: "NAMESPACE"}))


def places(rig: Rig, namespace: str) -> set[str | None]:
    """Returns the nodes of a namespace's pods; None stands for a pod without a node."""
    return {pod["spec"].get("nodeName") for pod in rig.pods(namespace)}
