"""The Lease of an instance in Kubernetes.

dnm patches it under the resourceVersion that it read, and creates it if there is none. So of two
simultaneous writes the API server refuses one. Labels and annotations of other clients stay. The
rules for its fields are those of kubernetes pkg/apis/coordination/validation, 1.34."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.errors import ApiRefused
from dnm.kube.objects import Metadata
from dnm.kube.requests import ApiRequests, path_of
from dnm.kube.session import MERGE_PATCH, ApiAnswer
from dnm.model.lease import LONGEST_KEPT, Lease
from dnm.model.value import Moment

_OF_LEASE = {
    word: f"dynamic-node-manager/{word}"
    for word in ("run", "home", "boot", "registry", "last", "acted", "kept")
}
_API = "/apis/coordination.k8s.io/v1"


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    kind: Literal["Lease"]
    metadata: Metadata
    spec: _LeaseSpec = _LeaseSpec()


class LeaseObject:
    """The client of the Lease with one name. Each method raises KubeError, and a write raises
    KubeConflict if another client wrote in between."""

    def __init__(self, api: ApiRequests, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self.lease_name = f"{namespace}/{name}"

    def read_lease(self) -> Lease:
        """Returns the Lease. If there is none, its version is empty."""
        task = f"read Lease {self.lease_name}"
        with self._api.asking(task, "get leases"), fault_point("kube.read_lease"):
            answer = self._api.read_or_none(path_of("leases", self._name, self._namespace, _API))
            return Lease() if answer is None else self._decode(answer)

    def write_lease(self, lease: Lease, *, is_dry_run: bool = False) -> Lease:
        """Patches the Lease under its version, or creates it. Returns the Lease as stored. With
        `is_dry_run`, the server only checks whether a Lease without a version can be created."""
        named = {
            "run": lease.run,
            "home": lease.home,
            "boot": lease.boot,
            "registry": lease.registry,
            "last": lease.last,
            "acted": lease.acted.isoformat() if lease.acted else "",
            "kept": lease.kept,
        }
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "namespace": self._namespace,
                "name": self._name,
                "annotations": {_OF_LEASE[key]: named[key] or None for key in named},
            },
            "spec": {
                "leaseDurationSeconds": lease.seconds,
                "leaseTransitions": lease.number,
                "acquireTime": lease.acquired or None,
                "renewTime": lease.renewed or None,
                "holderIdentity": lease.holder or None,
            },
        }
        rule = "patch leases" if lease.version else "create leases"
        task = f"{rule.partition(' ')[0]} Lease {self.lease_name}"
        with self._api.changing(task, rule), fault_point("kube.write_lease"):
            place = path_of("leases", None, self._namespace, _API)
            place += "?dryRun=All" if is_dry_run else ""
            try:
                answer = write_version(self._api, place, lease.version, body)
                return lease if is_dry_run else self._decode(answer)
            except ApiRefused as error:
                if error.status != 404 or lease.version:
                    raise
                hint = f"create it: kubectl create namespace {self._namespace}"
                raise ApiRefused(404, error.reason, f"{error.message}; {hint}") from error

    def _decode(self, answer: ApiAnswer) -> Lease:
        try:
            document = msgspec.json.decode(answer.body, type=_Lease)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{error}: delete it if no other dnm acts as this instance") from error
        check_identity(document.metadata, self._namespace, self._name)
        annotations, spec = document.metadata.annotations or {}, document.spec
        texts = {name: annotations.get(key, "") for name, key in _OF_LEASE.items()}
        acted: datetime | None = None
        with suppress(msgspec.ValidationError):  # another client may have written it
            acted = msgspec.convert(texts.pop("acted"), Moment)
        if len(texts["kept"]) > LONGEST_KEPT:
            raise ValueError(f"its annotation {_OF_LEASE['kept']} is too long")
        return Lease(
            version=document.metadata.resource_version,
            holder=spec.holder_identity or "",
            number=spec.lease_transitions or 0,
            seconds=spec.lease_duration_seconds or 0,
            acquired=spec.acquire_time or "",
            renewed=spec.renew_time or "",
            acted=acted,
            read_at=answer.answered_at,
            **texts,
        )


def check_identity(metadata: Metadata, namespace: str, name: str) -> None:
    """Raises ValueError if an answer has another object than the requested one, or no version."""
    if (metadata.namespace, metadata.name) != (namespace, name):
        raise ValueError(f"it is {metadata.namespace}/{metadata.name}"[:200])
    if not metadata.resource_version:
        raise ValueError("it is an object without a resourceVersion")


def write_version(api: ApiRequests, place: str, version: str, body: Mapping[str, Any]) -> ApiAnswer:
    """Patches an object below the path `place` if it is still at `version`, or creates it if
    `version` is empty. Raises the errors of `Session.write`."""
    if not version:
        return api.session.write("POST", place, _without_none(body))
    metadata = {**body["metadata"], "resourceVersion": version}
    path = f"{place}/{metadata['name']}"
    return api.session.write("PATCH", path, {**body, "metadata": metadata}, MERGE_PATCH)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
