"""The rules by which pods match nodes: taints, node selectors, volume claims. They are those of the
filter plug-ins of kube-scheduler, which YuniKorn's shim runs too. Free capacity is compared
elsewhere.

Also label and field selectors of list requests (Kubernetes API concepts, "Labels and Selectors").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dnm.lab.sandbox.store import ApiError, Object, Objects

Test = Callable[[dict[str, Any]], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_EQUALITY = re.compile(r"^([^=!\s]+)\s*(==|=|!=)\s*(\S*)$")
_KEY = re.compile(r"^(!?)\s*([A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?)$")
_FIELDS = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
        "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
        "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
    ),
}  # fmt: skip


def label_test(text: str) -> Test:
    """Returns a test of objects for a label selector. Raises 400 if it can't be parsed."""
    tests = [_label_requirement(part) for part in _split(text)]
    return lambda item: all(test(item["metadata"].get("labels") or {}) for test in tests)


def field_test(plural: str, text: str) -> Test:
    """Returns a test of objects for a field selector. Raises 400 for an unsupported field."""
    wanted: list[tuple[tuple[str, ...], bool, str]] = []
    for part in _split(text):
        match = _EQUALITY.match(part)
        if match is None:
            raise ApiError(400, f"invalid selector: '{part}'; can't understand '{part}'")
        field, operator, value = match.groups()
        common = ("metadata.name", "metadata.namespace")
        if field not in common and field not in _FIELDS.get(plural, ()):
            raise ApiError(400, f"field label not supported: {field}")
        wanted.append((tuple(field.split(".")), operator != "!=", value))
    return lambda item: all((_field(item, path) == value) == same for path, same, value in wanted)


def selector_test(selector: Mapping[str, Any] | None) -> Test:
    """Returns a test whether a budget's `matchLabels` select a pod. None as selector: no pod."""
    labels = dict((selector or {}).get("matchLabels") or {})

    def matches(item: dict[str, Any]) -> bool:
        own = item["metadata"].get("labels") or {}
        return selector is not None and labels.items() <= own.items()

    return matches


def _split(text: str) -> list[str]:
    """Splits the text at commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _label_requirement(part: str) -> Callable[[Mapping[str, str]], bool]:
    if match := _SET.match(part):
        values = [value.strip() for value in match[3].split(",")]
        return _expression(match[1], match[2], values)
    if match := _EQUALITY.match(part):
        return _expression(match[1], "notin" if match[2] == "!=" else "in", [match[3]])
    if match := _KEY.match(part):
        return _expression(match[2], "doesnotexist" if match[1] else "exists", [])
    raise ApiError(400, f"unable to parse requirement: {part}")


def _expression(key: str, operator: str, values: list[str]) -> Callable[[Mapping[str, str]], bool]:
    if operator == "in":
        return lambda labels: labels.get(key) in values
    if operator == "notin":
        return lambda labels: labels.get(key) not in values
    if operator == "exists":
        return lambda labels: key in labels
    return lambda labels: key not in labels


def _field(item: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = item
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    return str(value)


_REPELLING = ("NoSchedule", "NoExecute")


def fits_node(pod: Object, node: Object) -> bool:
    """Returns whether taints and labels of the node allow the pod. Capacity does not matter."""
    return tolerates(pod, node) and _is_selected(pod["spec"].get("nodeSelector") or {}, node)


def tolerates(pod: Object, node: Object) -> bool:
    tolerations = pod["spec"].get("tolerations") or ()
    taints = list(node["spec"].get("taints") or ())
    if node["spec"].get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    return all(
        any(_covers(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.get("effect") in _REPELLING
    )


def _covers(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key", "") in ("", taint["key"])
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("key") == taint["key"] and same_value


def _is_selected(selector: Mapping[str, str], node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())


# --- volumes -------------------------------------------------------------------------------


def has_its_volumes(store: Objects, pod: Object) -> bool:
    """Returns whether every volume claim of the pod exists and is bound."""
    namespace = pod["metadata"]["namespace"]
    for volume in pod["spec"].get("volumes") or ():
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if not name:
            continue
        claim = store.get("persistentvolumeclaims", namespace, name)
        if claim is None or (claim.get("status") or {}).get("phase") != "Bound":
            return False
    return True
