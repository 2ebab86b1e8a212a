"""The reads and writes of an instance's registry in Kubernetes: a Secret beside the Lease."""

from __future__ import annotations

from typing import Literal

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.leases import LeaseObject, check_identity, write_version
from dnm.kube.objects import Metadata
from dnm.kube.requests import ApiRequests, path_of
from dnm.model.lease import HIGHEST
from dnm.model.printable import printable
from dnm.model.stored_registry import KEYS, StoredRegistry

_NUMBER = "dynamic-node-manager/number"
_TYPE = "dynamic-node-manager/registry"  # cannot be changed later


class _Secret(msgspec.Struct, frozen=True):
    kind: Literal["Secret"]
    metadata: Metadata
    data: dict[str, str] | None = None


class StateObjects(LeaseObject):
    """The client of the Secret and the Lease of an instance, which have the same name. Each method
    raises KubeError, and a write raises KubeConflict if another client wrote in between."""

    def __init__(self, api: ApiRequests, namespace: str, lease_namespace: str, name: str) -> None:
        super().__init__(api, lease_namespace, name)
        self._secrets = namespace
        self.secret_name = f"{namespace}/{name}"

    def read_registry(self) -> StoredRegistry | None:
        """Returns the stored registry, or None if the Secret does not exist."""
        task = f"read Secret {self.secret_name}"
        with self._api.asking(task, "get secrets"), fault_point("kube.read_state"):
            answer = self._api.read_or_none(path_of("secrets", self._name, self._secrets))
            return None if answer is None else self._decode_secret(answer.body)

    def write_registry(self, stored: StoredRegistry) -> StoredRegistry:
        """Patches the Secret if its version is as read, or creates it. Returns the new registry."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "namespace": self._secrets,
                "name": self._name,
                "annotations": {_NUMBER: str(stored.number)},
            },
            "data": {key: stored.data.get(key) for key in KEYS},
            **({} if stored.version else {"type": _TYPE}),
        }
        rule = "patch secrets" if stored.version else "create secrets"
        task = f"{rule.partition(' ')[0]} Secret {self.secret_name}"
        with self._api.changing(task, rule), fault_point("kube.write_state"):
            place = path_of("secrets", None, self._secrets)
            return self._decode_secret(write_version(self._api, place, stored.version, body).body)

    def _decode_secret(self, body: memoryview | bytes) -> StoredRegistry:
        document = msgspec.json.decode(body, type=_Secret)
        check_identity(document.metadata, self._secrets, self._name)
        return StoredRegistry(
            version=document.metadata.resource_version,
            number=_read_number((document.metadata.annotations or {}).get(_NUMBER, "-1")),
            data={key: text for key, text in (document.data or {}).items() if key in KEYS},
        )


def _read_number(text: str) -> int:
    """Returns the run number in an annotation. Raises ValueError if no run can have written it."""
    is_number = len(text) <= len(str(HIGHEST)) and text.removeprefix("-").isdecimal()
    if is_number and -1 <= int(text) < HIGHEST:
        return int(text)
    raise ValueError(
        f"its annotation {_NUMBER} is {printable(text, 40)!r}, which is not the number of a run: "
        "remove the annotation"
    )
