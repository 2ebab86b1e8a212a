"""ConfigMaps, volume claims and small answers, decoded from JSON.

A ConfigMap that dnm writes back keeps all fields that dnm does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from dnm.model.cluster import ConfigMap, FieldOwner

T = TypeVar("T")


class Name(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of an object, of which dnm reads only the name."""

    name: str
    namespace: str = ""


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """An owner reference of an object."""

    kind: str = ""
    api_version: str = ""
    uid: str = ""
    controller: bool | None = None


class Condition(msgspec.Struct, frozen=True):
    """A condition of a status."""

    type: str
    status: str


READY = Condition("Ready", "True")


class Metadata(Name, frozen=True, rename="camel"):
    """The part of an object's metadata that dnm reads for most kinds."""

    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Described(msgspec.Struct, frozen=True):
    """An object of any kind, of which dnm reads only the metadata."""

    metadata: Metadata


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list. Items of type `msgspec.Raw` are valid only as long as the page's buffer."""

    items: list[T]


class _FieldsOwner(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    operation: str = ""
    fields_v1: Any = msgspec.field(name="fieldsV1", default=None)


class _OwnedMetadata(Metadata, frozen=True, rename="camel"):
    managed_fields: list[_FieldsOwner] | None = None


class _ConfigMap(msgspec.Struct, frozen=True, rename="camel"):
    kind: Literal["ConfigMap"]
    metadata: _OwnedMetadata
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    immutable: bool | None = None


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str


class _ObjectKind(msgspec.Struct, frozen=True):
    kind: str


decode_raw_page = msgspec.json.Decoder(ListPage[msgspec.Raw]).decode


def read_uid(body: memoryview | bytes) -> str:
    """Returns the uid of an object of any kind. Raises msgspec.MsgspecError or ValueError."""
    uid = msgspec.json.decode(body, type=Described).metadata.uid
    if not uid:
        raise ValueError("it is an object without a uid")
    return uid


def check_kind(body: memoryview | bytes, *kinds: str) -> None:
    """Raises ValueError if the answer to a write is not of one of these kinds: it is from a proxy,
    and the outcome is unknown. Raises msgspec.MsgspecError if it is not an object."""
    kind = msgspec.json.decode(body, type=_ObjectKind).kind
    if kind not in kinds:
        raise ValueError(f"it is no {kinds[-1]} but {kind[:60]!r}")


def read_config_map(body: memoryview | bytes, namespace: str, name: str) -> ConfigMap:
    """Returns the ConfigMap with this name. Raises msgspec.MsgspecError, as all readers of this
    module do, and ValueError if the answer is another ConfigMap or has no version."""
    item = msgspec.json.decode(body, type=_ConfigMap)
    if (item.metadata.namespace, item.metadata.name) != (namespace, name):
        raise ValueError(f"it is ConfigMap {item.metadata.namespace}/{item.metadata.name}"[:200])
    if not item.metadata.resource_version:
        raise ValueError("it is a ConfigMap without a resourceVersion")
    return ConfigMap(
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        resource_version=item.metadata.resource_version,
        data=item.data or {},
        binary_data=item.binary_data or {},
        annotations=item.metadata.annotations or {},
        immutable=bool(item.immutable),
        owners=tuple(
            FieldOwner(
                manager=managed_field.manager,
                operation=managed_field.operation,
                keys=_owned(managed_field.fields_v1, "f:data")
                | _owned(managed_field.fields_v1, "f:binaryData"),
                annotations=_owned(managed_field.fields_v1, "f:metadata", "f:annotations"),
            )
            for managed_field in item.metadata.managed_fields or ()
        ),
    )


def _owned(fields: Any, *path: str) -> frozenset[str]:
    """Returns the names below a path in fieldsV1 of managedFields; none if its form is unknown."""
    for step in path:
        fields = fields.get(step) if isinstance(fields, dict) else None
    names = fields if isinstance(fields, dict) else {}
    return frozenset(name.removeprefix("f:") for name in names if name.startswith("f:"))


def write_config_map(original: bytes, config_map: ConfigMap) -> dict[str, Any]:
    """Returns the original object with the data, annotations and version of `config_map`."""
    document: dict[str, Any] = msgspec.json.decode(original, type=dict)
    metadata = document["metadata"]
    metadata["resourceVersion"] = config_map.resource_version
    _put(metadata, "annotations", config_map.annotations)
    _put(document, "data", config_map.data)
    _put(document, "binaryData", config_map.binary_data)
    return document


def _put(target: dict[str, Any], key: str, value: Mapping[str, str]) -> None:
    """Sets `target[key]`, or removes the key if the value is empty, as the API server omits it."""
    if value:
        target[key] = dict(value)
    else:
        target.pop(key, None)


def read_version(body: memoryview | bytes) -> str:
    """Returns the server's release, e.g. v1.33.1, from the answer to /version."""
    return msgspec.json.decode(body, type=_Version).git_version
