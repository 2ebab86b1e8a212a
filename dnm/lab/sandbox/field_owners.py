"""The owners of an object's fields, from its managedFields.

As in apimachinery's managedfields (kubernetes v1.34), only objects that a request has created have
owners. A path is the steps of FieldsV1: `f:NAME` for a field, `k:{"name":"c"}` and `v:"x"` for an
item, with "." at the end for the item itself. Server-side apply is not implemented."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from dnm.lab.sandbox.patches import MERGE_KEYS, PRIMITIVE_SETS
from dnm.lab.sandbox.store import Object

_OWNED_METADATA = ("annotations", "labels", "finalizers", "ownerReferences")

Path = tuple[str, ...]


class Manager(NamedTuple):
    """The owner (field manager) that an entry of managedFields names."""

    manager: str
    operation: str  # Update, of requests to the sandbox
    subresource: str = ""


Owners = dict[Manager, set[Path]]


def track_change(old: Object, changed: Object, owner: Manager, stamp: str) -> Object:
    """Returns the object with the managedFields that it has after this creation or update."""
    owners = _owners(old)
    if old and not owners:
        return _with_owners(changed, old, {}, stamp, owner)
    before, after = _leaves(_owned(old)), _leaves(_owned(changed))
    written = {path for path, value in after.items() if before.get(path, ...) != value}
    for paths in owners.values():
        paths -= written | (before.keys() - after.keys())
    owners[owner] = owners.get(owner, set()) | written
    return _with_owners(changed, old, owners, stamp, owner if written else Manager("", ""))


def _with_owners(item: Object, old: Object, owners: Owners, stamp: str, by: Manager) -> Object:
    """Returns the object with these owners of fields. All but the writer `by` keep their time."""
    by_owner = {_owner(entry): entry for entry in _entries(old) if _owner(entry) != by}
    entries = []
    for owner, paths in owners.items():
        entry = {"manager": owner.manager, "operation": owner.operation,
                 "apiVersion": item.get("apiVersion", old.get("apiVersion")), "time": stamp,
                 "fieldsType": "FieldsV1", "fieldsV1": _encoded(paths)}  # fmt: skip
        if owner.subresource:
            entry["subresource"] = owner.subresource
        same = owner in by_owner and by_owner[owner]["fieldsV1"] == entry["fieldsV1"]
        if paths:
            entries.append(by_owner[owner] if same else entry)
    entries.sort(key=lambda item: (item["operation"], item["time"], item["manager"]))
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**item, "metadata": {**metadata, **({"managedFields": entries} if entries else {})}}


# --- fields --------------------------------------------------------------------------------------


def _owned(item: Object) -> Object:
    """Returns the part of an object in which fields have owners, without e.g. kind and name."""
    metadata = item.get("metadata") or {}
    kept = {key: metadata[key] for key in _OWNED_METADATA if metadata.get(key)}
    rest = {key: item[key] for key in item if key not in ("apiVersion", "kind", "metadata")}
    return {**rest, "metadata": kept} if kept else rest


def _children(value: Any, field: str) -> list[tuple[str, Any]] | None:
    """Returns the parts of a value as (path step, part); None if it has one owner as a whole."""
    if isinstance(value, dict):
        return [(f"f:{key}", inner) for key, inner in value.items() if inner is not None]
    if isinstance(value, list) and field in PRIMITIVE_SETS:
        return [(f"v:{json.dumps(item)}", item) for item in value]
    key = MERGE_KEYS.get(field, "")
    if isinstance(value, list) and key and all(isinstance(i, dict) and key in i for i in value):
        return [(f"k:{json.dumps({key: item[key]})}", item) for item in value]
    return None


def _leaves(value: Any, field: str = "") -> dict[Path, Any]:
    children = _children(value, field)
    if not children:
        return {(): value} if field else {}
    fields: dict[Path, Any] = {}
    for step, inner in children:
        if step.startswith("v:"):
            fields[(step,)] = True
            continue
        if step.startswith("k:"):
            fields[(step, ".")] = True
        name = step[2:] if step.startswith("f:") else ""
        fields |= {(step, *path): leaf for path, leaf in _leaves(inner, name).items()}
    return fields


# --- managedFields -------------------------------------------------------------------------------


def _entries(item: Object) -> list[Object]:
    return (item.get("metadata") or {}).get("managedFields") or []


def _owner(entry: Object) -> Manager:
    return Manager(entry["manager"], entry["operation"], entry.get("subresource", ""))


def _owners(item: Object) -> Owners:
    return {_owner(entry): set(_decoded(entry["fieldsV1"])) for entry in _entries(item)}


def _decoded(fields: Object, before: Path = ()) -> Iterator[Path]:
    for step, inner in fields.items():
        if inner:
            yield from _decoded(inner, (*before, step))
        else:
            yield (*before, step)


def _encoded(paths: set[Path]) -> Object:
    fields: Object = {}
    for path in sorted(paths):
        place = fields
        for step in path:
            place = place.setdefault(step, {})
    return fields
