"""Deployments in the API, for the validation load of `dnm test-load`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from dnm.host.fault_points import fault_point
from dnm.kube import objects as kube_objects
from dnm.kube.lists import List
from dnm.kube.requests import ApiRequests
from dnm.kube.session import MERGE_PATCH
from dnm.model.cluster import Deployment


def create_deployment(api: ApiRequests, namespace: str, body: Mapping[str, Any]) -> Deployment:
    """Creates from the object's JSON form. Raises KubeConflict if the name is taken."""
    what = f"create a Deployment in namespace {namespace}"
    with api.changing(what, "create deployments"), fault_point("kube.create_deployment"):
        answer = api.session.write("POST", _path_of(namespace), body)
        return kube_objects.read_deployment(answer.body)


def list_deployments(
    api: ApiRequests, namespace: str, label_selector: str
) -> tuple[Deployment, ...]:
    """The Deployments of a namespace, or where it is empty of all, that the selector selects.
    Raises KubeError."""
    found: list[Deployment] = []

    def restart() -> Callable[[memoryview], None]:
        found.clear()
        return lambda page: found.extend(kube_objects.read_deployments(page))

    where = f"namespace {namespace}" if namespace else "all namespaces"
    what = f"list the Deployments of {where}"
    with api.asking(what, "list deployments"), fault_point("kube.list_deployments"):
        query = {"labelSelector": label_selector}
        api.list_pages(List(_path_of(namespace), "DeploymentList", query), restart)
    return tuple(found)


def scale_deployment(api: ApiRequests, namespace: str, name: str, replicas: int) -> Deployment:
    """Sets the number of replicas. Raises KubeError."""
    body = {"spec": {"replicas": replicas}}
    path = f"{_path_of(namespace)}/{quote(name, safe='')}"
    what = f"scale Deployment {namespace}/{name}"
    with api.changing(what, "patch deployments"), fault_point("kube.scale_deployment"):
        answer = api.session.write("PATCH", path, body, MERGE_PATCH)
        return kube_objects.read_deployment(answer.body)


def delete_deployment(api: ApiRequests, namespace: str, name: str) -> bool:
    """Deletes it with its pods; False: there was none. Raises KubeError."""
    path = f"{_path_of(namespace)}/{quote(name, safe='')}"
    what = f"delete Deployment {namespace}/{name}"
    with api.changing(what, "delete deployments"), fault_point("kube.delete_deployment"):
        return api.delete(path, "Deployment")


def _path_of(namespace: str) -> str:
    within = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    return f"/apis/apps/v1/{within}deployments"
