"""Deployments in the API, for the validation load of `dnm test-load`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.objects import Metadata
from dnm.kube.requests import ApiRequests, List
from dnm.kube.session import MERGE_PATCH
from dnm.model.cluster import Deployment


def create_deployment(api: ApiRequests, namespace: str, body: Mapping[str, Any]) -> Deployment:
    """Creates from the object's JSON form. Raises KubeConflict if the name is taken."""
    what = f"create a Deployment in namespace {namespace}"
    with api.changing(what, "create deployments"), fault_point("kube.create_deployment"):
        answer = api.session.write("POST", _path_of(namespace), body)
        return _read(answer.body)


def list_deployments(
    api: ApiRequests, namespace: str, label_selector: str
) -> tuple[Deployment, ...]:
    """The Deployments of a namespace, or where it is empty of all, that the selector selects.
    Raises KubeError."""
    where = f"namespace {namespace}" if namespace else "all namespaces"
    what = f"list the Deployments of {where}"
    with api.asking(what, "list deployments"), fault_point("kube.list_deployments"):
        query = {"labelSelector": label_selector}
        deployments = List(_path_of(namespace), "DeploymentList", query)
        return tuple(api.collect(deployments, _read_page))


def scale_deployment(api: ApiRequests, namespace: str, name: str, replicas: int) -> Deployment:
    """Sets the number of replicas. Raises KubeError."""
    body = {"spec": {"replicas": replicas}}
    path = f"{_path_of(namespace)}/{quote(name, safe='')}"
    what = f"scale Deployment {namespace}/{name}"
    with api.changing(what, "patch deployments"), fault_point("kube.scale_deployment"):
        answer = api.session.write("PATCH", path, body, MERGE_PATCH)
        return _read(answer.body)


def delete_deployment(api: ApiRequests, namespace: str, name: str) -> bool:
    """Deletes it with its pods; False: there was none. Raises KubeError."""
    path = f"{_path_of(namespace)}/{quote(name, safe='')}"
    what = f"delete Deployment {namespace}/{name}"
    with api.changing(what, "delete deployments"), fault_point("kube.delete_deployment"):
        return api.delete(path, "Deployment")


def _path_of(namespace: str) -> str:
    within = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    return f"/apis/apps/v1/{within}deployments"


class _DeploymentSpec(msgspec.Struct, frozen=True):
    replicas: int | None = None


class _DeploymentStatus(msgspec.Struct, frozen=True, rename="camel"):
    ready_replicas: int | None = None


class _Deployment(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()


class _WholeDeployment(_Deployment, frozen=True, kw_only=True):
    kind: Literal["Deployment"]


class _DeploymentPage(msgspec.Struct, frozen=True):
    items: list[_Deployment]


def _read(body: memoryview | bytes) -> Deployment:
    return _reduce(msgspec.json.decode(body, type=_WholeDeployment))


def _read_page(page: memoryview | bytes) -> list[Deployment]:
    return [_reduce(item) for item in msgspec.json.decode(page, type=_DeploymentPage).items]


def _reduce(item: _Deployment) -> Deployment:
    return Deployment(
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        replicas=1 if item.spec.replicas is None else item.spec.replicas,
        ready=item.status.ready_replicas or 0,
        created=item.metadata.creation_timestamp or "",
        labels=item.metadata.labels or {},
    )
