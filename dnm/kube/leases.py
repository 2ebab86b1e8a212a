"""The Lease of an instance in Kubernetes.

It is patched under the resourceVersion that it was read with, and created if there is none: of two
that write at once the API server refuses one. Labels and annotations of other clients stay. The
rules of its fields are those of kubernetes pkg/apis/coordination/validation, 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.objects import Metadata, path_of
from dnm.kube.requests import ApiRequests
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
    """The Lease of one name. Everything raises KubeError, and a write KubeConflict if another
    client wrote in between."""

    def __init__(self, api: ApiRequests, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self.lease_name = f"{namespace}/{name}"

    def read_lease(self) -> Lease:
        """Returns the Lease; without a version where there is none."""
        what = f"read Lease {self.lease_name}"
        with self._api.asking(what, "get leases"), fault_point("kube.read_lease"):
            found = self._api.read_or_none(path_of("leases", self._name, self._namespace, _API))
            return Lease() if found is None else self._decode(found)

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
        what = f"{rule.partition(' ')[0]} Lease {self.lease_name}"
        with self._api.changing(what, rule), fault_point("kube.write_lease"):
            place = path_of("leases", None, self._namespace, _API)
            return self._decode(write_version(self._api, place, lease.version, body))

    def _decode(self, answer: ApiAnswer) -> Lease:
        try:
            found = msgspec.json.decode(answer.body, type=_Lease)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{error}: delete it if no other dnm acts as this instance") from error
        check_identity(found.metadata, self._namespace, self._name)
        annotations, spec = found.metadata.annotations or {}, found.spec
        texts = {name: annotations.get(key, "") for name, key in _OF_LEASE.items()}
        acted: datetime | None = None
        with suppress(msgspec.ValidationError):  # another client may have written it
            acted = msgspec.convert(texts.pop("acted"), Moment)
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


def check_identity(metadata: Metadata, namespace: str, name: str) -> None:
    """Raises ValueError if an answer is another object, or has no version."""
    if (metadata.namespace, metadata.name) != (namespace, name):
        raise ValueError(f"it is {metadata.namespace}/{metadata.name}"[:200])
    if not metadata.resource_version:
        raise ValueError("it is an object without a resourceVersion")


def write_version(api: ApiRequests, place: str, version: str, body: Mapping[str, Any]) -> ApiAnswer:
    """Patches an object below the path `place` if it is at this version, and creates it for an
    empty version. Raises what `Session.write` raises."""
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
