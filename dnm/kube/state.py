"""The objects of an instance in Kubernetes: its Lease, and the Secret that may hold its registry.

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
from dnm.model.history import recorded_moment
from dnm.model.lease import HIGHEST, KEYS, LONGEST_KEPT, Lease, StoredRegistry
from dnm.model.printable import printable

_NUMBER = "dynamic-node-manager/number"
_OF_LEASE = {
    word: f"dynamic-node-manager/{word}"
    for word in ("run", "home", "boot", "registry", "last", "acted", "kept")
}
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
    """The Secret and the Lease of one name, each in its namespace. Everything raises KubeError, and
    a write KubeConflict if another client wrote in between."""

    def __init__(self, api: ApiRequests, namespace: str, lease_namespace: str, name: str) -> None:
        self._api, self._name = api, name
        self._namespaces = {_SECRETS: namespace, _LEASES: lease_namespace}
        self.secret_name, self.lease_name = f"{namespace}/{name}", f"{lease_namespace}/{name}"

    def read_registry(self) -> StoredRegistry | None:
        """Returns what stands there; None: there is no such Secret."""
        what = f"read Secret {self.secret_name}"
        with self._api.asking(what, "get secrets"), fault_point("kube.read_state"):
            found = self._api.read_or_none(self._path(_SECRETS, self._name))
            return None if found is None else self._read_secret(found.body)

    def write_registry(self, stored: StoredRegistry) -> StoredRegistry:
        """Changes it under its version, or creates it; returns it with the new version."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self._metadata(_SECRETS, stored.version, {_NUMBER: str(stored.number)}),
            "data": {key: stored.data.get(key) for key in KEYS},
            **({} if stored.version else {"type": _TYPE}),
        }
        rule = "patch secrets" if stored.version else "create secrets"
        with self._writing("Secret", rule), fault_point("kube.write_state"):
            return self._read_secret(self._write(_SECRETS, stored.version, body).body)

    def read_lease(self) -> Lease:
        """Returns the Lease; without a version where there is none."""
        what = f"read Lease {self.lease_name}"
        with self._api.asking(what, "get leases"), fault_point("kube.read_lease"):
            found = self._api.read_or_none(self._path(_LEASES, self._name))
            return Lease() if found is None else self._read_lease(found)

    def write_lease(self, lease: Lease) -> Lease:
        """Changes it under its version, or creates it; returns it with the new version."""
        named = {
            "run": lease.run,
            "home": lease.home,
            "boot": lease.boot,
            "registry": lease.registry,
            "last": lease.last,
            "acted": lease.acted.isoformat() if lease.acted else "",
            "kept": lease.kept,
        }
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
            "metadata": self._metadata(
                _LEASES, lease.version, {_OF_LEASE[key]: named[key] or None for key in named}
            ),
            "spec": spec,
        }
        rule = "patch leases" if lease.version else "create leases"
        with self._writing("Lease", rule), fault_point("kube.write_lease"):
            return self._read_lease(self._write(_LEASES, lease.version, body))

    # --- one of the two -----------------------------------------------------------------------

    def _writing(self, kind: str, rule: str) -> AbstractContextManager[None]:
        name = self.lease_name if kind == "Lease" else self.secret_name
        what = f"{rule.partition(' ')[0]} {kind} {name}"
        return self._api.changing(what, rule)

    def _write(self, kind: tuple[str, str], version: str, body: dict[str, Any]) -> ApiAnswer:
        write = self._api.session.write
        if version:
            return write("PATCH", self._path(kind, self._name), body, MERGE_PATCH)
        return write("POST", self._path(kind), _without_none(body))

    def _path(self, kind: tuple[str, str], name: str | None = None) -> str:
        plural, api = kind
        return path_of(plural, name, self._namespaces[kind], api)

    def _metadata(
        self, kind: tuple[str, str], version: str, annotations: Mapping[str, str | None]
    ) -> dict[str, Any]:
        known = {"resourceVersion": version} if version else {}
        namespace = self._namespaces[kind]
        return {"namespace": namespace, "name": self._name, "annotations": annotations, **known}

    def _read_secret(self, body: memoryview | bytes) -> StoredRegistry:
        found = msgspec.json.decode(body, type=_Secret)
        self._check(_SECRETS, found.metadata)
        return StoredRegistry(
            version=found.metadata.resource_version,
            number=_read_number((found.metadata.annotations or {}).get(_NUMBER, "-1")),
            data={key: text for key, text in (found.data or {}).items() if key in KEYS},
        )

    def _read_lease(self, answer: ApiAnswer) -> Lease:
        try:
            found = msgspec.json.decode(answer.body, type=_Lease)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{error}: delete it if no other dnm acts as this instance") from error
        self._check(_LEASES, found.metadata)
        annotations, spec = found.metadata.annotations or {}, found.spec
        texts = {name: annotations.get(key, "") for name, key in _OF_LEASE.items()}
        acted = recorded_moment(texts.pop("acted"))
        if len(texts["kept"]) > LONGEST_KEPT:
            raise ValueError(f"its annotation {_OF_LEASE['kept']} is too long")
        return Lease(
            version=found.metadata.resource_version,
            holder=spec.holder_identity or "",
            number=spec.lease_transitions or 0,
            seconds=spec.lease_duration_seconds or 0,
            acquired=spec.acquire_time or "",
            renewed=spec.renew_time or "",
            acted=acted,
            read_at=answer.told_at,
            **texts,
        )

    def _check(self, kind: tuple[str, str], metadata: Metadata) -> None:
        """Raises ValueError if the answer is another object, or has no version."""
        if (metadata.namespace, metadata.name) != (self._namespaces[kind], self._name):
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
