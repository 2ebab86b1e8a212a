"""The two objects of an instance whose registry is kept in Kubernetes: a Secret and a Lease.

Each is patched under the resourceVersion that it was read with, and created where it has none: of
two that write at once the API server refuses one. What others put there stays: labels, annotations,
keys. The rules of a Lease's fields are those of kubernetes pkg/apis/coordination/validation, 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.objects import Metadata, path_of
from dnm.kube.requests import ApiRequests
from dnm.kube.session import MERGE_PATCH, ApiAnswer
from dnm.model.lease import HIGHEST, KEYS, RunLease, StoredRegistry
from dnm.model.printable import printable

_NUMBER = "dynamic-node-manager/number"
_RUN, _HOME, _BOOT = (f"dynamic-node-manager/{word}" for word in ("run", "home", "boot"))
_TYPE = "dynamic-node-manager/registry"  # can't be changed once it is made
_SECRETS, _LEASES = ("secrets", "/api/v1"), ("leases", "/apis/coordination.k8s.io/v1")


class _Secret(msgspec.Struct, frozen=True):
    kind: Literal["Secret"]
    metadata: Metadata
    data: dict[str, str] | None = None


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


class StateObjects:
    """The Secret and the Lease of one name. Everything raises KubeError, and a write KubeConflict
    where somebody wrote in between."""

    def __init__(self, api: ApiRequests, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self.full_name = f"{namespace}/{name}"

    def read_registry(self) -> StoredRegistry | None:
        """Returns what stands there; None: there is no such Secret."""
        what = f"read Secret {self.full_name}"
        with self._api.asking(what, "get secrets"), fault_point("kube.read_state"):
            found = self._api.read_or_none(self._path(_SECRETS, self._name))
            return None if found is None else self._read_secret(found.body)

    def write_registry(self, stored: StoredRegistry) -> StoredRegistry:
        """Changes it under its version, or creates it; returns it with the new version."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self._metadata(stored.version, {_NUMBER: str(stored.number)}),
            "data": {key: stored.data.get(key) for key in KEYS},
            **({} if stored.version else {"type": _TYPE}),
        }
        rule = "patch secrets" if stored.version else "create secrets"
        with self._writing("Secret", rule), fault_point("kube.write_state"):
            return self._read_secret(self._write(_SECRETS, stored.version, body).body)

    def read_lease(self) -> RunLease:
        """Returns the Lease; without a version where there is none."""
        what = f"read Lease {self.full_name}"
        with self._api.asking(what, "get leases"), fault_point("kube.read_lease"):
            found = self._api.read_or_none(self._path(_LEASES, self._name))
            return RunLease() if found is None else self._read_lease(found.body)

    def write_lease(self, lease: RunLease) -> RunLease:
        """Changes it under its version, or creates it; returns it with the new version."""
        named = {_RUN: lease.run, _HOME: lease.home, _BOOT: lease.boot}
        spec: dict[str, Any] = {
            "leaseDurationSeconds": lease.seconds,
            "leaseTransitions": lease.number,
            "acquireTime": lease.acquired or None,
            "renewTime": lease.renewed or None,
            "holderIdentity": lease.holder or None,
        }
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self._metadata(lease.version, {k: v or None for k, v in named.items()}),
            "spec": spec,
        }
        rule = "patch leases" if lease.version else "create leases"
        with self._writing("Lease", rule), fault_point("kube.write_lease"):
            return self._read_lease(self._write(_LEASES, lease.version, body).body)

    # --- one of the two -----------------------------------------------------------------------

    def _writing(self, kind: str, rule: str) -> AbstractContextManager[None]:
        what = f"{rule.partition(' ')[0]} {kind} {self.full_name}"
        return self._api.changing(what, rule)

    def _write(self, kind: tuple[str, str], version: str, body: dict[str, Any]) -> ApiAnswer:
        write = self._api.session.write
        if version:
            return write("PATCH", self._path(kind, self._name), body, MERGE_PATCH)
        return write("POST", self._path(kind), _without_none(body))

    def _path(self, kind: tuple[str, str], name: str | None = None) -> str:
        plural, api = kind
        return path_of(plural, name, self._namespace, api)

    def _metadata(self, version: str, annotations: Mapping[str, str | None]) -> dict[str, Any]:
        known = {"resourceVersion": version} if version else {}
        return {
            "namespace": self._namespace, "name": self._name, "annotations": annotations, **known
        }  # fmt: skip

    def _read_secret(self, body: memoryview | bytes) -> StoredRegistry:
        found = msgspec.json.decode(body, type=_Secret)
        self._check(found.metadata)
        return StoredRegistry(
            version=found.metadata.resource_version,
            number=_read_number((found.metadata.annotations or {}).get(_NUMBER, "-1")),
            data={key: text for key, text in (found.data or {}).items() if key in KEYS},
        )

    def _read_lease(self, body: memoryview | bytes) -> RunLease:
        found = msgspec.json.decode(body, type=_Lease)
        self._check(found.metadata)
        annotations, spec = found.metadata.annotations or {}, found.spec
        return RunLease(
            version=found.metadata.resource_version,
            holder=spec.holder_identity or "",
            run=annotations.get(_RUN, ""),
            home=annotations.get(_HOME, ""),
            boot=annotations.get(_BOOT, ""),
            number=spec.lease_transitions or 0,
            seconds=spec.lease_duration_seconds or 0,
            acquired=spec.acquire_time or "",
            renewed=spec.renew_time or "",
        )

    def _check(self, metadata: Metadata) -> None:
        """Raises ValueError where the answer is another object, or of no version."""
        if (metadata.namespace, metadata.name) != (self._namespace, self._name):
            raise ValueError(f"it is {metadata.namespace}/{metadata.name}"[:200])
        if not metadata.resource_version:
            raise ValueError("it is an object without a resourceVersion")


def _read_number(text: str) -> int:
    """Raises ValueError for what no run can have written."""
    is_number = len(text) <= len(str(HIGHEST)) and text.removeprefix("-").isdecimal()
    if is_number and -1 <= int(text) < HIGHEST:
        return int(text)
    raise ValueError(
        f"its annotation {_NUMBER} is {printable(text, 40)!r}, which is no number of a run: remove "
        "the annotation"
    )


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
