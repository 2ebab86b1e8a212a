"""The fields of a Pod that dnm decodes, and no others; and what they say: what its containers ask
for, what of that a kubelet aligns, and its application, its queue and its gang.

What is needed of few pods only, or is equal among many, stays a slice of the page (`msgspec.Raw`):
it is decoded when it is wanted, or its bytes are the key under which it was decoded before. A slice
must not outlive its page, for the buffer of a page is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from dnm.demand.pod_request import (
    APP_ID_KEY,
    LONGEST_GROUP,
    QUEUE_KEY,
    ContainerRequest,
    ContainerState,
    PodRequest,
    application_id,
    effective_request,
    requested_queue,
    task_groups,
    with_counted_names,
)
from dnm.model.kubelet import Amounts
from dnm.model.pod_waits import GROUPS
from dnm.model.quantity import kube_resources, parse_kubernetes

EMPTY = msgspec.Raw()
Page = memoryview | bytes
_LONGEST_KEY = 256  # bytes of what is kept to know it again
LABELS = {
    "queue_path": QUEUE_KEY,
    "app_id": APP_ID_KEY,
    "application": "applicationId",
    "spark": "spark-app-selector",
    "queue": "queue",
    "placeholder": "placeholder",
    "group": "scheduling.x-k8s.io/pod-group",
}
ANNOTATIONS = {
    "queue_path": QUEUE_KEY,
    "app_id": APP_ID_KEY,
    "task_group": "yunikorn.apache.org/task-group-name",
    "task_groups": "yunikorn.apache.org/task-groups",
    "placeholder": "internal.yunikorn.apache.org/placeholder",
    "placeholder_before_1_6": "yunikorn.apache.org/placeholder",
    "mirror": "kubernetes.io/config.mirror",
    "group": "scheduling.k8s.io/group-name",
}


class _Lean(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """Parent of what is decoded; nothing in it can be part of a cycle."""


class Owner(_Lean, frozen=True):
    kind: str = ""


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
    priority: int | None = None
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
    phase: str | None = None
    reason: str | None = None
    resize: str | None = None
    qos_class: str | None = None
    conditions: msgspec.Raw = EMPTY
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class _AllLabels(_Lean, frozen=True):
    labels: dict[str, str] | None = None


class _LabelledPod(_Lean, frozen=True):
    metadata: _AllLabels


class _LabelledPage(_Lean, frozen=True):
    items: list[_LabelledPod]


_decode_labels = msgspec.json.Decoder(_LabelledPage).decode


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a field is there with a value."""
    return raw is not EMPTY and bytes(raw) not in (b"null", b"[]", b"{}")


def decode_all_labels(page: Page) -> list[dict[str, str]]:
    """All labels of every pod of a page, for the few pages that have peers to keep apart."""
    return [item.metadata.labels or {} for item in _decode_labels(page).items]


def make_page_decoder(user: str = "") -> Callable[[Page], Any]:
    """The decoder of a PodList; `user`: the label that says whose a pod is."""
    known = LABELS if user in ("", *LABELS.values()) else {**LABELS, "user": user}
    annotations = _define_texts("_Annotations", ANNOTATIONS)
    labels = _define_texts("_Labels", known)
    metadata = _define("_Metadata", [
        ("name", str), ("namespace", str, ""), ("uid", str, ""), ("resource_version", str, ""),
        ("creation_timestamp", str | None, None), ("deletion_timestamp", str | None, None),
        ("labels", labels | None, None), ("annotations", annotations | None, None),
        ("owner_references", list[Owner] | None, None),
    ])  # fmt: skip
    pod = _define("_Pod", [("metadata", metadata), ("spec", Spec), ("status", Status, Status())])
    items: Any = list[pod]  # type: ignore[valid-type]
    page = _define("_PodPage", [("items", items)])
    return msgspec.json.Decoder(page).decode


def _define_texts(name: str, known: dict[str, str]) -> Any:
    return _define(name, [(field, str | None, None) for field in known], known)


def _define(name: str, fields: list[Any], rename: Any = "camel") -> Any:
    return msgspec.defstruct(name, fields, frozen=True, gc=False, rename=rename, omit_defaults=True)


def given_texts(known: Any) -> dict[str, str]:
    """The labels or annotations that are there, under their own names."""
    texts: dict[str, str] = {} if known is None else msgspec.to_builtins(known)
    return texts


class _Requests(msgspec.Struct, frozen=True):
    requests: dict[str, str] | None = None


class _PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    reason: str | None = None


_decode_requests = msgspec.json.Decoder(_Requests).decode
_decode_strings = msgspec.json.Decoder(dict[str, str]).decode
_decode_conditions = msgspec.json.Decoder(list[_PodCondition]).decode


def short_key(text: bytes) -> bytes:
    """What tells a text from others, in few bytes: a tenant makes as many texts as he likes, each
    as long as Kubernetes takes it."""
    return text if len(text) <= _LONGEST_KEY else sha256(text).digest()


def aligned_amounts(spec: Spec, is_guaranteed: bool) -> tuple[Amounts, Amounts] | None:
    """What of a pod's largest container, and of the whole pod without its overhead, a kubelet may
    align to one NUMA node: devices, and of a Guaranteed pod memory, huge pages and CPUs by the
    whole. Where it has resources of its own, the managers leave those out. None: nothing."""
    is_pinned = is_guaranteed and not is_given(spec.resources)

    def kept(containers: Sequence[Container] | None) -> tuple[ContainerRequest, ...]:
        found = map(_container_request, containers or ())
        return tuple(
            msgspec.structs.replace(one, requests={
                name: amount for name, amount in one.requests.items()
                if "/" in name or (is_pinned and _is_pinned(name, amount))
            })
            for one in found
        )  # fmt: skip

    asked = PodRequest(containers=kept(spec.containers), init_containers=kept(spec.init_containers))
    asked = with_counted_names(asked) or asked
    largest: dict[str, int] = {}
    for container in (*asked.containers, *asked.init_containers):
        for name, amount in kube_resources(container.requests).items():
            largest[name] = max(amount, largest.get(name, 0))
    whole = {name: n for name, n in effective_request(asked).items() if name != "pods"}
    return (tuple(sorted(largest.items())), tuple(sorted(whole.items()))) if whole else None


def _is_pinned(name: str, amount: str) -> bool:
    if name == "cpu":
        return parse_kubernetes("cpu", amount) % 1000 == 0
    return name == "memory" or name.startswith("hugepages-")


def request_key(spec: Spec, status: Status) -> object:
    """Returns all bytes that decide the request. Most pods have one container and nothing else."""
    containers, states = spec.containers, status.container_statuses
    is_plain = (
        len(containers) == 1
        and spec.init_containers is None
        and spec.overhead is EMPTY
        and spec.resources is EMPTY
    )
    if is_plain and not states:
        return bytes(containers[0].resources)
    if is_plain and states and len(states) == 1 and states[0].name == containers[0].name:
        return (
            bytes(containers[0].resources),
            bytes(states[0].allocated_resources),
            bytes(states[0].resources),
        )
    parts = (spec.overhead, spec.resources, containers, spec.init_containers, _all_states(status))
    return short_key(msgspec.json.encode(parts))


def _all_states(status: Status) -> Sequence[ContainerStatus]:
    return [*(status.container_statuses or ()), *(status.init_container_statuses or ())]


def read_request(spec: Spec, status: Status, infeasible: bool) -> PodRequest:
    """Returns what is asked for; `states` holds only the containers whose status says something
    else than their spec."""
    containers = tuple(_container_request(container) for container in spec.containers)
    init_containers = tuple(_container_request(item) for item in spec.init_containers or ())
    wanted = {container.name: container.requests for container in (*containers, *init_containers)}
    states: dict[str, ContainerState] = {}
    for state in _all_states(status):
        allocated = _strings(state.allocated_resources)
        is_reported = state.resources is not EMPTY and bytes(state.resources) != b"null"
        requests = _requests(state.resources) if is_reported else None
        wish = wanted.get(state.name, {})
        if allocated not in ({}, wish) or requests not in (None, wish):
            states[state.name] = ContainerState(allocated=allocated, requests=requests)
    return PodRequest(
        containers=containers,
        init_containers=init_containers,
        pod_level=_requests(spec.resources),
        overhead=_strings(spec.overhead),
        states=states,
        resize_infeasible=infeasible,
    )


def _container_request(container: Container) -> ContainerRequest:
    return ContainerRequest(
        name=container.name,
        requests=_requests(container.resources),
        is_sidecar=container.restart_policy == "Always",
    )


def _requests(raw: msgspec.Raw) -> dict[str, str]:
    return (_decode_requests(raw).requests or {}) if is_given(raw) else {}


def _strings(raw: msgspec.Raw) -> dict[str, str]:
    return _decode_strings(raw) if is_given(raw) else {}


def is_infeasible(status: Status) -> bool:
    """Tells whether it has a resize that the node can't grant: `status.resize`, since Kubernetes
    1.33 a condition."""
    if status.resize == "Infeasible":
        return True
    conditions = _decode_conditions(status.conditions) if is_given(status.conditions) else ()
    return any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in conditions
    )


class Identity(msgspec.Struct, frozen=True):
    """What labels and annotations say of a pod. `rare` are fields of a Pod that few pods have."""

    app_id: str
    queue: str
    rare: dict[str, Any] = {}


def read_identity(
    metadata: Any, notes: Mapping[str, str], labels: Mapping[str, str], is_yunikorn: bool, user: str
) -> Identity:
    """Returns what they say; `notes` and `labels` are those that are known, `user` is a label."""
    rare: dict[str, Any] = {}
    if notes or LABELS["placeholder"] in labels:
        placeholder = (
            notes.get(ANNOTATIONS["placeholder"]),
            notes.get(ANNOTATIONS["placeholder_before_1_6"]),
            labels.get(LABELS["placeholder"]),
        )
        rare = {
            "task_group": notes.get(ANNOTATIONS["task_group"], "")[:LONGEST_GROUP],
            "task_groups": task_groups(notes.get(ANNOTATIONS["task_groups"], "")),
            "is_placeholder": "true" in placeholder,
            "is_mirror": ANNOTATIONS["mirror"] in notes,
        }
    if label := labels.get(LABELS["group"]):
        rare["group"] = f"{GROUPS[1]}/{label}"
    elif note := notes.get(ANNOTATIONS["group"]):
        rare["group"] = f"{GROUPS[2]}/{note[:LONGEST_GROUP]}"
    rare["user"] = labels.get(user, "")[:63]  # as long as Kubernetes takes it
    app_id = ""
    if is_yunikorn:
        app_id = application_id(labels, notes, metadata.namespace, metadata.uid)
    return Identity(
        app_id=app_id,
        queue=requested_queue(labels, notes),
        rare={field: value for field, value in rare.items() if value},
    )


def rare_fields(metadata: Any, spec: Any, status: Any) -> dict[str, Any]:
    """Returns those of pods that are not simply bound and alive."""
    named: dict[str, Any] = {}
    if is_given(spec.resource_claims) or is_given(spec.scheduling_group):
        from dnm.kube.pod_groups import named_in_spec  # few pods have any

        named = named_in_spec(spec)
    return {
        "is_terminating": metadata.deletion_timestamp is not None,
        "priority": spec.priority or 0,
        "is_gated": is_given(spec.scheduling_gates),
        "is_rejected": status.reason == "ApplicationRejected",
        **named,
    }
