"""The API server's processing of an object before it is stored: defaults, checks, webhooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dnm.lab.sandbox.kinds import Kind
from dnm.lab.sandbox.pod_reading import AmountError, canonical_amount, kubernetes_amount
from dnm.lab.sandbox.quotas import Quotas
from dnm.lab.sandbox.store import ApiError, Object, Objects

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ANNOTATIONS_LIMIT = 256 * 1024
_CONFIG_MAP_LIMIT = 1024 * 1024
_TOLERATED_SECONDS = 300
# Where the core types have quantities; a field of these names holds nothing else in any of them.
_AMOUNT_MAPS = frozenset((
    "requests", "limits", "overhead", "allocatedResources", "capacity", "allocatable", "hard",
    "used", "max", "min", "default", "defaultRequest", "maxLimitRequestRatio",
))  # fmt: skip
_AMOUNTS = frozenset(("sizeLimit", "divisor"))
_CUSTOM = "kueue.x-k8s.io"  # the server keeps the texts of quantities of custom resources
_WORKLOADS = ("deployments", "replicasets", "daemonsets")

Webhook = Callable[[Object, Object | None], None]
"""Called with the new and the old object; raises ApiError to deny."""


class Admission:
    """The checks of created and changed objects. `webhooks` maps the plural of a kind to a
    validating webhook."""

    def __init__(self, store: Objects) -> None:
        self.store = store
        self.webhooks: dict[str, Webhook] = {}
        self.quotas = Quotas(store)

    def admit_creation(self, kind: Kind, manifest: Object) -> None:
        """Adds defaults to the manifest in place. Raises ApiError if a check refuses the object."""
        if kind.group != _CUSTOM:
            _write_amounts(manifest)
        meta = manifest.setdefault("metadata", {})
        name = meta.get("name") or f"{meta.get('generateName', '')}x"
        if not _NAME.fullmatch(name) or len(name) > 253:
            raise _invalid(kind, name, f'metadata.name: Invalid value: "{name}": a lowercase RFC '
                           "1123 subdomain must consist of lower case alphanumeric characters, "
                           "'-' or '.'")  # fmt: skip
        _check_metadata(kind, meta)
        if kind.plural == "pods":
            _default_pod(self.store, manifest)
        elif kind.plural == "namespaces":
            meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": name}
            manifest["status"] = {"phase": "Active"}
            manifest.setdefault("spec", {"finalizers": ["kubernetes"]})
        elif kind.plural == "nodes":
            _default_node(manifest)
        elif kind.plural in _WORKLOADS:
            _default_workload(kind, manifest)
        elif kind.plural == "jobs":
            manifest["spec"] = {"parallelism": 1, **manifest["spec"]}
        _check_content(kind, manifest, None)
        if kind.plural in self.webhooks:
            self.webhooks[kind.plural](manifest, None)
        if kind.plural == "pods":
            self.quotas.admit(manifest)

    def admit_update(self, kind: Kind, changed: Object, old: Object) -> None:
        if kind.group != _CUSTOM:
            _write_amounts(changed)
        meta = changed.setdefault("metadata", {})
        for field in ("name", "namespace"):
            if meta.get(field) != old["metadata"].get(field):
                raise _invalid(
                    kind, old["metadata"]["name"], f"metadata.{field}: field is immutable"
                )
        _check_metadata(kind, meta)
        _check_content(kind, changed, old)
        if kind.plural in self.webhooks:
            self.webhooks[kind.plural](changed, old)


def _write_amounts(item: Any) -> None:
    """Replaces each quantity in an object by the text that the API server stores for it, e.g. `1`
    for `1000m`. Raises 400 for a malformed quantity."""
    if isinstance(item, list):
        for entry in item:
            _write_amounts(entry)
    if not isinstance(item, dict):
        return
    for key, value in item.items():
        if key in _AMOUNT_MAPS and isinstance(value, dict):
            item[key] = {name: _written(name, amount) for name, amount in value.items()}
        elif key in _AMOUNTS and value is not None:
            item[key] = _written(key, value)
        elif key not in ("metadata", "data"):  # what is free to have any name
            _write_amounts(value)


def _written(name: str, amount: Any) -> str:
    if isinstance(amount, dict | list):
        raise ApiError(400, f"{name}: a quantity is a string or a number")
    try:
        return canonical_amount("0" if amount is None else str(amount).strip())
    except AmountError as error:
        raise ApiError(400, f"{name}: {error}") from error


def _invalid(kind: Kind, name: str, problem: str) -> ApiError:
    return ApiError(422, f'{kind.name} "{name}" is invalid: {problem}')


def _check_metadata(kind: Kind, meta: Object) -> None:
    annotations: dict[str, Any] = meta.get("annotations") or {}
    for field in ("annotations", "labels"):
        for key, value in (meta.get(field) or {}).items():
            if not isinstance(value, str):
                raise ApiError(400, f"metadata.{field}.{key}: expected a string, got {value!r}")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        problem = f"metadata.annotations: Too long: must have at most {_ANNOTATIONS_LIMIT} bytes"
        raise _invalid(kind, meta.get("name", ""), problem)


def _check_content(kind: Kind, changed: Object, old: Object | None) -> None:
    name = changed["metadata"].get("name", "")
    if kind.plural == "leases" and (changed.get("spec") or {}).get("leaseDurationSeconds") == 0:
        raise _invalid(kind, name, "spec.leaseDurationSeconds: must be greater than 0")
    if kind.plural != "configmaps":
        return
    content = {field: changed.get(field) or {} for field in ("data", "binaryData")}
    if old is not None and old.get("immutable"):
        before = {field: old.get(field) or {} for field in ("data", "binaryData")}
        if content != before or not changed.get("immutable"):
            raise _invalid(
                kind, name, "data: Forbidden: field is immutable when `immutable` is set"
            )
    texts = [text for field in content.values() for text in field.values()]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "ConfigMap data values must be strings")
    if sum(len(text.encode()) for text in texts) > _CONFIG_MAP_LIMIT:
        raise _invalid(kind, name, f"Too long: must have at most {_CONFIG_MAP_LIMIT} bytes")


def _default_pod(store: Objects, manifest: Object) -> None:
    spec = manifest.setdefault("spec", {})
    if not spec.get("containers"):
        name = manifest["metadata"].get("name", "")
        raise ApiError(422, f'Pod "{name}" is invalid: spec.containers: Required value')
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    if "priority" not in spec:
        chosen = store.get("priorityclasses", "", spec.get("priorityClassName", ""))
        spec["priority"] = chosen.get("value", 0) if chosen else 0
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(toleration.get("key") == key for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute",
                                "tolerationSeconds": _TOLERATED_SECONDS})  # fmt: skip
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        _default_requests(container.setdefault("resources", {}))
        _check_quantities(container["resources"].get("requests") or {})
    manifest["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}


def _qos_class(spec: Object) -> str:
    """Returns the QoS class like pkg/apis/core/v1/helper/qos: Guaranteed if all limits of CPU and
    memory equal the requests, BestEffort if no container has limits or requests of them."""
    parts = [
        (item.get("requests") or {}, item.get("limits") or {})
        for item in (
            container.get("resources") or {}
            for container in [*spec["containers"], *spec.get("initContainers", [])]
        )
    ]
    named = [side.get(name) for part in parts for side in part for name in ("cpu", "memory")]
    if not any(named):
        return "BestEffort"
    is_guaranteed = all(
        name in limits and kubernetes_amount(limits[name]) ==
        kubernetes_amount(asked.get(name, limits[name]))
        for asked, limits in parts for name in ("cpu", "memory")
    )  # fmt: skip
    return "Guaranteed" if is_guaranteed else "Burstable"


def _default_node(manifest: Object) -> None:
    manifest.setdefault("spec", {})
    status = manifest.setdefault("status", {})
    status.setdefault("conditions", [])
    status.setdefault("allocatable", dict(status.get("capacity") or {}))
    status.setdefault("capacity", dict(status["allocatable"]))
    _check_quantities(status["allocatable"])


def _check_quantities(amounts: Mapping[str, Any]) -> None:
    """Raises 422 for a negative quantity."""
    for name, text in amounts.items():
        if kubernetes_amount(text) < 0:
            problem = f'{name}: Invalid value: "{text}": must be greater than or equal to 0'
            raise ApiError(422, problem)


def _default_requests(resources: Object) -> None:
    """Sets each missing request of a container to its limit."""
    for resource, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(resource, amount)


def _default_workload(kind: Kind, manifest: Object) -> None:
    spec = manifest.setdefault("spec", {})
    if kind.plural != "daemonsets":
        spec.setdefault("replicas", 1)
    template = spec.setdefault("template", {})
    labels = (template.get("metadata") or {}).get("labels") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()) or not spec.get("selector"):
        name = manifest["metadata"].get("name", "")
        problem = "spec.template.metadata.labels: `selector` does not match template `labels`"
        raise _invalid(kind, name, problem)
    manifest["status"] = {}
