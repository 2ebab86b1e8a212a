"""The list and the writes (create, server-side apply, patch) of cluster-wide objects. Some of these
objects belong to dnm, and of others only some fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.objects import ListPage, check_kind
from dnm.kube.requests import List, path_of
from dnm.kube.session import JSON, MERGE_PATCH
from dnm.kube.typed_objects import TypedObjects
from dnm.model.kueue import CAPACITY_API, KUEUE_API

T = TypeVar("T")
U = TypeVar("U")
APPLY_PATCH = "application/apply-patch+yaml"
MOST_OBJECTS = 250_000  # of one kind; a plain pod in Kueue has an object of its own
_PLURALS = {
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "ResourceFlavor": "resourceflavors",
    "LocalQueue": "localqueues",
    "Workload": "workloads",
    "CapacityProvider": "capacityproviders",
}
_ALPHA = {"CapacityProvider": CAPACITY_API}  # only its status belongs to dnm


def _path(kind: str, name: str | None = None) -> str:
    return path_of(_PLURALS[kind], name, api=f"/apis/{_ALPHA.get(kind, KUEUE_API)}")


class OwnedObjects(TypedObjects):
    """The client of Kueue's cluster-wide objects. Each error names the missing permission."""

    def list_all(self, kind: str, of: type[T], read: Callable[[T], U]) -> list[U]:
        """Returns all objects of a kind in all namespaces, each decoded as `of` and converted by
        `read`. A raw part of an object is valid only in `read`. Raises KubeError."""
        plural = _PLURALS[kind]
        decode = msgspec.json.Decoder(ListPage[of]).decode  # type: ignore[valid-type]

        def read_page(page: memoryview) -> Iterable[U]:
            return map(read, decode(page).items)

        listing = List(_path(kind), f"{kind}List")
        requests, version = self._api, _ALPHA.get(kind, KUEUE_API).rpartition("/")[2]
        asking = requests.asking(f"list the {plural} of Kueue ({version})", f"list {plural}")
        with asking, fault_point("kube.list_all"):
            return requests.collect(listing, read_page, MOST_OBJECTS)

    def create_object(self, manifest: Mapping[str, Any]) -> None:
        """Creates an object. Raises KubeConflict if it exists, KubeError otherwise."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        plural = _PLURALS[kind]
        changing = self._api.changing(f"create {kind} {name}", f"create {plural}")
        with changing, fault_point("kube.create_object"):
            check_kind(self._api.session.write("POST", _path(kind), manifest, JSON).body, kind)

    def apply_object(
        self, manifest: Mapping[str, Any], manager: str, dry_run: bool = False
    ) -> None:
        """Applies an object on the server as the field manager `manager`, which also takes over
        fields of other managers. The manifest has the resourceVersion that the caller has read.
        Raises KubeConflict if the object has another version, KubeError otherwise."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        query = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        part = "/status" if kind in _ALPHA else ""
        path = f"{_path(kind, name)}{part}?{urlencode(query)}"
        changing = self._api.changing(f"apply {kind} {name}", f"patch {_PLURALS[kind]}{part}")
        with changing, fault_point("kube.apply_object"):
            check_kind(self._api.session.write("PATCH", path, manifest, APPLY_PATCH).body, kind)

    def change_object(self, kind: str, name: str, patch: object, query: str = "") -> None:
        """Sends a merge patch, or a JSON patch (a list). Raises KubeConflict or KubeError."""
        path = _path(kind, name) + query
        changing = self._api.changing(f"patch {kind} {name}", f"patch {_PLURALS[kind]}")
        with changing, fault_point("kube.change_object"):
            form = "application/json-patch+json" if isinstance(patch, list) else MERGE_PATCH
            check_kind(self._api.session.write("PATCH", path, patch, form).body, kind)
