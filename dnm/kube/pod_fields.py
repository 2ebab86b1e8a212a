"""The fields of a Pod that dnm decodes.

A field that few pods need, or that is equal in many pods, stays a slice of the page
(`msgspec.Raw`). dnm decodes it when it is needed, or looks up an earlier decoded value by its
bytes. A slice must not outlive its page, because the buffer of a page is used again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

EMPTY = msgspec.Raw()
Page = memoryview | bytes
MIRROR = "kubernetes.io/config.mirror"  # an annotation
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"


class _Lean(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """The parent class of decoded objects. gc skips them, since they form no reference cycle."""


OF_THE_NODE = {"DaemonSet": "apps", "Node": ""}  # kinds and groups; a Node's are static or dnm's


class PodOwner(_Lean, frozen=True):
    kind: str = ""
    api_version: str = ""
    uid: str = ""
    controller: bool | None = None


class Container(_Lean, frozen=True):
    name: str = ""
    resources: msgspec.Raw = EMPTY
    ports: msgspec.Raw = EMPTY
    restart_policy: str | None = None


class ContainerStatus(_Lean, frozen=True):
    name: str = ""
    allocated_resources: msgspec.Raw = EMPTY
    resources: msgspec.Raw = EMPTY


class Spec(_Lean, frozen=True):
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    overhead: msgspec.Raw = EMPTY
    resources: msgspec.Raw = EMPTY
    node_selector: msgspec.Raw = EMPTY
    tolerations: msgspec.Raw = EMPTY
    affinity: msgspec.Raw = EMPTY
    topology_spread_constraints: msgspec.Raw = EMPTY
    volumes: msgspec.Raw = EMPTY
    scheduling_gates: msgspec.Raw = EMPTY
    scheduling_group: msgspec.Raw = EMPTY
    resource_claims: msgspec.Raw = EMPTY


class Status(_Lean, frozen=True):
    reason: str | None = None
    resize: str | None = None
    qos_class: str | None = None
    conditions: msgspec.Raw = EMPTY
    nominated_node_name: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class _AllLabels(_Lean, frozen=True):
    labels: dict[str, str] | None = None


class _LabelledPod(_Lean, frozen=True):
    metadata: _AllLabels


class _LabelledPage(_Lean, frozen=True):
    items: list[_LabelledPod]


_decode_labels = msgspec.json.Decoder(_LabelledPage).decode


def has_value(raw: msgspec.Raw) -> bool:
    """Returns whether a raw field is present and neither null nor empty."""
    return raw is not EMPTY and bytes(raw) not in (b"null", b"[]", b"{}")


def decode_all_labels(page: Page) -> list[dict[str, str]]:
    """Returns all labels of every pod of a page. Few pages need them: those with pod affinity."""
    return [item.metadata.labels or {} for item in _decode_labels(page).items]


def make_page_decoder(labels: Iterable[str], annotations: Iterable[str]) -> Callable[[Page], Any]:
    """Returns a decoder for pages of pods. It skips all labels and annotations except these."""
    of_notes = _define_texts("_Annotations", (MIRROR, GROUP_ANNOTATION, *annotations))
    of_labels = _define_texts("_Labels", (GROUP_LABEL, *labels))
    metadata = _define("_Metadata", [
        ("name", str), ("namespace", str, ""), ("uid", str, ""), ("resource_version", str, ""),
        ("creation_timestamp", str | None, None), ("deletion_timestamp", str | None, None),
        ("labels", of_labels | None, None), ("annotations", of_notes | None, None),
        ("owner_references", list[PodOwner] | None, None),
    ])  # fmt: skip
    pod = _define("_Pod", [("metadata", metadata), ("spec", Spec), ("status", Status, Status())])
    items: Any = list[pod]  # type: ignore[valid-type]
    page = _define("_PodPage", [("items", items)])
    return msgspec.json.Decoder(page).decode


def _define_texts(name: str, keys: Iterable[str]) -> Any:
    fields = {f"key_{number}": key for number, key in enumerate(dict.fromkeys(keys))}
    return _define(name, [(field, str | None, None) for field in fields], fields)


def _define(name: str, fields: list[Any], rename: Any = "camel") -> Any:
    return msgspec.defstruct(name, fields, frozen=True, gc=False, rename=rename, omit_defaults=True)


def present_texts(fields: Any) -> dict[str, str]:
    """Returns the labels or annotations that a decoded pod has, under their Kubernetes names."""
    texts: dict[str, str] = {} if fields is None else msgspec.to_builtins(fields)
    return texts
