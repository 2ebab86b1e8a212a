"""Server-side apply: who owns which field of an object, and what one apply does to the rest.

As apimachinery's managedfields has it (kubernetes v1.34): owners are remembered where an object is
created by a request, else from the first apply on, and what stood there before belongs to
`before-first-apply`. A path is the steps of FieldsV1: `f:NAME`, `k:{"name":"c"}` and `v:"x"` for
items, with "." behind what is an item itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from dnm.lab.sandbox.patches import MERGE_KEYS, PRIMITIVE_SETS
from dnm.lab.sandbox.store import ApiError, Object

APPLY = "application/apply-patch+yaml"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWNED_METADATA = ("annotations", "labels", "finalizers", "ownerReferences")

Path = tuple[str, ...]


class Owner(NamedTuple):
    """One entry of managedFields."""

    manager: str
    operation: str  # Apply | Update
    subresource: str = ""


Owners = dict[Owner, set[Path]]


def read_configuration(body: bytes) -> Object:
    """The object that somebody applies, in YAML or JSON; raises 400 for what is none."""
    try:
        config = yaml.safe_load(body)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ApiError(400, f"error decoding YAML: {error}") from error
    if not isinstance(config, dict) or not config.get("kind") or not config.get("apiVersion"):
        raise ApiError(400, "what is applied must be an object with apiVersion and kind")
    if (config.get("metadata") or {}).get("managedFields"):
        raise ApiError(400, "metadata.managedFields must be nil")
    return config


def apply_configuration(
    live: Object, config: Object, owner: Owner, stamp: str, *, force: bool
) -> Object:
    """A new object: what the configuration says is so, what its owner said before and says no more
    is gone unless somebody else says it. Raises 409 for a field that another owns with another
    value, unless `force` takes it."""
    if not owner.manager:
        raise ApiError(422, 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: '
                       "is required for apply patch")  # fmt: skip
    owners, wanted, standing = _owners(live), _leaves(_owned(config)), _leaves(_owned(live))
    if live and not owners:
        owners[Owner("before-first-apply", "Update")] = set(standing)
    before = owners.pop(owner, set())
    taken = {path for path, value in wanted.items() if standing.get(path, value) != value}
    conflicts = [(other, path) for other, paths in owners.items() for path in paths & taken]
    if not force:
        _refuse(conflicts, _unclaimed(live, owner, standing), str(live.get("apiVersion")))
    for paths in owners.values():
        paths -= taken
    others = set().union(*owners.values())
    result = _merged(live, config)
    for path in sorted(before - set(wanted) - others):  # an item before what is in it
        if path[-1] != "." or not any(path[:-1] == other[: len(path) - 1] for other in others):
            result = _without(result, path)
    return with_owners(result, live, {**owners, owner: set(wanted)}, stamp)


def track_change(old: Object, changed: Object, owner: Owner, stamp: str) -> Object:
    """The changed object with its owners as they are after a write that is no apply; its creation,
    where there was none."""
    owners = _owners(old)
    if old and not owners:
        return with_owners(changed, old, {}, stamp)
    before, after = _leaves(_owned(old)), _leaves(_owned(changed))
    written = {path for path, value in after.items() if before.get(path, ...) != value}
    for paths in owners.values():
        paths -= written | (before.keys() - after.keys())
    owners[owner] = owners.get(owner, set()) | written
    return with_owners(changed, old, owners, stamp)


def with_owners(item: Object, old: Object, owners: Owners, stamp: str) -> Object:
    """The object with its managedFields; an owner of the same fields as before keeps his time."""
    known = {_owner(entry): entry for entry in _entries(old)}
    entries = []
    for owner, paths in owners.items():
        entry = {"manager": owner.manager, "operation": owner.operation,
                 "apiVersion": item.get("apiVersion", old.get("apiVersion")), "time": stamp,
                 "fieldsType": "FieldsV1", "fieldsV1": _encoded(paths)}  # fmt: skip
        if owner.subresource:
            entry["subresource"] = owner.subresource
        same = owner in known and known[owner]["fieldsV1"] == entry["fieldsV1"]
        if paths:
            entries.append(known[owner] if same else entry)
    entries.sort(key=lambda one: (one["operation"], one["time"], one["manager"]))
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**item, "metadata": {**metadata, **({"managedFields": entries} if entries else {})}}


def _refuse(conflicts: list[tuple[Owner, Path]], unclaimed: set[Path], version: str) -> None:
    shown = sorted(
        f'conflict with "{owner.manager}" using {version}: .{".".join(s[2:] for s in path)}'
        for owner, path in conflicts
        if path not in unclaimed
    )
    if shown:
        count = f"{len(shown)} conflict{'s' if len(shown) > 1 else ''}"
        raise ApiError(409, f"Apply failed with {count}: {', '.join(shown)}")


def _unclaimed(live: Object, owner: Owner, standing: Mapping[Path, Any]) -> set[Path]:
    """What kubectl may take from anybody: fields that its client-side apply wrote, and nobody has
    changed since."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED)
    if owner.manager != "kubectl" or not text:
        return set()
    own = _leaves(_owned(json.loads(text)))
    return {path for path, value in own.items() if standing.get(path, ...) == value}


# --- fields --------------------------------------------------------------------------------------


def _owned(item: Object) -> Object:
    """What of an object can be owned."""
    metadata = item.get("metadata") or {}
    kept = {key: metadata[key] for key in _OWNED_METADATA if metadata.get(key)}
    rest = {key: item[key] for key in item if key not in ("apiVersion", "kind", "metadata")}
    return {**rest, "metadata": kept} if kept else rest


def _children(value: Any, field: str) -> list[tuple[str, Any]] | None:
    """The steps into a value and what is there; None for one that is owned as a whole."""
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
    found: dict[Path, Any] = {}
    for step, inner in children:
        if step.startswith("v:"):
            found[(step,)] = True
            continue
        if step.startswith("k:"):
            found[(step, ".")] = True
        name = step[2:] if step.startswith("f:") else ""
        found |= {(step, *path): leaf for path, leaf in _leaves(inner, name).items()}
    return found


def _merged(live: Any, config: Any, field: str = "") -> Any:
    new, items = _children(config, field), dict(_children(live, field) or ())
    if new is None:
        return config
    for step, inner in new:
        name = step[2:] if step.startswith("f:") else ""
        items[step] = inner if step.startswith("v:") else _merged(items.get(step), inner, name)
    if isinstance(config, dict):
        return {step[2:]: inner for step, inner in items.items()}
    return list(items.values())


def _without(value: Any, path: Path, field: str = "") -> Any:
    """The value less what a path names, and less what is empty then."""
    step, *rest = path
    items = dict(_children(value, field) or ())
    if step not in items:
        return value
    inner = items.pop(step)
    name = step[2:] if step.startswith("f:") else ""
    left = _without(inner, tuple(rest), name) if rest and rest != ["."] else None
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if key != name}
        return {**kept, name: left} if left else kept
    return [left if key == step else one for key, one in (_children(value, field) or ())
            if key != step or left]  # fmt: skip


# --- managedFields -------------------------------------------------------------------------------


def _entries(item: Object) -> list[Object]:
    return (item.get("metadata") or {}).get("managedFields") or []


def _owner(entry: Object) -> Owner:
    return Owner(entry["manager"], entry["operation"], entry.get("subresource", ""))


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
