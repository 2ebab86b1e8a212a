"""The reads from an API server that only `dnm check` and `dnm explain` need: permissions, release,
clock, and the end of a pod."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from urllib.parse import quote

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube import objects
from dnm.kube.objects import ListPage
from dnm.kube.requests import ApiRequests, path_of


class PodEnd(msgspec.Struct, frozen=True):
    """The phase of a pod, and the reason and message in its status."""

    phase: str = ""
    reason: str = ""
    message: str = ""


class _OnlyStatus(msgspec.Struct, frozen=True):
    status: PodEnd = PodEnd()


class _Allowed(msgspec.Struct, frozen=True):
    allowed: bool


class _Review(msgspec.Struct, frozen=True):
    kind: Literal["SelfSubjectAccessReview"]
    status: _Allowed


def can_i(
    api: ApiRequests,
    verb: str,
    resource: str,
    namespace: str,
    group: str = "",
    subresource: str = "",
    name: str = "",
) -> bool:
    """Returns whether dnm has this permission, by a SelfSubjectAccessReview. An empty namespace
    means the entire cluster, an empty name every object."""
    attributes = {
        "verb": verb,
        "resource": resource,
        "namespace": namespace,
        "group": group,
        "subresource": subresource,
        "name": name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    rule = "create selfsubjectaccessreviews"
    with api.asking(f"check whether dnm may {verb} {resource}", rule), fault_point("kube.can_i"):
        answer = api.session.ask(path, body)
        return msgspec.json.decode(answer.body, type=_Review).status.allowed


def has_api(api: ApiRequests, version: str) -> bool:
    """Returns whether the server has this version of an API group. Raises KubeError."""
    with api.asking(f"look up the API {version}", "get /apis"), fault_point("kube.version"):
        return api.read_or_none(f"/apis/{version}") is not None


def read_version(api: ApiRequests) -> str:
    """Returns the server's version, e.g. v1.33.1. Raises KubeError."""
    with api.asking("read the server's version", "get /version"), fault_point("kube.version"):
        return objects.read_version(api.session.read("/version").body)


def read_server_time(api: ApiRequests) -> datetime:
    """Returns the time of the server's clock, to the second. Raises KubeError."""
    with api.asking("read the server's time", "get /version"), fault_point("kube.server_time"):
        answer = api.session.read("/version")
        if answer.answered_at is None:
            raise ValueError(f"its header Date is {answer.date!r}")
        return answer.answered_at


def read_pod_end(api: ApiRequests, namespace: str, name: str) -> PodEnd | None:
    """Returns a pod's phase, reason and message, or None without such a pod. Raises KubeError."""
    path = path_of("pods", namespace=namespace)
    chosen = quote(f"metadata.name={name}", safe="")
    task = f"read pod {namespace}/{name}"
    with api.asking(task, "list pods"), fault_point("kube.list_pods"):
        answer = api.read_or_none(f"{path}?fieldSelector={chosen}")
        ends = msgspec.json.decode(answer.body, type=ListPage[_OnlyStatus]).items if answer else []
        return ends[0].status if ends else None
