"""The three patches that clients send: merge (RFC 7386), JSON (RFC 6902), and strategic merge."""

from __future__ import annotations

from typing import Any

from dnm.lab.sandbox.store import ApiError, Object, copy_of

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"

# patchMergeKey of the core types (k8s.io/api/core/v1/types.go); other lists are replaced. Owner of
# the key is the list's field name, which is unambiguous among the kinds that are served here.
MERGE_KEYS = {
    "conditions": "type", "addresses": "type", "containers": "name", "initContainers": "name",
    "ephemeralContainers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath",
    "ports": "containerPort", "imagePullSecrets": "name", "ownerReferences": "uid",
    "hostAliases": "ip", "topologySpreadConstraints": "topologyKey", "schedulingGates": "name",
}  # fmt: skip
PRIMITIVE_SETS = {"finalizers", "podCIDRs"}


def apply_patch(content_type: str, target: Object, patch: Any) -> Object:
    """A new object; raises 415 for another kind of patch, 400 or 422 for one that can't be used."""
    if content_type == JSON:
        if not isinstance(patch, list):
            raise ApiError(400, "a JSON patch is a list of operations")
        patched: Object = _json_patch(copy_of(target), patch)
        return patched
    if not isinstance(patch, dict):
        raise ApiError(400, "a merge patch is an object")
    if content_type == MERGE:
        merged: Object = _merge(copy_of(target), copy_of(patch))
        return merged
    if content_type == STRATEGIC:
        return _strategic(copy_of(target), copy_of(patch))
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON}, {MERGE}, {STRATEGIC}"
    )
    raise ApiError(415, message)


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


# --- strategic merge -----------------------------------------------------------------------


def _strategic(target: Object, patch: Object) -> Object:
    retained = patch.pop("$retainKeys", None)
    if retained is not None:
        for key in [key for key in target if key not in retained]:
            del target[key]
    for key, value in patch.items():
        if key.startswith("$setElementOrder/"):
            continue
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = _strategic_value(key, target.get(key), value)
    return target


def _strategic_value(key: str, old: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _strategic(old if isinstance(old, dict) else {}, value)
    if isinstance(value, list) and key in PRIMITIVE_SETS:
        return [*(old or []), *(item for item in value if item not in (old or []))]
    if isinstance(value, list) and key in MERGE_KEYS:
        return _strategic_list(MERGE_KEYS[key], old or [], value)
    return value


def _strategic_list(merge_key: str, old: list[Object], patch: list[Object]) -> list[Object]:
    result = list(old)
    for item in patch:
        if merge_key not in item:
            raise ApiError(400, f"map: {item} does not contain declared merge key: {merge_key}")
        places = [i for i, kept in enumerate(result) if kept.get(merge_key) == item[merge_key]]
        if item.get("$patch") == "delete":
            result = [kept for i, kept in enumerate(result) if i not in places]
        elif places:
            result[places[0]] = _strategic(result[places[0]], item)
        else:
            result.append(_strategic({}, item))
    return result


# --- JSON patch ----------------------------------------------------------------------------


def _json_patch(target: Any, operations: list[Object]) -> Any:
    for operation in operations:
        try:
            target = _operate(target, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = f"the server rejected our request due to an error in our request: {error}"
            raise ApiError(422, message) from error
    return target


def _operate(target: Any, operation: Object) -> Any:
    name, path = operation["op"], operation["path"]
    if name == "test":
        if _read(target, path) != operation.get("value"):
            raise ValueError(f"testing path {path} failed")
        return target
    if name == "add":
        return _add(target, path, operation["value"])
    if name == "remove":
        return _remove(target, path)
    if name == "replace":
        _read(target, path)
        return _add(_remove(target, path), path, operation["value"])
    raise ValueError(f"unknown operation {name}")


def _steps(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(f"path {path} does not begin with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _read(target: Any, path: str) -> Any:
    for step in _steps(path):
        target = target[int(step)] if isinstance(target, list) else target[step]
    return target


def _add(target: Any, path: str, value: Any) -> Any:
    *steps, last = _steps(path) or [""]
    if path == "":
        return value
    parent = _read(target, "".join(f"/{_escaped(step)}" for step in steps))
    if isinstance(parent, list):
        place = len(parent) if last == "-" else int(last)
        if not 0 <= place <= len(parent):
            raise IndexError(f"index {last} is out of range")
        parent.insert(place, value)
    else:
        parent[last] = value
    return target


def _remove(target: Any, path: str) -> Any:
    if path == "":
        return None
    *steps, last = _steps(path)
    parent = _read(target, "".join(f"/{_escaped(step)}" for step in steps))
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
    return target


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
