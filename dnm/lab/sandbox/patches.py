"""The patches that clients send: merge patches (RFC 7386), JSON patches (RFC 6902), and strategic
merge patches. The last merge lists that have a merge key."""

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
    """Returns the patched object. Raises 415 for an unknown kind of patch, 400 or 422 otherwise."""
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
    for key, value in patch.items():
        if key.startswith("$"):
            raise ApiError(400, f"the sandbox does not know {key} in a strategic merge patch")
        if value is None:
            target.pop(key, None)
        else:
            target[key] = _strategic_value(key, target.get(key), value)
    return target


def _strategic_value(key: str, old: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _strategic(old if isinstance(old, dict) else {}, value)
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
    """Applies `test`, `add`, `replace` and `remove`, but adds no item to a list. Raises 422 for
    everything else, as the API server does."""
    for operation in operations:
        try:
            *steps, last = _steps(operation["path"])
            parent = target
            for step in steps:
                parent = parent[_key(parent, step)]
            key, name = _key(parent, last), operation["op"]
            if name == "remove":
                del parent[key]
            elif name == "replace" or (name == "add" and isinstance(parent, dict)):
                _ = name == "add" or parent[key]  # `replace` requires a value
                parent[key] = operation["value"]
            elif name != "test" or parent[key] != operation["value"]:
                raise ValueError(f"operation {operation} failed")
        except (LookupError, ValueError, TypeError) as error:
            message = f"the server rejected our request due to an error in our request: {error}"
            raise ApiError(422, message) from error
    return target


def _key(parent: Any, step: str) -> Any:
    return int(step) if isinstance(parent, list) else step


def _steps(path: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
