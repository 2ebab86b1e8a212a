"""The list and patch of objects that only some queue systems need, decoded to the types of their
callers, and the shape of a pod template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.namespace_reads import reading
from dnm.kube.objects import ListPage, check_kind
from dnm.kube.pod_fields import Spec, Status
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.kube.session import MERGE_PATCH
from dnm.kube.shapes import ShapeCache
from dnm.model.pod import PodShape
from dnm.model.quantity import QuantityError

T = TypeVar("T")
U = TypeVar("U")
MOST_OBJECTS = 20_000  # of one kind in one namespace
_KINDS = {
    "ResourceQuota": ("/api/v1", "resourcequotas"),
    "LimitRange": ("/api/v1", "limitranges"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "Job": ("/apis/batch/v1", "jobs"),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses"),  # cluster-wide
}


class TypedObjects:
    """The client of ResourceQuotas and workloads. Each error names the missing permission."""

    def __init__(self, api: ApiRequests) -> None:
        self._api = api
        self._shapes = ShapeCache()

    def list_objects(
        self, kind: str, namespace: str, of: type[T], read: Callable[[T], U | None]
    ) -> list[U]:
        """Returns the objects of a kind in a namespace (empty: of a cluster-wide kind), each
        decoded as `of` and converted by `read`, which returns None for an object to leave out. A
        raw part of an object is valid only in `read`. Raises KubeError, also for more than
        MOST_OBJECTS that are not left out."""
        api, plural = _KINDS[kind]
        decode = msgspec.json.Decoder(ListPage[of]).decode  # type: ignore[valid-type]

        def read_page(page: memoryview) -> Iterable[U]:
            return (item for item in map(read, decode(page).items) if item is not None)

        listing = List(path_of(plural, namespace=namespace or None, api=api), f"{kind}List")
        task = f"list the {plural}" + (f" of namespace {namespace}" if namespace else "")
        asking = self._api.asking(task, f"list {plural}")
        with reading(self._api, namespace), asking, fault_point("kube.list_objects"):
            return self._api.collect(listing, read_page, MOST_OBJECTS)

    def patch_object(
        self, kind: str, namespace: str, name: str, patch: Mapping[str, object]
    ) -> None:
        """Sends a merge patch. If it has a resourceVersion, the API server applies it to that
        version only. Raises KubeConflict if the object has another one, KubeError otherwise."""
        api, plural = _KINDS[kind]
        path = path_of(plural, name, namespace, api)
        changing = self._api.changing(f"patch {kind} {namespace}/{name}", f"patch {plural}")
        with changing, fault_point("kube.patch_object"):
            answer = self._api.session.write("PATCH", path, patch, MERGE_PATCH)
            check_kind(answer.body, kind)

    def read_shape(self, spec: bytes) -> PodShape:
        """Returns the shape of the pods that a pod template creates. If dnm cannot count such a
        pod, marks the shape as cut, like that of a pod with too many rules."""
        try:
            decoded = msgspec.json.decode(spec, type=Spec)
            requested = self._shapes.find_request(decoded, Status())
            return self._shapes.find_constrained(decoded, requested, {})
        except (msgspec.MsgspecError, QuantityError, ValueError):
            return self._shapes.cut(PodShape(request={"pods": 1}))
