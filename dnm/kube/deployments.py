"""The Deployments that `dnm test-load` creates, and the reasons for which their pods wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.errors import clean
from dnm.kube.objects import ListPage, Metadata, check_kind
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.kube.session import JSON, MERGE_PATCH

_API = "/apis/apps/v1"
_MOST_LOADS = 1000  # Deployments of one namespace
_MOST_PODS = 100  # pending pods for which dnm reads the reason
_LONGEST = 200  # characters of a reason


class _Metadata(Metadata, frozen=True, rename="camel"):
    generation: int = 0


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 1


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    conditions: list[_Condition] | None = None


class Deployment(msgspec.Struct, frozen=True):
    """A Deployment, with the fields that `dnm test-load` needs."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def running(self) -> int:
        """Returns how many of the Deployment's pods are Ready and follow its current template."""
        if self.status.observed_generation < self.metadata.generation:
            return 0
        return min(self.status.updated_replicas, self.status.ready_replicas, self.spec.replicas)

    @property
    def failure(self) -> str:
        """Returns why the Deployment's pods cannot be created; empty if they can be created."""
        failed = [
            condition
            for condition in self.status.conditions or ()
            if condition.type == "ReplicaFailure"
        ]
        return clean(failed[0].message, _LONGEST) if failed and failed[0].status == "True" else ""


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None


class _Container(msgspec.Struct, frozen=True):
    state: _State = _State()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[_Condition] | None = None
    container_statuses: list[_Container] | None = None


class _Pod(msgspec.Struct, frozen=True):
    status: _PodStatus = _PodStatus()


def list_deployments(api: ApiRequests, namespace: str, selector: str) -> list[Deployment]:
    """Returns the Deployments of a namespace that match the label selector. Raises KubeError."""
    deployments = List(_path(namespace), "DeploymentList", {"labelSelector": selector})
    task = f"list the Deployments of namespace {namespace}"
    with api.asking(task, "list deployments"), fault_point("kube.list_deployments"):
        return api.list_items(deployments, Deployment, most=_MOST_LOADS)


def create_deployment(api: ApiRequests, manifest: Mapping[str, Any]) -> None:
    """Creates a Deployment. Raises KubeConflict if the name is in use, and ApiRefused if the server
    refuses it; its status is 404 if the namespace does not exist."""
    namespace = manifest["metadata"]["namespace"]
    task = f"create a Deployment in namespace {namespace}"
    with api.changing(task, "create deployments"), fault_point("kube.create_deployment"):
        check_kind(api.session.write("POST", _path(namespace), manifest).body, "Deployment")


def change_deployment(api: ApiRequests, current: Deployment, patch: Mapping[str, Any]) -> None:
    """Sends a merge patch for the Deployment with this uid. Raises KubeError."""
    metadata = current.metadata
    body = {**patch, "metadata": {**patch["metadata"], "uid": metadata.uid}}
    task = f"change Deployment {metadata.namespace}/{metadata.name}"
    with api.changing(task, "patch deployments"), fault_point("kube.change_deployment"):
        path = _path(metadata.namespace, metadata.name)
        api.change("PATCH", path, body, ("Deployment",), MERGE_PATCH)


def delete_deployment(api: ApiRequests, current: Deployment) -> bool:
    """Deletes the Deployment with this uid, and its pods. Returns False if it did not exist. Raises
    KubeError."""
    metadata = current.metadata
    body = {"propagationPolicy": "Background", "preconditions": {"uid": metadata.uid}}
    task = f"delete Deployment {metadata.namespace}/{metadata.name}"
    with api.changing(task, "delete deployments"), fault_point("kube.delete_deployment"):
        path = _path(metadata.namespace, metadata.name)
        return api.change("DELETE", path, body, ("Status", "Deployment"), JSON)


def count_wait_reasons(api: ApiRequests, namespace: str, selector: str) -> Counter[str]:
    """Counts the selected pending pods by the reason for which they are pending. Reads at most
    `_MOST_PODS` pods. Raises KubeError."""
    query = {"labelSelector": selector, "fieldSelector": "status.phase=Pending",
             "limit": str(_MOST_PODS)}  # fmt: skip
    path = path_of("pods", namespace=namespace)
    task = f"list the pods of namespace {namespace}"
    with api.asking(task, "list pods"), fault_point("kube.list_pods"):
        page = api.session.read(f"{path}?{urlencode(query)}").body
        pods = msgspec.json.decode(page, type=ListPage[_Pod]).items
        return Counter(_wait_reason(pod.status) for pod in pods)


def _wait_reason(status: _PodStatus) -> str:
    waiting = [
        container_status.state.waiting
        for container_status in status.container_statuses or ()
        if container_status.state.waiting
    ]
    if waiting:
        text = ": ".join(filter(None, (waiting[0].reason, waiting[0].message)))
    else:
        unmet = (condition for condition in status.conditions or () if condition.status != "True")
        text = next((condition.message or condition.reason for condition in unmet), "")
    return clean(text, _LONGEST) or "no scheduler has reported a reason"


def _path(namespace: str, name: str | None = None) -> str:
    return path_of("deployments", name, namespace, _API)
